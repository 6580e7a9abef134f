package bucket

import (
	"context"
	"errors"
	"time"
)

// A waiter is one call in line.
type waiter struct {
	place    Place
	cost     Cost
	arrived  int64
	since    int64 // when its patience began, on the unheld clock
	deadline int64
	index    int // in the heap; -1 when it is no longer in line

	done  chan struct{} // holds a token once grant or err is set
	grant Grant
	err   error
}

// line is the queue of a key: a binary heap by place. A fresh arrival is the last in line, so it is
// put in without a single swap; one that comes again moves up to where it was.
type line struct {
	heap    []entry
	arrival Place // the last one given out
	last    Place // the latest one that ever was in line
	heavy   int   // how many need more than MaxWait to be refilled, see heavy
	timer   *time.Timer
	alarm   int64 // what the timer is set to
}

// entry holds a copy of the place, so that ordering does not chase pointers.
type entry struct {
	place Place
	w     *waiter
}

func (l *line) len() int { return len(l.heap) }

func (l *line) head() *waiter { return l.heap[0].w }

// first reports whether nobody stands before a call at p.
func (l *line) first(p Place) bool { return len(l.heap) == 0 || !l.heap[0].place.before(p) }

func (l *line) push(w *waiter) {
	l.heap = append(l.heap, entry{w.place, w})
	w.index = len(l.heap) - 1
	l.up(w.index)
	if l.last.before(w.place) {
		l.last = w.place
	}
}

func (l *line) remove(w *waiter) {
	i, last := w.index, len(l.heap)-1
	l.swap(i, last)
	l.heap[last] = entry{}
	l.heap = l.heap[:last]
	w.index = -1
	if i < last {
		l.down(i)
		l.up(i)
	}
	if last == 0 && cap(l.heap) > 1024 {
		l.heap = nil // a crowd has left
	}
}

func (l *line) swap(i, j int) {
	h := l.heap
	h[i], h[j] = h[j], h[i]
	h[i].w.index, h[j].w.index = i, j
}

func (l *line) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !l.heap[i].place.before(l.heap[parent].place) {
			return
		}
		l.swap(i, parent)
		i = parent
	}
}

func (l *line) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(l.heap) {
			return
		}
		if r := child + 1; r < len(l.heap) && l.heap[r].place.before(l.heap[child].place) {
			child = r
		}
		if !l.heap[child].place.before(l.heap[i].place) {
			return
		}
		l.swap(i, child)
		i = child
	}
}

// before calls f for everybody in line before p. In a heap they are a tree at the root.
func (l *line) before(p Place, f func(*waiter)) { l.visit(0, p, f) }

func (l *line) visit(i int, p Place, f func(*waiter)) {
	if i >= len(l.heap) || !l.heap[i].place.before(p) {
		return
	}
	f(l.heap[i].w)
	l.visit(2*i+1, p, f)
	l.visit(2*i+2, p, f)
}

// enqueue puts w in line.
func (a *account) enqueue(w *waiter) {
	a.line.push(w)
	a.tally(w.cost, +1)
}

// dequeue takes w out, wherever it stands.
func (a *account) dequeue(w *waiter) {
	a.line.remove(w)
	a.tally(w.cost, -1)
}

// tally adds or takes a call in the sums of what waits.
func (a *account) tally(cost Cost, sign int64) {
	for i := range a.meters {
		m := &a.meters[i]
		own := m.share(cost)
		m.queued += sign * own
		m.capped += sign * min(own, m.capacity())
	}
	if a.heavy(cost) {
		a.line.heavy += int(sign)
	}
}

// moveUp advances the line after something has changed. While nobody waits it costs nothing, not
// even a look at the clock.
func (a *account) moveUp() {
	if a.line.len() > 0 {
		a.advanceNow()
	}
}

func (a *account) advanceNow() { a.advance(a.tick(a.local.now())) }

