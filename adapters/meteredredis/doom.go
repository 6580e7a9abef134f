package meteredredis

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

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

// doomed takes those out of line who cannot leave before their deadline: no refund is assumed, and nobody else
// either. Called with mu held, when the store has just spoken.
func (b *budget) doomed(now time.Time) []*waiter {
	limited := 0
	for _, w := range b.line {
		if !w.deadline.IsZero() {
			limited++
		}
	}
	if limited == 0 {
		return nil
	}
	ahead := make([]float64, len(b.limits))
	order := slices.Clone(b.line)
	slices.SortFunc(order, func(x, y *waiter) int {
		if x.place.Before(y.place) {
			return -1
		}
		return 1
	})
	var out []*waiter
	for _, w := range order {
		at, unit := b.departs(w, ahead, now)
		if !w.deadline.IsZero() && at.After(w.deadline) {
			b.withdraw(w)
			w.err = bucket.NewWaitError(b.key, unit, at.Sub(now), nil)
			out = append(out, w)
			continue
		}
		for i, share := range w.shares {
			ahead[i] += float64(share)
		}
	}
	return out
}

// departs is a lower bound of when w leaves, and the unit of the limit that binds; Requests for a hold.
func (b *budget) departs(w *waiter, ahead []float64, now time.Time) (time.Time, bucket.Unit) {
	at, unit := now, bucket.Requests
	if b.known.hold.After(at) {
		at = b.known.hold
	}
	for i := range b.limits {
		l := &b.limits[i]
		if l.Shape != bucket.TokenBucket {
			continue // what comes back when is known to the store alone, which has said it of the head
		}
		need := ahead[i] + float64(min(w.shares[i], l.capacity)) - b.level(i, now)
		if need <= 0 {
			continue
		}
		if t := now.Add(span(need / l.rate)); t.After(at) {
			at, unit = t, l.Unit
		}
	}
	if h := b.window.head; h != nil && h.index >= 0 && !w.place.Before(h.place) && b.window.until.After(at) {
		at, unit = b.window.until, b.window.unit // nobody leaves before those ahead
	}
	if patience := b.limiter.config.MaxWait; patience > 0 {
		if t := w.arrived.Add(patience); at.After(t) && t.After(b.known.hold) {
			if at = t; at.Before(now) { // overdue, it may leave all the same
				at = now
			}
		}
	}
	return at, unit
}

// binding is the unit of the limit that keeps w back.
func (b *budget) binding(w *waiter, now time.Time) bucket.Unit {
	_, unit := b.departs(w, make([]float64, len(b.limits)), now)
	return unit
}
