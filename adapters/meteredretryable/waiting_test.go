package meteredretryable

import (
	"context"
	"net/url"
	"testing"
)

// What is remembered is bounded, and the newest call is always among it.
func TestWaiting_IsBounded(t *testing.T) {
	var w waiting
	var last *call
	for range 2 * maxWaiting {
		last = &call{url: new(url.URL)}
		w.add(context.Background(), last)
	}
	if len(w.calls) != maxWaiting {
		t.Errorf("%d calls wait, want %d", len(w.calls), maxWaiting)
	}
	if w.take(last.url) != last || w.take(last.url) != nil {
		t.Error("the last call does not wait, or twice")
	}
}

// A call leaves with its context, whether it has heard or not; one that has been
// taken stays with whoever took it.
func TestWaiting_LeavesWithItsContext(t *testing.T) {
	var w waiting
	c := &call{url: new(url.URL)}
	ctx, cancel := context.WithCancel(context.Background())
	w.add(ctx, c)
	cancel()
	if w.take(c.url) != nil {
		t.Error("it still waits")
	}
	w.add(nil, c)
	w.add(context.Background(), c) // recognized after all
	if w.take(c.url) != c || w.take(c.url) != nil || w.any.Load() {
		t.Error("it does not wait, or twice")
	}
	w.add(nil, c)
	w.remove(&call{url: c.url})
	if w.take(c.url) != c {
		t.Error("another call with its URL has taken it along")
	}
}
