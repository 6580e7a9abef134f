package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A job is one call.
type job struct {
	id   string
	cost bucket.Cost
	body []byte
}

// maxLine is the longest line of a JSONL file.
const maxLine = 16 << 20

// readJobs reads a file of jobs. Its errors name the file and the line.
func readJobs(name string) ([]job, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	defer f.Close()
	read := readCSV
	if strings.HasSuffix(strings.ToLower(name), ".jsonl") {
		read = readJSONL
	}
	l := list{line: map[string]int{}}
	if err := read(f, l.add); err != nil {
		return nil, fmt.Errorf("batch: %s: %w", name, err)
	}
	if len(l.jobs) == 0 {
		return nil, fmt.Errorf("batch: %s: no jobs in it", name)
	}
	return l.jobs, nil
}

// list collects jobs, each id once.
type list struct {
	jobs []job
	line map[string]int // of each id
}

func (l *list) add(line int, id string, tokens, output int64, body []byte) error {
	switch {
	case id == "":
		return fmt.Errorf("line %d: the id is empty", line)
	case l.line[id] > 0:
		return fmt.Errorf("line %d: the id %q is that of line %d too", line, id, l.line[id])
	case tokens < 0:
		return fmt.Errorf("line %d: tokens is %d, must not be negative", line, tokens)
	case output < 0:
		return fmt.Errorf("line %d: output_tokens is %d, must not be negative", line, output)
	}
	l.line[id] = line
	l.jobs = append(l.jobs, job{id, bucket.Cost{Requests: 1, InputTokens: tokens, OutputTokens: output}, body})
	return nil
}

type adder func(line int, id string, tokens, output int64, body []byte) error

func readCSV(r io.Reader, add adder) error {
	in := csv.NewReader(r)
	names, err := in.Read()
	if errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	} else if err != nil {
		return err
	}
	column := map[string]int{}
	for i, name := range names {
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		switch name {
		case "id", "tokens", "output_tokens", "body":
		default:
			return fmt.Errorf("line 1: unknown column %q; there are id, tokens, output_tokens and body", name)
		}
		if _, twice := column[name]; twice {
			return fmt.Errorf("line 1: the column %q is there twice", name)
		}
		column[name] = i
	}
	for _, name := range []string{"id", "tokens"} {
		if _, ok := column[name]; !ok {
			return fmt.Errorf("line 1: no column %q", name)
		}
	}
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err // it names the line
		}
		line, _ := in.FieldPos(0)
		field := func(name string) string {
			if i, ok := column[name]; ok {
				return strings.TrimSpace(record[i])
			}
			return ""
		}
		number := func(name string) (int64, error) {
			s := field(name)
			if s == "" && name != "tokens" {
				return 0, nil
			}
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("line %d: %s is %q, not a whole number", line, name, s)
			}
			return n, nil
		}
		tokens, err := number("tokens")
		if err != nil {
			return err
		}
		output, err := number("output_tokens")
		if err != nil {
			return err
		}
		if err := add(line, field("id"), tokens, output, []byte(field("body"))); err != nil {
			return err
		}
	}
}

func readJSONL(r io.Reader, add adder) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	line := 0
	for in.Scan() {
		line++
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		var j struct {
			ID     string          `json:"id"`
			Tokens *int64          `json:"tokens"`
			Output int64           `json:"output_tokens"`
			Body   json.RawMessage `json:"body"`
		}
		d := json.NewDecoder(bytes.NewReader(in.Bytes()))
		d.DisallowUnknownFields()
		err := d.Decode(&j)
		if err == nil && d.More() {
			err = errors.New("more than one object")
		}
		if err == nil && j.Tokens == nil {
			err = errors.New("no tokens")
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if err := add(line, j.ID, *j.Tokens, j.Output, j.Body); err != nil {
			return err
		}
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d MiB", line+1, maxLine>>20)
	}
	if line == 0 && in.Err() == nil {
		return errors.New("it is empty")
	}
	return in.Err()
}
