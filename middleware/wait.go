package middleware

import (
	"context"
	"sync/atomic"
	"time"
)

// errGateOpened ends the waits of a turn whose route came to rest meanwhile.
// It never reaches a caller: Escalate reroutes, or returns its own error.
type errGateOpened struct{ key string }

func (e errGateOpened) Error() string {
	return "middleware: the breaker of " + e.key + " opened while waiting"
}

func (e errGateOpened) Local() bool { return true }

// gateContext is a context for a wait under a router: it ends when its parent
// does, or when the gate of the turn's route opens. It costs nothing until
// somebody really waits on it, that is, asks for Done.
type gateContext struct {
	context.Context
	t    *turn
	wait atomic.Pointer[gateWait]
}

type gateWait struct {
	done   chan struct{}
	ended  atomic.Bool
	opened atomic.Bool // it ended because the gate opened
	stops  [2]func()
}

func (c *gateContext) Done() <-chan struct{} {
	if w := c.wait.Load(); w != nil {
		return w.done
	}
	w := &gateWait{done: make(chan struct{})}
	if !c.wait.CompareAndSwap(nil, w) {
		return c.wait.Load().done
	}
	w.stops[0] = c.t.router().Watch(int(c.t.route.Load()), func() { w.end(true) })
	stop := context.AfterFunc(c.Context, func() { w.end(false) })
	w.stops[1] = func() { stop() }
	return w.done
}

func (w *gateWait) end(opened bool) {
	if !w.ended.Swap(true) {
		w.opened.Store(opened)
		close(w.done)
	}
}

// Err is the parent's error, or context.Canceled when the gate opened.
func (c *gateContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if w := c.wait.Load(); w != nil && w.opened.Load() {
		return context.Canceled
	}
	return nil
}

// release ends the watch and reports whether the gate opened during the wait.
// Whoever waited has returned.
func (c *gateContext) release() bool {
	w := c.wait.Load()
	if w == nil {
		return false
	}
	for _, stop := range w.stops {
		stop()
	}
	return w.opened.Load()
}

// resting reports whether the gate of the turn's route has opened under it:
// whoever has waited looks, and goes no further.
func (t *turn) resting() bool {
	if t.router() == nil {
		return false
	}
	t.mu.Lock()
	permit := t.permit
	t.mu.Unlock()
	ok, _ := permit.Admits()
	return !ok
}

// left returns the time to the deadline of ctx, and whether it has one.
func left(ctx context.Context) (time.Duration, bool) {
	d, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	return time.Until(d), true
}

// sleep waits for d on behalf of the turn. It returns the context's error when
// that ends first, and errGateOpened when the route came to rest meanwhile.
func (t *turn) sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		wait := ctx
		var gate *gateContext
		if t.router() != nil && !t.probe.Load() {
			gate = &gateContext{Context: ctx, t: t}
			wait = gate
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-wait.Done():
		}
		if gate != nil {
			gate.release()
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.resting() {
		return errGateOpened{t.quota()}
	}
	return nil
}
