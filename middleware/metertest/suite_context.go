package metertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Clauses about contexts and cancelling.

type valueKey struct{}

func contextIsPassedOn(t tb, wrap wrapper) {
	b := newSuspect(t, refusals()...)
	rt := wrap(b)
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), valueKey{}, "value"), time.Hour)
	defer cancel()
	deadline, _ := ctx.Deadline()
	b.arrived = func(a *attempt) {
		if a.req.Context().Value(valueKey{}) != "value" {
			t.Errorf("attempt %d lacks the values of the caller's context", a.n+1)
		}
		if d, ok := a.req.Context().Deadline(); !ok || d.After(deadline) {
			t.Errorf("attempt %d has a later deadline than the caller's context, or none", a.n+1)
		}
	}
	s := b.send(ctx, "POST", []byte("payload"))
	if resp, err := s.through(t, rt); err == nil {
		readAll(t, resp)
	}
	s.over(t)
}

// contextLivesUntilTheBodyEnds: givenBody ends with the context of its attempt.
func contextLivesUntilTheBodyEnds(t tb, wrap wrapper) {
	for _, first := range [][]step{nil, refusals()[:1]} {
		b := newSuspect(t, append(first, streams(200, func(*attempt) io.Reader { return &ticks{every: time.Minute, left: 10} }))...)
		rt := wrap(b)
		s := b.send(context.Background(), "POST", []byte("payload"))
		resp, err := s.through(t, rt)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Errorf("a slow answer was cut: %v", err)
		}
		resp.Body.Close()
		s.over(t)
	}
}

// contextErrors looks through http.Client, as callers do.
func contextErrors(t tb, wrap wrapper) {
	for _, c := range []struct {
		name    string
		context func() (context.Context, context.CancelFunc)
		timeout time.Duration // of the client
		want    error
		after   time.Duration
	}{
		{"cancelled before", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}, 0, context.Canceled, 0},
		{"cancelled during", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(3*time.Second, cancel)
			return ctx, cancel
		}, 0, context.Canceled, 3 * time.Second},
		{"past its deadline", func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 5*time.Second)
		}, 0, context.DeadlineExceeded, 5 * time.Second},
		{"past the client's timeout", func() (context.Context, context.CancelFunc) {
			return context.Background(), func() {}
		}, 7 * time.Second, context.DeadlineExceeded, 7 * time.Second},
	} {
		b := newSuspect(t, hangs())
		client := &http.Client{Transport: wrap(b), Timeout: c.timeout}
		ctx, cancel := c.context()
		s := b.send(ctx, "POST", []byte("payload"))
		start := time.Now()
		resp, err := client.Do(s.req)
		took := time.Since(start)
		cancel()
		if err == nil {
			readAll(t, resp)
			t.Errorf("a call %s was answered", c.name)
			continue
		}
		if !errors.Is(err, c.want) {
			t.Errorf("the error of a call %s does not match %v: %v", c.name, c.want, err)
		}
		if took > c.after+atOnce {
			t.Errorf("a call %s ended after %v, want %v", c.name, took, c.after)
		}
		s.over(t)
	}
}

// cancelEndsEveryWait: the first answer invites to wait. Whoever does not gives
// it back at once, which is as good.
func cancelEndsEveryWait(t tb, wrap wrapper) {
	lost := errors.New("lost")
	for _, first := range []step{
		gives(429, "slow down", "Retry-After", "30"),
		gives(503, "busy", "Retry-After", "30"),
		gives(429, "slow down"),
		gives(500, "broken"),
		fails(lost),
	} {
		for _, after := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, 3 * time.Second} {
			b := newSuspect(t, first)
			rt := wrap(b)
			ctx, cancel := context.WithCancel(context.Background())
			if after == 0 {
				// From within the call: the wait has not begun.
				b.arrived = func(a *attempt) { time.AfterFunc(0, cancel) }
			} else {
				time.AfterFunc(after, cancel)
			}
			s := b.send(ctx, "POST", []byte("payload"))
			start := time.Now()
			resp, err := s.through(t, rt)
			if took := time.Since(start); took > after+atOnce {
				t.Errorf("a call cancelled after %v ended after %v", after, took)
			}
			if err == nil {
				resp.Body.Close()
			} else if ctx.Err() != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, lost) {
				t.Errorf("the error of a cancelled call does not match context.Canceled: %v", err)
			}
			sends := len(b.sends())
			cancel()
			time.Sleep(10 * time.Minute)
			if more := len(b.sends()) - sends; more > 0 {
				t.Errorf("a call that was over was sent again %d times", more)
			}
			s.over(t)
		}
	}
	for _, first := range []step{gives(429, "slow down", "Retry-After", "600"), gives(503, "busy", "Retry-After", "600")} {
		b := newSuspect(t, first)
		rt := wrap(b)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s := b.send(ctx, "POST", []byte("payload"))
		start := time.Now()
		resp, err := s.through(t, rt)
		if took := time.Since(start); took > 5*time.Second+atOnce {
			t.Errorf("a call with 5 s to its deadline ended after %v", took)
		}
		if err == nil {
			resp.Body.Close()
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error of a call whose wait passes its deadline does not match context.DeadlineExceeded: %v", err)
		}
		cancel()
		s.over(t)
	}
}

func cancelEndsTheBody(t tb, wrap wrapper) {
	b := newSuspect(t, streams(200, func(*attempt) io.Reader { return silent{} }))
	rt := wrap(b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := b.send(ctx, "POST", []byte("payload"))
	resp, err := s.through(t, rt)
	if err != nil {
		t.Fatalf("%v", err)
	}
	time.AfterFunc(time.Second, cancel)
	start := time.Now()
	if _, err := resp.Body.Read(make([]byte, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("reading the body of a cancelled call: %v, want context.Canceled", err)
	}
	if took := time.Since(start); took > time.Second+atOnce {
		t.Errorf("a body cancelled after 1 s ended after %v", took)
	}
	resp.Body.Close()
	s.over(t)
	if !b.bodies()[0].isClosed() {
		t.Errorf("the body of a cancelled call was never closed")
	}
}
