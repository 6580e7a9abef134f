package bucket_test

import (
	"slices"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// apply does one step of a schedule at its instant.
func (r *refKey) apply(s step) {
	r.advance(s.at)
	c := r.calls[s.call]
	switch s.verb {
	case arrive:
		r.arrive(s)
	case giveUp:
		if c != nil && c.waiting {
			r.leave(c, fate{what: "cancelled", at: r.now})
		}
	case served:
		if c != nil && c.inFlight && !c.headers {
			r.headers(c)
		}
	case refused:
		if c != nil && c.inFlight {
			if r.now >= r.holdUntil { // under a hold the ramp is still to come
				r.ramping = false
			}
			r.settle(c, bucket.Cost{Requests: c.paid.Requests})
			r.hold(r.now + s.hold)
		}
	case settle:
		if c != nil && c.inFlight {
			r.settle(c, s.cost)
		}
	case unsent:
		if c != nil && c.inFlight {
			r.settle(c, bucket.Cost{})
		}
	case report:
		if c != nil && c.inFlight {
			r.report(c, s.meters)
		}
	case hold:
		r.hold(s.hold)
	case lift:
		r.lift()
	}
	r.drain()
}

func (r *refKey) arrive(s step) {
	c := &refCall{id: s.call, cost: s.cost, arrived: r.now, deadline: never, waiting: true}
	if s.within > 0 {
		c.deadline = r.now + s.within
	}
	r.seq++
	c.seq = r.seq
	if first := r.calls[s.again]; first != nil {
		c.seq = first.seq
		c.arrived = first.arrived
	}
	r.calls[c.id] = c
	if r.cfg.Oversize == bucket.OversizeRefuse {
		for _, m := range r.meters {
			if rat(unitsOf(m.limit.Unit, c.cost)).Cmp(m.capacity) > 0 {
				c.waiting = false
				r.fates[c.id] = fate{what: "oversize", at: r.now}
				return
			}
		}
	}
	if r.cfg.MaxQueue > 0 && len(r.queue) >= r.cfg.MaxQueue {
		c.waiting = false
		r.fates[c.id] = fate{what: "full", at: r.now}
		return
	}
	at, _ := slices.BinarySearchFunc(r.queue, c.seq, func(o *refCall, seq int) int { return o.seq - seq })
	r.queue = slices.Insert(r.queue, at, c)
	r.fates[c.id] = fate{what: "waiting"}
	if c.deadline < never {
		if bound := r.bound(c); bound > c.deadline {
			r.leave(c, fate{what: "doomed", at: r.now, wait: bound - r.now})
		}
	}
}

// headers is the headers of an accepted answer: a probe is over, a round of a ramp may be complete. A round
// is complete when as many as may be in flight have proved themselves: those served in this round, and those
// served in an earlier one whose bodies still come.
func (r *refKey) headers(c *refCall) {
	c.headers = true
	if !r.ramping || c.epoch != r.epoch {
		return
	}
	if r.now >= c.admitted+r.patience() {
		r.tie = true // its place was given back; whether it still proves anything is nobody's law
	}
	c.round = r.rampRound
	proven := 0
	for _, o := range r.calls {
		if o.epoch == r.epoch && o.headers && (o.inFlight || o.round == r.rampRound) {
			proven++
		}
	}
	if proven >= r.rampSize {
		r.rampSize, r.rampRound = 2*r.rampSize, r.rampRound+1
	}
}

// settle ends a call at its true cost.
func (r *refKey) settle(c *refCall, cost bucket.Cost) {
	for i, m := range r.meters {
		u := m.limit.Unit
		switch d := unitsOf(u, cost) - unitsOf(u, c.paid); {
		case d > 0:
			m.charge(d, r.now)
		case d < 0 && !c.reported[u]:
			m.refund(c.where[i], -d, r.now)
		}
	}
	c.paid, c.inFlight = cost, false
}

func (r *refKey) hold(until time.Duration) {
	if until <= r.now {
		return
	}
	if r.holdUntil > r.now {
		r.holdUntil = max(r.holdUntil, until)
		r.holds[len(r.holds)-1][1] = r.holdUntil
		return
	}
	r.holdUntil = until
	r.holds = append(r.holds, [2]time.Duration{r.now, until})
	r.epoch++
	r.ramping, r.rampSize, r.rampRound = true, 1, 1
}

func (r *refKey) lift() {
	if r.holdUntil > r.now {
		r.holdUntil = r.now
		r.holds[len(r.holds)-1][1] = r.now
	}
}

// report applies contract 10 to token buckets.
func (r *refKey) report(c *refCall, meters []bucket.Meter) {
	later := r.order[slices.Index(r.order, c)+1:]
	for _, said := range meters {
		for _, m := range r.meters {
			u := m.limit.Unit
			if u != said.Unit || said.Remaining < 0 {
				continue
			}
			level, newer := rat(said.Remaining), false
			for _, o := range later {
				level.Sub(level, rat(unitsOf(u, o.paid)))
				newer = newer || o.reported[u]
			}
			if level.Cmp(m.levelAt(r.now)) < 0 || !newer {
				m.setLevel(level, r.now)
			}
			c.reported[u] = true
		}
	}
}

// see is what an onlooker sees now.
func (r *refKey) see() view {
	v := view{queued: len(r.queue), inFlight: r.inFlight()}
	for _, m := range r.meters {
		f, _ := m.levelAt(r.now).Float64()
		v.levels = append(v.levels, f)
	}
	return v
}
