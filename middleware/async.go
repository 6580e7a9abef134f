package middleware

import (
	"context"
	"sync/atomic"
)

// asyncSize is how many events wait for the observer of Async where its size is
// not positive.
const asyncSize = 1024

// Async returns an Observer that tells o, on a goroutine of its own and in the
// order in which it was told itself: an o that is slow, blocks or panics neither
// delays a call nor fails it. Up to size events wait, 1,024 if size is not
// positive; what finds no room is dropped, and counted. A panic of o
// loses that event alone, and is counted.
//
// The goroutine runs while there is something to tell, so nothing need be closed;
// Flush waits for what is left at the end of a program.
//
// The context is that of the call, which may have ended when o is told. What
// must happen while it lasts, as an event on its span must, needs an Observer that
// is quick instead: that of package meteredotel is, and its Config.Next may be
// one of Async.
func Async(o Observer, size int) *AsyncObserver {
	if size <= 0 {
		size = asyncSize
	}
	return &AsyncObserver{to: o, waiting: make(chan told, size)}
}

// AsyncObserver is what Async returns. It is safe for concurrent use.
type AsyncObserver struct {
	to       Observer
	waiting  chan told
	running  atomic.Bool // a goroutine is at it
	dropped  atomic.Int64
	panicked atomic.Int64
}

// told is an event on its way, or with reached a mark that Flush has set.
type told struct {
	ctx     context.Context
	event   Event
	reached chan<- struct{}
}

// Observe leaves e for the observer, or drops it. It never waits.
func (a *AsyncObserver) Observe(ctx context.Context, e Event) {
	if a.to == nil {
		return
	}
	select {
	case a.waiting <- told{ctx: ctx, event: e}:
		a.start()
	default:
		a.dropped.Add(1)
	}
}

// Dropped returns how many events found no room.
func (a *AsyncObserver) Dropped() int64 { return a.dropped.Load() }

// Panicked returns how many events the observer panicked at. Nothing else tells of
// it: what is above 0 is a fault of the observer's, to be looked at.
func (a *AsyncObserver) Panicked() int64 { return a.panicked.Load() }

// Flush returns when the observer has been told all that was left for it before,
// or with ctx's cause when that is done first.
func (a *AsyncObserver) Flush(ctx context.Context) error {
	reached := make(chan struct{})
	select {
	case a.waiting <- told{reached: reached}:
		a.start()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *AsyncObserver) start() {
	if a.running.CompareAndSwap(false, true) {
		go a.run()
	}
}

// run tells the observer what waits, and ends when nothing does. What comes in
// while it ends starts it anew.
func (a *AsyncObserver) run() {
	ended := false
	defer func() {
		if !ended { // the observer called runtime.Goexit
			go a.run()
		}
	}()
	for {
		select {
		case t := <-a.waiting:
			a.tell(t)
		default:
			a.running.Store(false)
			if len(a.waiting) == 0 || !a.running.CompareAndSwap(false, true) {
				ended = true
				return
			}
		}
	}
}

func (a *AsyncObserver) tell(t told) {
	if t.reached != nil {
		close(t.reached)
		return
	}
	ok := false
	defer func() {
		if !ok {
			_ = recover()
			a.panicked.Add(1)
		}
	}()
	a.to.Observe(t.ctx, t.event)
	ok = true
}
