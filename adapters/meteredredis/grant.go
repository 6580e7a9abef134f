package meteredredis

import (
	"strconv"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A call is an open grant.
type call struct {
	id      uint64
	cost    bucket.Cost
	left    time.Time // on this process's clock
	at      int64     // on the server's
	number  int64     // of its admission
	charged []int64   // on each limit, itself included
	extra   []int64
	stated  uint64 // limits whose level its answer has stated
	ramp    int64  // that it belongs to
	probe   bool
	served  bool
}

// open notes an admission, the i-th of those that the store let go at once. Called with mu held.
func (b *budget) open(w *waiter, r reply, i int, charged []int64, now time.Time) *call {
	b.serial++
	c := &call{
		id: b.serial, cost: w.cost, left: now, at: r.at, number: r.number + int64(i) + 1, ramp: r.ramp, probe: r.probe == 1,
		charged: append([]int64(nil), charged...), extra: make([]int64, len(b.limits)),
	}
	for k := range c.extra {
		c.extra[k] = r.limits[k].extra
	}
	b.calls[c.id] = c
	return c
}

// say adds an operation to what is told to the store next, within the given time; without one the store is asked
// all the same.
func (b *budget) say(within time.Duration, words ...string) {
	due := time.Now().Add(within)
	if b.batch == nil {
		b.batch = &batch{due: due}
	}
	if due.Before(b.batch.due) {
		b.batch.due = due
	}
	if len(words) > 0 {
		b.batch.ops = append(b.batch.ops, words)
	}
}

// refund says that cost comes back to a limit. What comes back to a bucket is one sum, as long as no report comes
// in between: a level that a server has stated knows of what came back before. Called with mu held.
func (b *budget) refund(within time.Duration, i int, cost, at int64) {
	limit := whole(int64(i + 1))
	if b.batch != nil && b.limits[i].Shape == bucket.TokenBucket {
		for k := len(b.batch.ops) - 1; k >= 0 && b.batch.ops[k][0] != opReport; k-- {
			if op := b.batch.ops[k]; op[0] == opRefund && op[1] == limit {
				if had, err := strconv.ParseInt(op[2], 10, 64); err == nil && had < maxCost {
					op[2] = whole(had + cost)
					b.say(within)
					return
				}
			}
		}
	}
	b.say(within, opRefund, limit, whole(cost), whole(at))
}

// end closes c, which came to cost final; unsent says that nothing of it was sent. Called with mu held.
func (b *budget) end(c *call, final bucket.Cost, unsent bool) {
	delete(b.calls, c.id)
	within := ride
	if unsent {
		within = 0 // somebody may be waiting for it
	}
	for i := range b.limits {
		l := &b.limits[i]
		was, is := c.cost.Of(l.Unit), final.Of(l.Unit)
		switch {
		case is > was:
			b.say(within, opExtra, whole(int64(i+1)), whole(is-was))
		case is < was && c.stated>>i&1 == 0:
			b.refund(within, i, was-is, c.at)
		}
	}
	b.answered(c)
	if c.ramp != 0 {
		b.say(0, opLeft, whole(c.ramp))
	}
	b.changed = time.Now()
}

// answered ends a probe.
func (b *budget) answered(c *call) {
	if c.probe {
		c.probe = false
		b.say(0, opProbed)
	}
}

// with does something to an open grant; a grant that has ended is left alone.
func (b *budget) with(id uint64, do func(*call)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.calls[id]; c != nil {
		do(c)
		b.look()
	}
}

var _ bucket.Account = (*budget)(nil)

// Served says that the headers of an accepted answer are here.
func (b *budget) Served(id uint64) {
	b.with(id, func(c *call) {
		if c.served {
			return
		}
		c.served = true
		b.answered(c)
		if c.ramp != 0 {
			b.say(0, opServed, whole(c.ramp))
		}
	})
}

// Refused says that the server refused the call: its tokens come back, the key is held for all.
func (b *budget) Refused(id uint64, hold time.Duration) {
	known := false
	b.with(id, func(c *call) {
		known = true
		b.end(c, bucket.Cost{Requests: c.cost.Requests}, false)
		b.hold(hold)
	})
	if known {
		b.holdFallback(hold)
	}
}

// holdFallback holds the key where calls are let go while the store is away.
func (b *budget) holdFallback(d time.Duration) {
	if o := b.away(); o != nil && o.local != nil && d > 0 {
		o.local.Hold(b.key, time.Now().Add(d))
	}
}

// hold holds the key, here at once and everywhere as soon as the store knows. Called with mu held.
func (b *budget) hold(d time.Duration) {
	d = max(d, 0)
	b.say(0, opHold, whole(d.Microseconds()))
	if until := time.Now().Add(d); until.After(b.known.hold) {
		b.known.hold = until
	}
}

// Report says what the server states as left.
func (b *budget) Report(id uint64, meters []bucket.Meter) {
	b.with(id, func(c *call) {
		for i := range meters {
			m := &meters[i]
			k := b.match(m)
			if k < 0 {
				continue
			}
			literal := b.limiter.config.Headroom == 1 && m.Limit <= b.limits[k].Amount
			b.say(ride, opReport, whole(int64(k+1)), whole(c.number), whole(c.charged[k]), whole(c.extra[k]),
				whole(m.Remaining), truth(literal))
			c.stated |= 1 << k
		}
	})
}

// match finds the limit that a meter speaks of, as bucket.Meter says; -1 if there is none.
func (b *budget) match(m *bucket.Meter) int {
	if m.Remaining < 0 {
		return -1
	}
	only, same, n, exact := -1, -1, 0, 0
	for i := range b.limits {
		l := &b.limits[i]
		if l.Unit != m.Unit {
			continue
		}
		only = i
		n++
		if m.Per > 0 && l.Per == m.Per || m.Per <= 0 && l.Amount == m.Limit {
			same = i
			exact++
		}
	}
	switch {
	case n == 1:
		return only
	case exact == 1:
		return same
	}
	return -1
}

// Settle says what the call really cost.
func (b *budget) Settle(id uint64, cost bucket.Cost) {
	cost = clamped(cost)
	b.with(id, func(c *call) { b.end(c, cost, false) })
}

// Cancel says that it was never sent.
func (b *budget) Cancel(id uint64) {
	b.with(id, func(c *call) { b.end(c, bucket.Cost{}, true) })
}
