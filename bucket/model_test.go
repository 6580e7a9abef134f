package bucket_test

import (
	"math/big"
	"slices"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// This file is the reference that the property tests hold the limiter against: one key, kept as naively as
// the contracts are worded. Amounts are exact fractions, nothing is computed in closed form: the instant at
// which the head of the queue may go is found by asking "may it go now?" at one instant after another
// (halving the interval, since nothing but time passes between two events). It shares no code and no idea
// with the implementation. Instants are counted from the making of the limiter.

// never is later than every instant a test reaches, and still far from overflow.
const never = time.Duration(1) << 61

// refCall is one call and what became of it.
type refCall struct {
	id       int
	seq      int // its place in line: the arrival it counts from
	cost     bucket.Cost
	arrived  time.Duration
	deadline time.Duration

	waiting, inFlight bool
	admitted          time.Duration
	paid              bucket.Cost // its present cost
	where             []int       // per meter: its charge
	probe             bool
	epoch             int // the hold it was admitted after
	headers           bool
	round             int     // of the ramp, in which its headers came
	reported          [4]bool // by unit
}

// fate is what Acquire said to one call.
type fate struct {
	what string // waiting, granted, probe, doomed, deadline, cancelled, full, oversize, overdue
	at   time.Duration
	wait time.Duration // what the refusal announced, where it did
}

// view is what can be seen of a key.
type view struct {
	queued, inFlight int
	levels           []float64
}

// refKey is the reference for one key.
type refKey struct {
	cfg     bucket.Config
	maxWait time.Duration
	now     time.Duration
	meters  []*refMeter
	calls   map[int]*refCall
	queue   []*refCall // by seq
	order   []*refCall // in the order of admission
	seq     int

	holdUntil time.Duration
	holds     [][2]time.Duration // past and present, never overlapping
	epoch     int                // number of holds so far
	ramping   bool
	rampSize  int // how many may be in flight
	rampRound int

	probe       *refCall
	lastRegular time.Duration

	fates map[int]fate
	views []view

	// servedAtOnce lets every answer arrive the instant its call leaves: the best that can happen.
	servedAtOnce bool
	// tie is set when the contracts do not say which of two is right: events that they do not put in order
	// fell on one instant, an answer came after it was given up.
	tie bool
}

func newRefKey(cfg bucket.Config) *refKey {
	r := &refKey{cfg: cfg, maxWait: cfg.MaxWait, calls: map[int]*refCall{}, fates: map[int]fate{}, lastRegular: -never}
	if r.maxWait == 0 {
		r.maxWait = 30 * time.Second
	}
	headroom := big.NewRat(1, 1)
	if cfg.Headroom != 0 {
		headroom = big.NewRat(int64(cfg.Headroom*10_000+0.5), 10_000)
	}
	for _, l := range cfg.Limits {
		r.meters = append(r.meters, newRefMeter(l, headroom))
	}
	return r
}

func (r *refKey) clone() *refKey {
	c := *r
	c.meters = nil
	for _, m := range r.meters {
		c.meters = append(c.meters, m.clone())
	}
	c.calls, c.queue, c.order, c.probe = map[int]*refCall{}, nil, nil, nil
	for id, call := range r.calls {
		k := *call
		c.calls[id] = &k
	}
	for _, call := range r.queue {
		c.queue = append(c.queue, c.calls[call.id])
	}
	for _, call := range r.order {
		c.order = append(c.order, c.calls[call.id])
	}
	if r.probe != nil {
		c.probe = c.calls[r.probe.id]
	}
	c.holds, c.views = slices.Clone(r.holds), nil
	c.fates = map[int]fate{}
	return &c
}

// free is the time up to t that was not under a hold.
func (r *refKey) free(t time.Duration) time.Duration {
	held := time.Duration(0)
	for _, h := range r.holds {
		if h[0] < t {
			held += min(t, h[1]) - h[0]
		}
	}
	return t - held
}

// overdue says whether c has waited MaxWait at t while nothing was admitted regularly, holds apart.
func (r *refKey) overdue(c *refCall, t time.Duration) bool {
	if r.maxWait < 0 {
		return false
	}
	since := c.arrived
	if r.lastRegular > since {
		since = r.lastRegular
	}
	return r.free(t)-r.free(since) >= r.maxWait
}

func (r *refKey) inFlight() int {
	n := 0
	for _, c := range r.calls {
		if c.inFlight {
			n++
		}
	}
	return n
}

// patience is how long a call without headers keeps its place in a ramp or as a probe.
func (r *refKey) patience() time.Duration {
	if r.maxWait < 0 {
		return 30 * time.Second
	}
	return r.maxWait
}

func (r *refKey) rampFull(t time.Duration) bool {
	if !r.ramping {
		return false
	}
	out := 0
	for _, c := range r.calls {
		if c.inFlight && c.epoch == r.epoch && (c.headers || t < c.admitted+r.patience()) {
			out++
		}
	}
	return out >= r.rampSize
}

func (r *refKey) probeOut(t time.Duration) bool {
	p := r.probe
	return p != nil && p.inFlight && !p.headers && t < p.admitted+r.patience()
}

func (r *refKey) slotFree() bool {
	return r.cfg.MaxInFlight == 0 || r.inFlight() < r.cfg.MaxInFlight
}

func (r *refKey) fits(c bucket.Cost, t time.Duration) bool {
	for _, m := range r.meters {
		if !m.fits(unitsOf(m.limit.Unit, c), t) {
			return false
		}
	}
	return true
}

// mayGo is the whole rule of admission for the head of the queue.
func (r *refKey) mayGo(c *refCall, t time.Duration) (ok, probe bool) {
	if t < r.holdUntil || !r.slotFree() || r.rampFull(t) {
		return false, false
	}
	if r.fits(c.cost, t) {
		return true, false
	}
	if r.cfg.Overdue != bucket.OverdueProbe || !r.overdue(c, t) || r.probeOut(t) {
		return false, false
	}
	for _, m := range r.meters {
		if !m.fitsOverdue(unitsOf(m.limit.Unit, c.cost), t) {
			return false, false
		}
	}
	return true, true
}

// first is the earliest instant in (r.now, until] at which a condition that stays true once true is true.
func (r *refKey) first(until time.Duration, cond func(time.Duration) bool) (time.Duration, bool) {
	if !cond(until) {
		return 0, false
	}
	lo, hi := r.now, until // cond(hi) holds, cond(lo) does not or is of no interest
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if cond(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, true
}

// advance lets time pass up to and including the instant until.
func (r *refKey) advance(until time.Duration) {
	for r.now < until {
		next := until
		admission := never
		if len(r.queue) > 0 {
			head := r.queue[0]
			if t, ok := r.first(until, func(t time.Duration) bool { ok, _ := r.mayGo(head, t); return ok }); ok {
				admission = t
				next = min(next, t)
			}
			if r.cfg.Overdue == bucket.OverdueRefuse {
				if t, ok := r.first(until, func(t time.Duration) bool { return r.expired(head, t) }); ok {
					next = min(next, t)
					r.tie = r.tie || t == admission || t == head.deadline
				}
			}
			if r.holdUntil > r.now {
				next = min(next, r.holdUntil)
			}
		}
		for _, c := range r.queue {
			if r.now < c.deadline && c.deadline < never {
				next = min(next, c.deadline)
				r.tie = r.tie || c.deadline == admission
			}
		}
		r.now = next
		for _, c := range slices.Clone(r.queue) {
			if c.deadline == r.now {
				r.leave(c, fate{what: "deadline", at: r.now})
			}
		}
		r.drain()
	}
}

// expired says whether the head is sent away at t because it is overdue.
func (r *refKey) expired(c *refCall, t time.Duration) bool {
	return r.cfg.Overdue == bucket.OverdueRefuse && t >= r.holdUntil && r.overdue(c, t)
}

// drain lets the heads of the queue go, or sends them away, until one stays.
func (r *refKey) drain() {
	for len(r.queue) > 0 {
		head := r.queue[0]
		ok, probe := r.mayGo(head, r.now)
		if r.ramping && r.now >= r.holdUntil && !r.rampFull(r.now) && !(r.slotFree() && r.fits(head.cost, r.now)) {
			r.ramping = false // something stronger binds
		}
		switch {
		case ok:
			r.admit(head, probe)
		case r.expired(head, r.now):
			r.leave(head, fate{what: "overdue", at: r.now})
		case head.deadline < never && r.bound(head) > head.deadline:
			r.leave(head, fate{what: "doomed", at: r.now, wait: r.bound(head) - r.now})
		default:
			return
		}
	}
}

func (r *refKey) admit(c *refCall, probe bool) {
	c.where = nil
	for _, m := range r.meters {
		c.where = append(c.where, m.charge(unitsOf(m.limit.Unit, c.cost), r.now))
	}
	c.inFlight, c.admitted, c.paid, c.probe, c.epoch = true, r.now, c.cost, probe, r.epoch
	r.order = append(r.order, c)
	what := "granted"
	if probe {
		what = "probe"
		r.probe = c
	} else {
		r.lastRegular = r.now
	}
	if r.servedAtOnce {
		r.headers(c)
	}
	r.leave(c, fate{what: what, at: r.now})
}

// leave takes c out of the queue.
func (r *refKey) leave(c *refCall, f fate) {
	c.waiting = false
	r.queue = slices.DeleteFunc(r.queue, func(o *refCall) bool { return o == c })
	r.fates[c.id] = f
}

// bound is the lower bound of contract 6 for a call that is in the queue, read off the contract:
// hold end; max over limits of (cost ahead + own - level)/rate. For one limit without hold, ramp, slots and
// overdue it is the instant of departure itself, which TestContract06 checks.
func (r *refKey) bound(c *refCall) time.Duration {
	bound := max(r.now, r.holdUntil)
	for _, m := range r.meters {
		u := m.limit.Unit
		need := new(big.Rat)
		for _, o := range r.queue {
			if o.seq < c.seq {
				need.Add(need, rat(unitsOf(u, o.cost)))
			}
		}
		if own := rat(unitsOf(u, c.cost)); own.Cmp(m.capacity) > 0 {
			need.Add(need, m.capacity) // it leaves when all before it are gone and the bucket is full
		} else {
			need.Add(need, own)
		}
		need.Sub(need, m.levelAt(r.now))
		wait := need.Quo(nonNegative(need), m.rate)
		ns := new(big.Int).Quo(new(big.Int).Add(wait.Num(), new(big.Int).Sub(wait.Denom(), big.NewInt(1))), wait.Denom())
		if !ns.IsInt64() || ns.Int64() > int64(never) {
			return never
		}
		bound = max(bound, r.now+time.Duration(ns.Int64()))
	}
	return bound
}

// departure is when a call would leave if nothing happened any more, nobody gave up, and calls were served
// at once: found by letting a copy of the key run.
func (r *refKey) departure(id int, horizon time.Duration) time.Duration {
	c := r.clone()
	c.servedAtOnce = true
	for _, o := range c.queue {
		o.deadline = never
	}
	c.drain()
	c.advance(r.now + horizon)
	if f, ok := c.fates[id]; ok {
		return f.at
	}
	return never
}
