package escalate

import "sync/atomic"

// watch is one function to be called when a gate opens, a node of a list.
type watch struct {
	gate       *gate
	f          func()
	spent      atomic.Bool // called or stopped
	list       bool        // still in the gate's list; under gate.mu
	prev, next *watch
}

// watchList is a gate's watches, oldest first. Under gate.mu.
type watchList struct{ head, tail *watch }

func (l *watchList) add(w *watch) {
	w.list, w.prev = true, l.tail
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
}

func (l *watchList) remove(w *watch) {
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.list, w.prev, w.next = false, nil, nil
}

// detach takes all watches out of the list.
func (l *watchList) detach() watchList {
	out := *l
	*l = watchList{}
	for w := out.head; w != nil; w = w.next {
		w.list = false
	}
	return out
}

// call calls every function that has not been stopped. Without gate.mu.
func (l watchList) call() (err error) {
	for w := l.head; w != nil; w = w.next {
		if w.spent.CompareAndSwap(false, true) {
			err = joined(err, guard("Watch", w.f))
		}
	}
	return err
}

// watch adds f, or calls it at once if the gate is resting.
func (g *gate) watch(f func()) (stop func()) {
	w := &watch{gate: g, f: f}
	g.mu.Lock()
	if g.closed.Load() == nil && g.half == nil && g.now() < g.until {
		g.mu.Unlock()
		f()
		return func() {}
	}
	g.watches.add(w)
	g.mu.Unlock()
	return w.stop
}

func (w *watch) stop() {
	if !w.spent.CompareAndSwap(false, true) {
		return
	}
	w.gate.mu.Lock()
	if w.list {
		w.gate.watches.remove(w)
	}
	w.gate.mu.Unlock()
}
