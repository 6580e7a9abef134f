package meteredredis

import (
	"context"
	"errors"
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
	b.line.add(w)
	if now := time.Now(); b.blocked.After(now) && !w.deadline.IsZero() {
		if err := b.tooLate(w, now); err != nil {
			b.line.remove(w)
			b.mu.Unlock()
			return g, err, false
		}
	}
	b.look()
	b.mu.Unlock()

	select {
	case <-w.done:
	case <-ctx.Done():
		b.mu.Lock()
		if w.index >= 0 {
			b.line.remove(w)
			err := b.interrupted(ctx, w)
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

// tooLate returns the error of a call that cannot leave before its deadline, or nil.
func (b *budget) tooLate(w *waiter, now time.Time) error {
	ahead := make([]float64, len(b.limits))
	for _, o := range b.line {
		if o.place.Before(w.place) {
			for i, share := range o.shares {
				ahead[i] += float64(share)
			}
		}
	}
	if at, unit := b.departs(w, ahead, now); at.After(w.deadline) {
		return bucket.NewWaitError(b.key, unit, at.Sub(now), nil)
	}
	return nil
}

// interrupted is the error of a call whose context ended while it waited.
func (b *budget) interrupted(ctx context.Context, w *waiter) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return bucket.Interrupted(ctx, b.key)
	}
	now := time.Now()
	at, unit := b.departs(w, make([]float64, len(b.limits)), now)
	return bucket.NewWaitError(b.key, unit, at.Sub(now), context.Cause(ctx))
}

// evict sends all who wait to the fallback.
func (b *budget) evict() {
	b.mu.Lock()
	out := b.line
	b.line = nil
	for _, w := range out {
		w.index, w.local = -1, true
	}
	b.blocked = time.Time{}
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

// close retires the budget: whoever waits is refused, and the store is told what it has not been told.
func (b *budget) close() {
	b.mu.Lock()
	b.retire()
	out := b.line
	b.line = nil
	for _, w := range out {
		w.index, w.err = -1, ErrClosed
	}
	last := b.batch
	b.batch = nil
	if b.away() != nil {
		last = nil
	}
	if last != nil {
		b.address(last, time.Now())
	}
	b.mu.Unlock()
	for _, w := range out {
		w.finish()
	}
	if last != nil {
		b.limiter.store.decide(b.name, last)
	}
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
