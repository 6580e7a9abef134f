package metertest

import (
	"context"
	"io"
	"strings"
	"time"
)

// Clauses about answers that a layer drops to send again. A layer that hands the
// first answer back passes them all.

// atOnce is how long dropping an answer may take that is there already, on the
// clock of the test.
const atOnce = time.Second

// within bounds what is read of an endless body, patience how long.
const (
	within   = 64 << 20
	patience = 5 * time.Minute
)

func droppedAnswersAreClosed(t tb, wrap wrapper) {
	for _, status := range []int{429, 503, 529, 500, 502} {
		for _, size := range []int{0, 100, 1 << 20} {
			refusal := gives(status, strings.Repeat("x", size), "Retry-After", "10")
			b := newSuspect(t, refusal, refusal, gives(200, "ok"))
			rt := wrap(b)
			s := b.send(context.Background(), "POST", []byte("payload"))
			if resp, err := s.through(t, rt); err == nil {
				readAll(t, resp)
			}
			s.over(t)
			sends, given := b.sends(), b.bodies()
			for i := 1; i < len(sends); i++ {
				g := given[i-1]
				if !g.isClosed() {
					t.Errorf("the body of a %d was never closed, though the call was sent again", status)
					continue
				}
				if wait := sends[i].at.Sub(sends[i-1].at); wait > atOnce && g.closedAt.Sub(sends[i-1].at) > atOnce {
					t.Errorf("the body of a %d was closed %v after it came, want before the wait of %v began", status, g.closedAt.Sub(sends[i-1].at), wait)
				}
			}
		}
	}
}

// dropped sends a call whose first answer has the body from.
func dropped(t tb, wrap wrapper, from func() io.Reader) {
	t.Helper()
	for _, status := range []int{429, 503, 500} {
		b := newSuspect(t, streams(status, func(*attempt) io.Reader { return from() }, "Retry-After", "1"), gives(200, "ok"))
		rt := wrap(b)
		s := b.send(context.Background(), "POST", []byte("payload"))
		start := time.Now()
		resp, err := s.through(t, rt)
		if took := time.Since(start); took > patience {
			t.Errorf("a %d with a body that does not end held the call for %v", status, took)
		}
		if err == nil {
			resp.Body.Close()
		}
		s.over(t)
		if len(b.bodies()) == 0 {
			t.Fatalf("a call was not sent")
		}
		g := b.bodies()[0]
		if !g.isClosed() {
			t.Errorf("the body of a %d that does not end was never closed", status)
		}
		if _, n := g.taken(); n > within {
			t.Errorf("%d bytes were read of the body of a %d that does not end", n, status)
		}
	}
}

// flood never ends and never waits, until it has had enough.
type flood struct{ n int64 }

func (f *flood) Read(p []byte) (int, error) {
	if f.n > within {
		return 0, io.EOF
	}
	f.n += int64(len(p))
	return len(p), nil
}

func droppedEndlessBody(t tb, wrap wrapper) {
	dropped(t, wrap, func() io.Reader { return &flood{} })
}

func droppedTricklingBody(t tb, wrap wrapper) {
	dropped(t, wrap, func() io.Reader { return &ticks{every: time.Second, left: 1000} })
}

// silent has no byte and no end.
type silent struct{}

func (silent) wait() time.Duration      { return time.Hour }
func (silent) Read([]byte) (int, error) { return 0, io.EOF }

func droppedSilentBody(t tb, wrap wrapper) {
	dropped(t, wrap, func() io.Reader { return silent{} })
}
