package meteredretryable

import (
	"context"
	"math"
	"net/url"
	"testing"
	"testing/synctest"
	"time"
)

// What is remembered is bounded, and the newest call is always among it.
func TestWaiting_IsBounded(t *testing.T) {
	var w waiting
	var last *call
	for range 2 * maxWaiting {
		last = &call{url: new(url.URL)}
		w.add(context.Background(), last, time.Hour)
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
	w.add(ctx, c, time.Hour)
	cancel()
	if w.take(c.url) != nil {
		t.Error("it still waits")
	}
	w.add(context.Background(), c, time.Hour)
	w.add(context.Background(), c, time.Hour)
	if w.take(c.url) != c || w.take(c.url) != nil || w.any.Load() {
		t.Error("it does not wait, or twice")
	}
	w.add(context.Background(), c, time.Hour)
	w.remove(&call{url: c.url})
	if w.take(c.url) != c {
		t.Error("another call with its URL has taken it along")
	}
}

// A call that nobody sends again, and whose context never ends, leaves by itself.
func TestWaiting_EndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w waiting
		c := &call{url: new(url.URL)}
		w.add(context.Background(), c, time.Hour)
		time.Sleep(time.Hour - 1)
		if !w.any.Load() {
			t.Error("it has left early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if w.any.Load() || w.take(c.url) != nil {
			t.Error("it still waits")
		}
	})
}

// A call waits longer than its client does, whatever that is configured to.
func TestWaiting_LongerThanTheClient(t *testing.T) {
	for longest, want := range map[time.Duration]time.Duration{
		0: 5 * time.Minute, time.Minute: 5 * time.Minute, time.Hour: 2 * time.Hour, math.MaxInt64: math.MaxInt64 - 1, -1: 5 * time.Minute,
	} {
		if got := waitOf(longest); got != want {
			t.Errorf("%v: %v, want %v", longest, got, want)
		}
	}
}
