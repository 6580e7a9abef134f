package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// An entry is one line of a journal. The first has Batch and Jobs.
type entry struct {
	Batch string `json:"batch,omitempty"` // random; Idempotency-Keys come from it
	Jobs  string `json:"jobs,omitempty"`  // hash of the jobs

	Sent    string `json:"sent,omitempty"`    // id: it is about to leave
	Refused string `json:"refused,omitempty"` // id: it was not carried out
	Done    string `json:"done,omitempty"`    // id: this is its answer
	Status  int    `json:"status,omitempty"`
	Took    int64  `json:"took_ms,omitempty"`
	Body    string `json:"body,omitempty"`
}

// A journal is what is known of a batch, on disk. record may be called by many at
// once.
type journal struct {
	file  *os.File
	batch string
	done  map[string]entry // by id; as it was when the journal was opened
	doubt map[string]bool  // sent, and not answered; likewise

	lines  chan line
	closed chan struct{}
}

// A line is an entry on its way to the disk.
type line struct {
	text   []byte
	synced chan<- error
}

// openJournal opens the journal of jobs, or begins it. What a crash has left of a
// last line is cut off.
func openJournal(name string, jobs []job) (*journal, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("batch: the journal: %w", err)
	}
	j := &journal{file: f, done: map[string]entry{}, doubt: map[string]bool{}, lines: make(chan line), closed: make(chan struct{})}
	if err := j.load(jobs); err != nil {
		f.Close()
		return nil, fmt.Errorf("batch: the journal %s: %w", name, err)
	}
	go j.write()
	return j, nil
}

func (j *journal) load(jobs []job) error {
	in := bufio.NewReader(j.file)
	whole := int64(0) // bytes in whole lines
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // whatever text is, it was never on the disk as a whole
			break
		} else if err != nil {
			return err
		}
		var e entry
		if err := json.Unmarshal(text, &e); err != nil {
			if _, more := in.Peek(1); errors.Is(more, io.EOF) {
				break
			}
			return fmt.Errorf("line %d: %w", n, err)
		}
		if n == 1 && e.Batch == "" {
			return errors.New("line 1: this is not a journal")
		}
		if e.Batch != "" && e.Jobs != hashOf(jobs) {
			return errors.New("it is of other jobs than these: give back the old file, or take a new journal by -journal")
		}
		j.note(e)
		whole += int64(len(text))
	}
	if err := j.file.Truncate(whole); err != nil {
		return err
	}
	if _, err := j.file.Seek(whole, io.SeekStart); err != nil {
		return err
	}
	if j.batch != "" {
		return nil
	}
	e := entry{Batch: rand.Text(), Jobs: hashOf(jobs)}
	j.note(e)
	return j.append(e.line())
}

func (j *journal) note(e entry) {
	switch {
	case e.Batch != "":
		j.batch = e.Batch
	case e.Sent != "":
		j.doubt[e.Sent] = true
	case e.Refused != "":
		delete(j.doubt, e.Refused)
	case e.Done != "":
		delete(j.doubt, e.Done)
		j.done[e.Done] = e
	}
}

func (e entry) line() []byte {
	text, _ := json.Marshal(e) // strings and numbers
	return append(text, '\n')
}

func (j *journal) append(text []byte) error {
	if _, err := j.file.Write(text); err != nil {
		return err
	}
	return j.file.Sync()
}

// record returns when e is on the disk.
func (j *journal) record(e entry) error {
	synced := make(chan error, 1)
	j.lines <- line{e.line(), synced}
	if err := <-synced; err != nil {
		return fmt.Errorf("batch: the journal: %w", err)
	}
	return nil
}

// write puts lines on the disk until the journal is closed; those that come
// together go together. After an error nothing is written any more.
func (j *journal) write() {
	defer close(j.closed)
	var failed error
	for first := range j.lines {
		lines := []line{first}
		text := bytes.Clone(first.text)
		for more := true; more; {
			select {
			case l, ok := <-j.lines:
				if more = ok; ok {
					lines = append(lines, l)
					text = append(text, l.text...)
				}
			default:
				more = false
			}
		}
		if failed == nil {
			failed = j.append(text)
		}
		for _, l := range lines {
			l.synced <- failed
		}
	}
}

// close closes the journal, when nobody records any more.
func (j *journal) close() error {
	close(j.lines)
	<-j.closed
	return j.file.Close()
}

// key is the Idempotency-Key of a job: the same whenever it is sent.
func (j *journal) key(id string) string {
	sum := sha256.Sum256([]byte(j.batch + "\x00" + id))
	return hex.EncodeToString(sum[:16])
}

// took is how long the calls that are done have taken, in the middle; 0 if none is.
func (j *journal) took() time.Duration {
	var all []int64
	for _, e := range j.done {
		all = append(all, e.Took)
	}
	return time.Duration(median(all)) * time.Millisecond
}

// hashOf tells one file of jobs from another.
func hashOf(jobs []job) string {
	h := sha256.New()
	for _, j := range jobs {
		fmt.Fprintf(h, "%q %d %d %q\n", j.id, j.cost.InputTokens, j.cost.OutputTokens, j.body)
	}
	return hex.EncodeToString(h.Sum(nil))
}
