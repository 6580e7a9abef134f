package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// A result is one line of the results.
type result struct {
	ID     string          `json:"id"`
	Status int             `json:"status"`
	Took   int64           `json:"took_ms"`
	Body   json.RawMessage `json:"body,omitempty"`
}

// writeResults writes the answers that the journal has, in the order of the jobs,
// and completes s. The file is there as a whole or not at all.
func (b batch) writeResults(s *summary) error {
	j, err := openJournal(b.journal, b.jobs)
	if err != nil {
		return err
	}
	if err := j.close(); err != nil {
		return err
	}
	s.doubt = slices.Sorted(maps.Keys(j.doubt))
	temp, err := os.CreateTemp(filepath.Dir(b.results), filepath.Base(b.results)+".*")
	if err != nil {
		return fmt.Errorf("batch: the results: %w", err)
	}
	out := bufio.NewWriter(temp)
	for _, one := range b.jobs {
		e, done := j.done[one.id]
		if !done {
			if !j.doubt[one.id] {
				s.unsent++
			}
			continue
		}
		s.done++
		if e.Status/100 != 2 {
			s.failed++
		}
		body := json.RawMessage(e.Body)
		if !json.Valid(body) {
			body, _ = json.Marshal(e.Body)
		}
		text, err := json.Marshal(result{e.Done, e.Status, e.Took, body})
		if err != nil {
			return errors.Join(err, temp.Close(), os.Remove(temp.Name()))
		}
		out.Write(append(text, '\n'))
	}
	if err := errors.Join(out.Flush(), temp.Sync(), temp.Close()); err != nil {
		return errors.Join(fmt.Errorf("batch: the results: %w", err), os.Remove(temp.Name()))
	}
	if err := os.Rename(temp.Name(), b.results); err != nil {
		return errors.Join(fmt.Errorf("batch: the results: %w", err), os.Remove(temp.Name()))
	}
	return nil
}
