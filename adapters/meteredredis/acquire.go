package meteredredis

import (
	"context"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// away returns the outage that keeps this budget from the store, or nil.
func (b *budget) away() *outage {
	if o := b.limiter.down.Load(); o != nil {
		return o
	}
	return b.down.Load()
}

// acquire waits for w's turn, at the store or, while that is away, at the fallback. again says that one of
// them has taken over from the other, or that the budget was forgotten.
func (b *budget) acquire(ctx context.Context, w *waiter) (g bucket.Grant, err error, again bool) {
	b.mu.Lock()
	if b.gone {
		b.mu.Unlock()
		return g, nil, true
	}
	if err := b.admissible(w); err != nil {
		b.mu.Unlock()
		return g, err, false
	}
	if o := b.away(); o != nil {
		b.changed = time.Now()
		b.mu.Unlock()
		return o.acquire(ctx, b, w)
	}
	if now := time.Now(); b.blocked.After(now) && !w.deadline.IsZero() {
		if err := b.tooLate(w, now); err != nil {
			b.mu.Unlock()
			return g, err, false
		}
	}
	if b.line.add(w); w.index == 0 {
		b.blocked = time.Time{} // that was said to another head
	}
	b.look()
	b.mu.Unlock()

	select {
	case <-w.done:
	case <-ctx.Done():
		b.mu.Lock()
		if w.index >= 0 {
			err := b.interrupted(ctx, w)
			b.withdraw(w)
			b.look()
			b.mu.Unlock()
			return g, err, false
		}
		b.mu.Unlock()
		<-w.done // somebody has just decided
		w.grant.Cancel()
		if w.err == nil || w.local {
			w.err = bucket.Interrupted(ctx, b.key)
		}
		return g, w.err, false
	}
	if w.local {
		w.local = false
		return g, nil, true
	}
	return w.grant, w.err, false
}

// admissible gives w its place and shares, and refuses what can never be admitted. Called with mu held.
func (b *budget) admissible(w *waiter) error {
	c := &b.limiter.config
	if w.place == (bucket.Place{}) {
		b.place = max(b.place+1, int64(time.Since(b.limiter.start)))
		w.place = bucket.NewPlace(b.place)
	}
	w.shares = make([]int64, len(b.limits))
	for i := range b.limits {
		l := &b.limits[i]
		w.shares[i] = w.cost.Of(l.Unit)
		if c.Oversize == bucket.OversizeRefuse && w.shares[i] > l.capacity {
			return &bucket.OversizeError{Key: b.key, Unit: l.Unit, Cost: w.shares[i], Capacity: l.capacity}
		}
	}
	if c.MaxQueue > 0 && len(b.line) >= c.MaxQueue {
		return bucket.ErrQueueFull
	}
	return nil
}

// withdraw takes w out of line, who is not let go. If it is the head that the store has told to wait, the next one
// asks at once, and the store forgets its claim. Called with mu held.
func (b *budget) withdraw(w *waiter) {
	head := w.index == 0
	b.line.remove(w)
	if head && !b.blocked.IsZero() {
		b.blocked = time.Time{}
		b.say(0)
	}
}

// evict sends all who wait to the fallback.
func (b *budget) evict() {
	b.mu.Lock()
	out := b.line
	b.line = nil
	for _, w := range out {
		w.index, w.local = -1, true
	}
	b.blocked, b.window = time.Time{}, window{}
	b.mu.Unlock()
	for _, w := range out {
		w.finish()
	}
}

// idle reports whether nothing of the budget is but in the store. Called with mu held.
func (b *budget) idle() bool {
	return len(b.line) == 0 && len(b.calls) == 0 && b.batch == nil && !b.calling && !b.owes() && b.away() == nil
}

// retire ends the use of a budget. Called with mu held.
func (b *budget) retire() {
	b.gone = true
	if b.parked {
		b.parked = false
		b.wake <- struct{}{}
	}
	if b.timer != nil {
		b.timer.Stop()
	}
}

// close retires the budget: whoever waits is refused, and the store is told what it has not been told, if tell.
func (b *budget) close(tell bool) error {
	b.mu.Lock()
	if !b.blocked.IsZero() {
		b.say(0) // the head's claim is void
	}
	b.retire()
	out := b.line
	b.line = nil
	for _, w := range out {
		w.index, w.err = -1, ErrClosed
	}
	var last *batch
	if !b.calling { // else it goes with the next call
		last, b.batch = b.batch, nil
	}
	if b.away() != nil || !tell {
		last = nil
	}
	if last != nil {
		b.address(last, time.Now())
	}
	b.mu.Unlock()
	for _, w := range out {
		w.finish()
	}
	if last == nil {
		return nil
	}
	_, err := b.limiter.store.decide(b.name, last)
	return err
}

func (b *budget) stats(now time.Time) bucket.KeyStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := bucket.KeyStats{
		Key: b.key, Queued: len(b.line), InFlight: len(b.calls),
		HeldFor: max(b.known.hold.Sub(now), 0),
		Levels:  make([]bucket.Level, len(b.limits)),
	}
	for _, c := range b.calls {
		s.OldestSlot = max(s.OldestSlot, now.Sub(c.left))
	}
	for i := range b.limits {
		l := &b.limits[i]
		s.Levels[i] = bucket.Level{Limit: l.Limit, Available: b.level(i, now), Capacity: float64(l.capacity)}
	}
	return s
}
