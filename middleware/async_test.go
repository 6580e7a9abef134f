package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A call to a provider that answers at once takes no time, whatever its observer does.
func TestAnObserverBehindAsyncNeitherSlowsNorFailsACall(t *testing.T) {
	for name, do := range map[string]func(release <-chan struct{}){
		"blocks": func(release <-chan struct{}) { <-release },
		"slow":   func(<-chan struct{}) { time.Sleep(time.Hour) },
		"panics": func(<-chan struct{}) { panic("boom") },
		"exits":  func(<-chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				release := make(chan struct{})
				o := middleware.Async(middleware.ObserverFunc(func(context.Context, middleware.Event) { do(release) }), 4)
				c, s := r.stack(middleware.Config{Observer: o})
				start := time.Now()
				for range 50 {
					r.wantServed(c, r.request("GET", nil))
				}
				if took := time.Since(start); took != 0 {
					r.Errorf("50 calls took %v", took)
				}
				r.wantNoSlotTaken(s)
				synctest.Wait()
				if name == "panics" || name == "exits" {
					if n := o.Panicked() + o.Dropped(); n != 100 { // a send and a settlement each
						r.Errorf("%d panicked and %d dropped, want 100 together", o.Panicked(), o.Dropped())
					}
				} else if n := o.Dropped(); n != 95 && n != 96 { // four wait; one is being told, if that began early enough
					r.Errorf("%d dropped, want 95 or 96", n)
				}
				close(release)
				if err := o.Flush(context.Background()); err != nil {
					r.Error(err)
				}
			})
		})
	}
}

func TestAsyncKeepsTheOrderAndLosesNothingThatFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, tellers = 500, 8
		next := map[string]int{} // by teller
		told := 0
		o := middleware.Async(middleware.ObserverFunc(func(_ context.Context, e middleware.Event) {
			if e.Attempt != next[e.Key] {
				t.Errorf("teller %s: %d came after %d", e.Key, e.Attempt, next[e.Key]-1)
			}
			next[e.Key] = e.Attempt + 1
			if told++; told%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}), each*tellers)
		var all sync.WaitGroup
		for k := range tellers {
			all.Go(func() {
				for i := range each {
					o.Observe(t.Context(), middleware.Event{Key: fmt.Sprint(k), Attempt: i})
					if i%50 == 0 {
						time.Sleep(time.Millisecond) // so that the queue runs dry now and then
					}
				}
			})
		}
		all.Wait()
		if err := o.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if told != each*tellers || o.Dropped() != 0 || o.Panicked() != 0 {
			t.Errorf("told %d, dropped %d, panicked %d", told, o.Dropped(), o.Panicked())
		}
	})
}

func TestAsyncIsToldTheCallsContext(t *testing.T) {
	type key struct{}
	got := ""
	o := middleware.Async(middleware.ObserverFunc(func(ctx context.Context, e middleware.Event) {
		got = fmt.Sprint(ctx.Value(key{}), e.Kind)
	}), 0)
	o.Observe(context.WithValue(t.Context(), key{}, "mine "), middleware.Event{Kind: middleware.Refused})
	if err := o.Flush(t.Context()); err != nil || got != "mine refused" {
		t.Errorf("told %q, %v", got, err)
	}
}

func TestFlushEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := middleware.Async(middleware.ObserverFunc(func(context.Context, middleware.Event) { <-release }), 1)
		o.Observe(t.Context(), middleware.Event{})
		synctest.Wait()
		for range 2 { // there is room for one mark; the other finds none
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := o.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			cancel()
		}
		close(release)
		if err := o.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAsyncOfNobody(t *testing.T) {
	o := middleware.Async(nil, 0)
	o.Observe(t.Context(), middleware.Event{})
	if err := o.Flush(t.Context()); err != nil || o.Dropped() != 0 {
		t.Errorf("dropped %d, %v", o.Dropped(), err)
	}
}

func TestAsyncAllocatesNothing(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	o := middleware.Async(middleware.ObserverFunc(func(context.Context, middleware.Event) { <-release }), 100_000)
	ctx := t.Context()
	o.Observe(ctx, middleware.Event{})
	if n := testing.AllocsPerRun(1000, func() { o.Observe(ctx, middleware.Event{Kind: middleware.Sent, Key: "k"}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAsync(b *testing.B) {
	o := middleware.Async(middleware.ObserverFunc(func(context.Context, middleware.Event) {}), 0)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		o.Observe(ctx, middleware.Event{Kind: middleware.Sent, Key: "k"})
	}
}
