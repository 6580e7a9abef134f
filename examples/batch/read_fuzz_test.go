package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// A file of jobs is anything: it is refused with the line that is wrong, or its
// jobs have ids of their own and costs that a budget takes.
//
// Proved able to fail: on an id that comes twice, on a negative cost, and on an
// error that names no line.
func FuzzJobs(f *testing.F) {
	for _, s := range []string{
		"\ufefftokens,id,output_tokens,body\r\n30,a,4,\"{\"\"q\"\":\n1}\"\r\n10,b,,\r\n", "id,tokens\na,1\na,2\n", "id,tokens\na,\"1\n", "id,tokens\na,-1\n", "id,id\n", "",
		"{\"id\":\"a\",\"tokens\":30,\"body\":{\"q\":1}}\n\n{\"id\":\"b\",\"tokens\":10}", `{"id":"a"}`, `{"id":"a","tokens":1}{`, "null\n", "{\"ID\":\"\xff\",\"tokens\":1}",
		"{\"id\":\"a\",\"tokens\":1,\"output_tokens\":-1}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, read := range map[string]func(*list) error{
			"CSV":   func(l *list) error { return readCSV(strings.NewReader(text), l.add) },
			"JSONL": func(l *list) error { return readJSONL(strings.NewReader(text), l.add) },
		} {
			l := list{line: map[string]int{}}
			if err := read(&l); err != nil {
				if !strings.Contains(err.Error(), "line ") && err.Error() != "it is empty" {
					t.Errorf("%s: %q: %v", name, text, err)
				}
				continue
			}
			ids := map[string]bool{}
			for _, j := range l.jobs {
				if j.id == "" || ids[j.id] || j.cost.Requests != 1 || j.cost.InputTokens < 0 || j.cost.OutputTokens < 0 {
					t.Errorf("%s: %q: the job %+v", name, text, j)
				}
				ids[j.id] = true
			}
		}
	})
}

// A journal is anything too: it is refused and left as it was, or what is read of
// it is read again, and with it what is recorded then.
//
// Proved able to fail: on a journal cut off before its end is known to be torn,
// and on a torn line that is left before what is recorded next.
func FuzzJournal(f *testing.F) {
	jobs := demoBatch(3)
	first := fmt.Sprintf("{\"batch\":\"b\",\"jobs\":%q}\n", hashOf(jobs))
	for _, rest := range []string{
		"", "{\"sent\":\"job-001\"}\n{\"done\":\"job-001\",\"status\":200,\"took_ms\":7,\"body\":\"x\"}\n", "{\"sent\":\"job-002\"}\n{\"refused\":\"job-002\"}\n{\"sen",
		"\x00\x00\n", "{\"sent\"\n{}\n", "{}\n\n", first, "{\"took_ms\":-1}\nnull\n",
	} {
		f.Add([]byte(first + rest))
		f.Add([]byte(rest))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := openJournal(path, jobs)
		if err != nil {
			if after, _ := os.ReadFile(path); string(after) != string(text) {
				t.Errorf("%q was refused (%v), and is %q", text, err, after)
			}
			return
		}
		if err := j.record(entry{Sent: "job-003"}); err != nil {
			t.Fatal(err)
		}
		closed(t, j)
		j.doubt["job-003"] = true
		again := opened(t, path, jobs)
		defer closed(t, again)
		if again.batch != j.batch || !reflect.DeepEqual(again.done, j.done) || !reflect.DeepEqual(again.doubt, j.doubt) {
			t.Errorf("%q: %v done and %v in doubt, and then %v and %v", text, j.done, j.doubt, again.done, again.doubt)
		}
	})
}
