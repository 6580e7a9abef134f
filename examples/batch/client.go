package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A client sends jobs through a Stack, and keeps the journal of it.
type client struct {
	options *options
	http    http.Client
	*wire
}

// underWay is a job that is being sent, in the context of its request.
type underWay struct {
	job
	left time.Time // the last time that it was sent
}

type underWayKey struct{}

func of(ctx context.Context) *underWay { return ctx.Value(underWayKey{}).(*underWay) }

// client returns a client that calls stop when the journal fails.
func (b *batch) client(j *journal, stop context.CancelCauseFunc) (*client, error) {
	patient := retryafter.DefaultPolicy()
	patient.MaxRetries = math.MaxInt32 // a batch has time; it wants none of its jobs lost
	limits := bucket.Config{Limits: b.limits(), Headroom: b.headroom}
	if b.rpd > 0 {
		limits.MaxWait = -1 // until tomorrow, if it must be
	}
	stack, err := middleware.New(middleware.Config{
		Bucket: limits,
		Pace: middleware.PaceConfig{Cost: func(r *http.Request) (bucket.Cost, error) {
			return of(r.Context()).cost, nil
		}},
		Ladder: patient,
	})
	if err != nil {
		return nil, err
	}
	w := &wire{base: b.base, journal: j, stop: stop}
	return &client{&b.options, http.Client{Transport: stack.Transport(w)}, w}, nil
}

// maxAnswer is how much of an answer is kept.
const maxAnswer = 8 << 20

// send returns the answer of one job. After an error it may have been carried out or
// not: the journal knows what is known.
func (c *client) send(ctx context.Context, one job) (entry, error) {
	under := &underWay{job: one}
	ctx = context.WithValue(ctx, underWayKey{}, under)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.options.url, bytes.NewReader(one.body))
	if err != nil {
		return entry{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, values := range c.options.header {
		req.Header[name] = values
	}
	if c.options.idempotent {
		req.Header.Set("Idempotency-Key", c.journal.key(one.id))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return entry{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return entry{}, err
	case refusal(resp.StatusCode):
		return entry{}, fmt.Errorf("refused for good: %s", resp.Status)
	}
	return entry{Done: one.id, Status: resp.StatusCode, Took: time.Since(under.left).Milliseconds(), Body: string(body)}, nil
}

// refusal reports whether a status says that the call was not carried out.
func refusal(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == 529
}

// A wire is the transport below the Stack. It journals what leaves, and what is
// refused. An interrupt reaches what waits above it; what has left is waited for.
type wire struct {
	base    http.RoundTripper
	journal *journal
	stop    context.CancelCauseFunc
	refused atomic.Int64
	failure atomic.Pointer[error] // of the journal
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	under := of(ctx)
	id := under.id
	err := context.Cause(ctx)
	if err == nil {
		err = w.note(entry{Sent: id})
	}
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	under.left = time.Now()
	resp, err := w.base.RoundTrip(req.WithContext(context.WithoutCancel(ctx)))
	var op *net.OpError
	unsent := errors.As(err, &op) && op.Op == "dial"
	if unsent || err == nil && refusal(resp.StatusCode) {
		if !unsent {
			w.refused.Add(1)
		}
		if failed := w.note(entry{Refused: id}); failed != nil {
			if resp != nil {
				resp.Body.Close()
			}
			return nil, failed
		}
	}
	return resp, err
}

func (w *wire) note(e entry) error {
	err := w.journal.record(e)
	if err != nil {
		w.failure.CompareAndSwap(nil, &err)
		w.stop(err)
	}
	return err
}

// broken is why the journal could not be kept, or nil.
func (w *wire) broken() error {
	if err := w.failure.Load(); err != nil {
		return *err
	}
	return nil
}
