package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func opened(t *testing.T, path string, jobs []job) *journal {
	t.Helper()
	j, err := openJournal(path, jobs)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func closed(t *testing.T, j *journal) {
	t.Helper()
	if err := j.close(); err != nil {
		t.Error(err)
	}
}

func TestAJournalRemembers(t *testing.T) {
	path, jobs := filepath.Join(t.TempDir(), "journal"), demoBatch(100)
	j := opened(t, path, jobs)
	key := j.key("job-001")
	var all sync.WaitGroup
	for i, one := range jobs {
		all.Go(func() {
			for _, e := range []entry{{Sent: one.id}, {Refused: one.id}, {Sent: one.id}, {Done: one.id, Status: 200, Took: 7, Body: "x\ny"}}[:1+i%4] {
				if err := j.record(e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	closed(t, j)

	j = opened(t, path, jobs)
	defer closed(t, j)
	if len(j.done) != 25 || len(j.doubt) != 50 || j.done["job-004"].Body != "x\ny" || j.took().Milliseconds() != 7 {
		t.Errorf("%d done, %d in doubt, %+v", len(j.done), len(j.doubt), j.done["job-004"])
	}
	if j.key("job-001") != key || j.key("job-002") == key {
		t.Error("the keys of jobs are not their own, or not the same after a resume")
	}
}

// Wherever a crash cuts the last line, all before it is there, and what is recorded then is too.
func TestATornLastLineIsCutOff(t *testing.T) {
	path, jobs := filepath.Join(t.TempDir(), "journal"), demoBatch(3)
	j := opened(t, path, jobs)
	j.record(entry{Sent: "job-001"})
	whole, _ := os.ReadFile(path)
	j.record(entry{Done: "job-001", Status: 200})
	closed(t, j)
	text, _ := os.ReadFile(path)
	for cut := len(whole); cut < len(text); cut++ {
		for _, rest := range []string{"", "\x00\x00\n"} {
			torn := filepath.Join(t.TempDir(), "torn")
			os.WriteFile(torn, []byte(string(text[:cut])+rest), 0o600)
			j := opened(t, torn, jobs)
			if !j.doubt["job-001"] || len(j.done) != 0 {
				t.Fatalf("cut at %d: %v in doubt, %v done", cut, j.doubt, j.done)
			}
			j.record(entry{Done: "job-001", Status: 201})
			closed(t, j)
			j = opened(t, torn, jobs)
			if j.done["job-001"].Status != 201 || len(j.doubt) != 0 {
				t.Fatalf("cut at %d: then %v in doubt, %v done", cut, j.doubt, j.done)
			}
			closed(t, j)
		}
	}
}

func TestAJournalThatIsNotOfTheseJobsIsRefused(t *testing.T) {
	path, jobs := filepath.Join(t.TempDir(), "journal"), demoBatch(3)
	closed(t, opened(t, path, jobs))
	if _, err := openJournal(path, demoBatch(4)); err == nil || !strings.Contains(err.Error(), "other jobs") {
		t.Errorf("got %v", err)
	}
	for text, want := range map[string]string{
		"hello\nworld\n":                       "line 1: ",
		"{\"sent\":\"a\"}\n{}\n":               "line 1: this is not a journal",
		"BATCH\n{\"sent\"\n{\"sent\":\"a\"}\n": "line 2: ",
	} {
		begun := fmt.Sprintf(`{"batch":"b","jobs":%q}`, hashOf(jobs))
		path := file(t, "journal", strings.Replace(text, "BATCH", begun, 1))
		before, _ := os.ReadFile(path)
		if _, err := openJournal(path, jobs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", text, err, want)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%q was changed to %q", before, after)
		}
	}
}
