package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A batch is the jobs and where they are sent.
type batch struct {
	options
	jobs     []job
	base     http.RoundTripper
	stdout   io.Writer
	terminal bool
	answered func(n int) // told how many jobs of this run are, if not nil
}

var errInterrupted = errors.New("batch: interrupted; the same command resumes")

// run sends what is not done yet. The error is errInterrupted if ctx ended it, or
// the first thing that went otherwise than it should.
func (b batch) run(ctx context.Context) error {
	j, err := openJournal(b.journal, b.jobs)
	if err != nil {
		return err
	}
	todo := b.todo(j)
	if b.latency == 0 {
		if b.latency = j.took(); b.latency == 0 {
			b.latency = defaultLatency
		}
	}
	s := summary{jobs: len(b.jobs), before: len(j.done)}
	if s.forecast, err = b.estimate(todo, b.latency); err != nil {
		return errors.Join(err, j.close())
	}
	if len(todo) > 0 {
		writeEstimate(b.stdout, s.forecast, todo, b.workers, b.latency)
	}
	if b.plan {
		return j.close()
	}
	if len(todo) > 0 {
		err = b.sendAll(ctx, j, todo, &s)
	}
	if err := errors.Join(err, j.close()); err != nil {
		return err
	}
	if err := b.writeResults(&s); err != nil {
		return err
	}
	s.write(b.stdout, b.results)
	switch {
	case ctx.Err() != nil && s.unsent > 0:
		return errInterrupted
	case len(s.lost) > 0:
		return fmt.Errorf("batch: %s of the jobs %s no answer: %w", comma(len(s.lost)), plural(len(s.lost), "has", "have"), s.why)
	case s.failed > 0:
		return fmt.Errorf("batch: %s of the answers %s an error", comma(s.failed), plural(s.failed, "is", "are"))
	case len(s.doubt) > 0:
		return errors.New("batch: jobs are in doubt: see -resend and -idempotent")
	}
	return nil
}

// todo returns the jobs that are to be sent now, and says what is not.
func (b batch) todo(j *journal) []job {
	var todo []job
	for _, one := range b.jobs {
		_, done := j.done[one.id]
		if !done && (!j.doubt[one.id] || b.resend || b.idempotent) {
			todo = append(todo, one)
		}
	}
	if len(j.done) > 0 {
		fmt.Fprintf(b.stdout, "Resuming: %s of %s jobs are done. The limits are taken to be full again.\n", comma(len(j.done)), comma(len(b.jobs)))
	}
	if n := len(j.doubt); n > 0 {
		what := "They are left out; -resend sends them again."
		if b.resend || b.idempotent {
			what = "They are sent again."
		}
		fmt.Fprintf(b.stdout, "%s sent before, with no answer on record, and may have been carried out: %s\n%s\n",
			plural(n, "1 job was", comma(n)+" jobs were"), some(slices.Sorted(maps.Keys(j.doubt))), what)
	}
	return todo
}

// some names the first of ids.
func some(ids []string) string {
	const most = 10
	if len(ids) > most {
		return strings.Join(ids[:most], ", ") + fmt.Sprintf(" and %s more", comma(len(ids)-most))
	}
	return strings.Join(ids, ", ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// sendAll sends todo, on all workers, until ctx is done. What is then on the wire is
// waited for. The error is that of the journal.
func (b batch) sendAll(ctx context.Context, j *journal, todo []job, s *summary) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c, err := b.client(j, stop)
	if err != nil {
		return err
	}
	bar := newProgress(b.stdout, b.terminal, len(todo))
	queue := make(chan job, len(todo))
	for _, one := range todo {
		queue <- one
	}
	close(queue)
	var (
		mu      sync.Mutex // of what follows, and s
		broken  error
		workers sync.WaitGroup
	)
	began := time.Now()
	for range min(b.workers, len(todo)) {
		workers.Go(func() {
			for one := range queue {
				if ctx.Err() != nil {
					return
				}
				e, err := c.send(ctx, one)
				if err == nil {
					if err := j.record(e); err != nil {
						mu.Lock()
						broken = err
						mu.Unlock()
						stop(err)
						return
					}
				}
				mu.Lock()
				switch {
				case err == nil:
					s.sent++
					bar.step()
					if b.answered != nil {
						b.answered(s.sent)
					}
				case ctx.Err() == nil:
					s.lost = append(s.lost, one.id)
					s.why = err
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	s.took = time.Since(began)
	s.refused = c.refused.Load()
	bar.end()
	if broken != nil {
		return broken
	}
	return c.broken()
}
