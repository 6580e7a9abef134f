package main

import (
	"strings"
	"testing"
)

func TestJobsAreRead(t *testing.T) {
	for name, text := range map[string]string{
		"jobs.csv":   "\ufefftokens,id,output_tokens,body\r\n30,a,4,\"{\"\"q\"\":\n1}\"\r\n10,b,,\r\n",
		"jobs.jsonl": `{"id":"a","tokens":30,"output_tokens":4,"body":{"q":` + "1}}\n\n" + `{"id":"b","tokens":10}`,
	} {
		jobs, err := readJobs(file(t, name, text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(jobs) != 2 || jobs[0].id != "a" || jobs[1].id != "b" ||
			jobs[0].cost.InputTokens != 30 || jobs[0].cost.OutputTokens != 4 || jobs[1].cost.OutputTokens != 0 ||
			strings.ReplaceAll(string(jobs[0].body), "\n", "") != `{"q":1}` {
			t.Errorf("%s: %+v", name, jobs)
		}
	}
}

func TestAJobThatIsWrongIsNamedByItsLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a.csv", "", "it is empty"},
		{"a.csv", "id\na\n", `line 1: no column "tokens"`},
		{"a.csv", "id,tokens,prio\n", `line 1: unknown column "prio"`},
		{"a.csv", "id,tokens,id\n", `line 1: the column "id" is there twice`},
		{"a.csv", "id,tokens\na,1\nb,2,3\n", "line 3: wrong number of fields"},
		{"a.csv", "id,tokens\na,\"1\n", `line 2, column 6: extraneous or missing "`},
		{"a.csv", "id,tokens\na,1\nb,many\n", `line 3: tokens is "many"`},
		{"a.csv", "id,tokens\na,\n", `line 2: tokens is ""`},
		{"a.csv", "id,tokens\na,99999999999999999999\n", "line 2: tokens is"},
		{"a.csv", "id,tokens\n\"a\nb\",1\nc,-1\n", "line 4: tokens is -1"},
		{"a.csv", "id,tokens,output_tokens\na,1,-1\n", "line 2: output_tokens is -1"},
		{"a.csv", "id,tokens\n,1\n", "line 2: the id is empty"},
		{"a.csv", "id,tokens\na,1\nb,1\na,2\n", `line 4: the id "a" is that of line 2 too`},
		{"a.jsonl", "", "it is empty"},
		{"a.jsonl", "\n\n", "no jobs"},
		{"a.jsonl", `{"id":"a","tokens":1}` + "\n{", "line 2: "},
		{"a.jsonl", `{"id":"a"}`, "line 1: no tokens"},
		{"a.jsonl", `{"id":"a","tokens":1,"prio":2}`, "line 1: "},
		{"a.jsonl", `{"id":"a","tokens":1}{"id":"b","tokens":1}`, "line 1: more than one object"},
		{"a.jsonl", `{"id":"a","tokens":1.5}`, "line 1: "},
		{"a.jsonl", `{"id":"a","tokens":-1}`, "line 1: tokens is -1"},
	} {
		path := file(t, c.name, c.text)
		if _, err := readJobs(path); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: got %v, want %q in it", c.text, err, c.want)
		}
	}
}