// advance lets out whoever may leave at now, refuses whoever is found doomed, and sets the timer
// for the head that stays.
func (a *account) advance(now int64) {
	for a.line.len() > 0 {
		w := a.line.head()
		way, at := a.look(now, w.cost, w.since)
		switch way {
		case leaves, probes:
			a.dequeue(w)
			c := a.admit(now, w.cost, way)
			w.grant = Grant{c, c.id, w.place, now - w.arrived}
			if way == probes {
				w.grant.waited = ^w.grant.waited
			}
		case expires:
			w.err = a.tooLate(now, w.cost, w.place, w.since, ErrOverdue)
			a.dequeue(w)
		case stays:
			if w.deadline == never || !a.doomed(now, w) {
				a.wakeAt(at)
				return
			}
			w.err = a.tooLate(now, w.cost, w.place, w.since, nil)
			a.dequeue(w)
		}
		w.done <- struct{}{}
	}
	a.wakeAt(never)
}

// wakeAt sets the one timer of the line, or stops it.
func (a *account) wakeAt(at int64) {
	l := &a.line
	switch {
	case at == never:
		if l.alarm != never && l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(a.until(at), a.wake)
	case at != l.alarm:
		l.timer.Reset(a.until(at))
	}
	l.alarm = at
}

func (a *account) until(at int64) time.Duration {
	return time.Duration(max(at-a.local.now(), 0))
}

// wake is what the timer calls.
func (a *account) wake() {
	a.mu.Lock()
	if a.line.len() > 0 {
		now := a.tick(a.local.now())
		if now >= a.line.alarm {
			a.line.alarm = never // it has rung
		}
		a.advance(now)
	}
	a.mu.Unlock()
}

// wait stands in line until the call may leave. The context's methods are not ours, so its deadline
// is asked for without a lock, and only by those who need it; what the call found a moment ago may
// be otherwise now.
func (l *Local) wait(ctx context.Context, key string, cost Cost, place Place, returns bool) (Grant, error) {
	deadline := never
	if d, ok := ctx.Deadline(); ok {
		deadline = l.instant(d)
	}
	a, err := l.open(key)
	if err != nil {
		return Grant{}, err
	}
	now := a.tick(l.now())
	if c := a.leave(now, cost, place); c != nil {
		g := Grant{c, c.id, place, 0}
		a.mu.Unlock()
		return g, nil
	}
	w := &waiter{place: place, cost: cost, arrived: now, deadline: deadline}
	err = a.stand(now, w, returns)
	a.mu.Unlock()
	if err != nil {
		return Grant{}, err
	}
	return a.await(ctx, w)
}

// stand puts w in line or refuses it. A call that returns had its place before.
func (a *account) stand(now int64, w *waiter, returns bool) error {
	if a.local.refuseOversize {
		if err := a.oversize(w.cost); err != nil {
			return err
		}
	}
	w.since = a.hold.unheld(now)
	if returns && a.line.len() > 0 {
		// It must not keep those behind it waiting for another MaxWait.
		w.since = min(w.since, a.line.head().since)
	}
	if w.deadline != never && a.doomed(now, w) {
		return a.tooLate(now, w.cost, w.place, w.since, nil)
	}
	if most := a.local.maxQueue; most > 0 && a.line.len() >= most {
		return ErrQueueFull
	}
	w.done = make(chan struct{}, 1)
	a.enqueue(w)
	if w.index == 0 {
		a.advance(now)
	}
	return nil
}

// await waits for w to be let out, for its context to end, or for its refusal.
func (a *account) await(ctx context.Context, w *waiter) (Grant, error) {
	select {
	case <-w.done:
		return w.grant, w.err
	case <-ctx.Done():
	}
	err := interrupted(ctx, a.key)
	a.mu.Lock()
	if w.index >= 0 {
		now := a.tick(a.local.now())
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// As if it stood first: a crowd whose time is up must not count those before each.
			err = a.tooLate(now, w.cost, Place{at: dawn}, w.since, context.Cause(ctx))
		}
		head := w.index == 0
		a.dequeue(w)
		if head {
			a.advance(now)
		}
		a.mu.Unlock()
		return Grant{}, err
	}
	a.mu.Unlock()
	if w.err != nil {
		return Grant{}, w.err
	}
	w.grant.Cancel() // it was let out in the same moment; whoever is cancelled takes nothing
	return Grant{}, err
}
