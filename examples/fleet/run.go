package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A stage is what all runs have in common.
type stage struct {
	network network
	workers int
	screen  screen
}

// A run sends one batch through one client.
type run struct {
	name      string
	jobs      []job
	providers []*metertest.Provider // all calls are addressed to the first
	// client returns the RoundTripper under trial, over base. The urls are those
	// of the providers.
	client func(urls []string, base http.RoundTripper) (http.RoundTripper, error)
	// served, if not nil, is told how many jobs are served, each time it is one
	// more.
	served func(n int)
}

// An outcome is what became of a job.
type outcome struct {
	picked time.Time     // when a worker took it up
	took   time.Duration // from then to the end of its answer
	err    error         // why it was lost; nil when it was served
}

// A result is what a run came to. What was served and refused is told by the
// providers' ledgers, not by the client.
type result struct {
	name         string
	began, ended time.Time
	outcomes     []outcome           // by job
	ledgers      [][]metertest.Entry // by provider
}

// run makes r and returns when every job has been answered. The error is why it
// could not start, or was stopped before the end.
func (s stage) run(ctx context.Context, r run) (result, error) {
	urls, base, stop, err := s.network(s.workers, r.providers...)
	if err != nil {
		return result{}, err
	}
	defer stop()

	below := &wire{base: base}
	rt, err := r.client(urls, below)
	if err != nil {
		return result{}, err
	}
	client := &http.Client{Transport: rt}

	var (
		next, busy, served atomic.Int64
		workers            sync.WaitGroup
	)
	res := result{name: r.name, began: time.Now(), outcomes: make([]outcome, len(r.jobs))}
	hide := s.screen.show(func() string {
		return r.status(time.Since(res.began), below.sent.Load(), busy.Load()-below.underWay.Load())
	})
	for range s.workers {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(r.jobs)) {
					return
				}
				o := &res.outcomes[i]
				o.picked = time.Now()
				busy.Add(1)
				o.err = send(ctx, client, urls[0], r.jobs[i])
				busy.Add(-1)
				o.took = time.Since(o.picked)
				if o.err != nil {
					continue
				}
				if n := served.Add(1); r.served != nil {
					r.served(int(n))
				}
			}
		})
	}
	workers.Wait()
	res.ended = time.Now()
	hide()
	for _, p := range r.providers {
		res.ledgers = append(res.ledgers, p.Ledger())
	}
	return res, context.Cause(ctx)
}

// send makes the call of one job and reads its answer to the end.
func send(ctx context.Context, client *http.Client, base string, j job) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+j.path(), strings.NewReader(`{"prompt":"..."}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(metertest.TokensHeader, strconv.FormatInt(j.tokens, 10))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("job %d: %s", j.id, resp.Status)
	}
	return nil
}

// path tells jobs apart in a provider's ledger.
func (j job) path() string { return "/jobs/" + strconv.Itoa(j.id) }
