package bucket

import (
	"context"
	"maps"
	"math"
	"time"
)

// Limiter grants calls their budget. Local is the one of this package; others may share a budget
// between processes and make their grants with NewGrant.
type Limiter interface {
	// Acquire waits until a call of this cost may be sent on key, and takes its cost. An error
	// means that nothing was taken: the call must not be sent.
	Acquire(ctx context.Context, key string, cost Cost) (Grant, error)
}

// Local is a Limiter within this process: one bucket for each key, made when the key is first
// seen. Its methods are safe for concurrent use. It starts no goroutine and needs no closing; a
// timer exists only for a key that somebody waits on. Make one with New.
type Local struct {
	base time.Time // of the monotonic clock
	keys keys

	meters      []meter // of Config.Limits; never charged, only copied
	limitsFor   func(string) []Limit
	headroom    int64
	maxWait     int64 // negative: never overdue
	answerTime  int64 // how long a ramp waits for one call's answer
	maxQueue    int
	maxInFlight int
	maxKeys     int

	learned map[string]Learned // of Config

	adaptive       bool
	refuseOverdue  bool
	refuseOversize bool
}

var _ Limiter = (*Local)(nil)

// New returns a Local with no keys, or Validate's error.
func New(c Config) (*Local, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := &Local{
		base:           time.Now(),
		limitsFor:      c.LimitsFor,
		headroom:       c.headroom(),
		maxWait:        int64(c.MaxWait),
		maxQueue:       c.MaxQueue,
		maxInFlight:    c.MaxInFlight,
		maxKeys:        c.MaxKeys,
		adaptive:       c.Adaptive == AdaptiveOn,
		refuseOverdue:  c.Overdue == OverdueRefuse,
		refuseOversize: c.Oversize == OversizeRefuse,
	}
	if l.maxWait == 0 {
		l.maxWait = int64(defaultMaxWait)
	}
	if l.answerTime = l.maxWait; l.maxWait < 0 {
		l.answerTime = int64(defaultMaxWait)
	}
	if l.maxKeys == 0 {
		l.maxKeys = defaultMaxKeys
	}
	l.meters = l.newMeters(c.Limits)
	if l.adaptive {
		l.learned = maps.Clone(c.Learned)
	}
	l.keys.init()
	return l, nil
}

// newMeters returns full meters for the limits that are not off.
func (l *Local) newMeters(limits []Limit) []meter {
	meters := make([]meter, 0, len(limits))
	for _, limit := range limits {
		if limit.Amount > 0 {
			meters = append(meters, newMeter(limit, l.headroom))
		}
	}
	return meters
}

// Acquire waits in line on key until the call may be sent, and takes its cost from all limits at
// once. Whoever need not wait allocates nothing.
//
// It refuses at once, without waiting:
//   - with a *WaitError when the call could not leave before ctx's deadline (it may also do so
//     later, when a call in line turns out to be too late);
//   - with an *OversizeError under OversizeRefuse, with ErrQueueFull when MaxQueue are waiting;
//   - with ctx's error when ctx has ended, and with an error that says so when the cost is
//     negative or LimitsFor gave an invalid limit.
//
// When ctx ends during the wait, the error matches ctx.Err and context.Cause; for a deadline it is
// a *WaitError. When the wait becomes overdue under OverdueRefuse, it is one that matches ErrOverdue.
//
// Every grant must be ended; see Grant.
func (l *Local) Acquire(ctx context.Context, key string, cost Cost) (Grant, error) {
	if ctx.Err() != nil {
		return Grant{}, interrupted(ctx, key)
	}
	if cost.negative() {
		return Grant{}, cost.validate()
	}
	cost = cost.clamped()
	place := PlaceFrom(ctx)
	returns := place != Place{}
	a, err := l.open(key)
	if err != nil {
		return Grant{}, err
	}
	now := a.tick(l.now())
	if !returns {
		place = a.arrival(now)
	}
	c := a.leave(now, cost, place)
	if c == nil {
		a.mu.Unlock()
		return l.wait(ctx, key, cost, place, returns)
	}
	id := c.id
	a.mu.Unlock()
	return Grant{c, id, place, 0}, nil
}

// TakeAt takes cost from key at time t, or says how long after t to come back: the explicit-time
// companion of Acquire, for schedulers, simulations and tests. It never waits and never queues.
//
// A wait of 0 means taken: the grant must be ended as any other. A wait above 0 means that nothing
// was taken and that no sooner attempt could succeed, unless something is refunded, lifted or
// reported first. It is a lower bound: calls waiting in Acquire go first, and others may. Where
// only a slot is missing, under MaxInFlight or the ramp after a hold, no time can be told and the
// wait is a nanosecond; use Acquire to wait for slots. A cost that can never be taken (negative,
// or too big under OversizeRefuse) waits for the largest Duration there is.
//
// A key's clock never runs backwards: a t before its latest instant counts as that instant. So a
// program that uses Acquire too should not name times that are still to come.
func (l *Local) TakeAt(t time.Time, key string, cost Cost) (Grant, time.Duration) {
	if cost.negative() {
		return Grant{}, math.MaxInt64
	}
	cost = cost.clamped()
	a, err := l.open(key)
	if err != nil {
		return Grant{}, math.MaxInt64
	}
	defer a.mu.Unlock()
	if l.refuseOversize && a.oversize(cost) != nil {
		return Grant{}, math.MaxInt64
	}
	asked := l.instant(t)
	now := a.tick(asked)
	place := a.arrival(now)
	if c := a.leave(now, cost, place); c != nil {
		return Grant{c, c.id, place, 0}, 0
	}
	// Patience that begins at never is never at its end: nobody is overdue here.
	at, _ := a.departs(now, cost, place, never)
	if a.pacer != nil {
		at = max(at, a.pacer.ready(a, now, cost))
	}
	return Grant{}, time.Duration(max(at-asked, 1))
}

// leave lets a call go at once, if it stands before all who wait and look lets it.
func (a *account) leave(now int64, cost Cost, place Place) *call {
	if a.line.len() > 0 && !a.line.first(place) {
		return nil
	}
	if a.local.refuseOversize && a.oversize(cost) != nil {
		return nil
	}
	if a.clear(now) {
		if !a.fits(now, cost) {
			return nil
		}
	} else if way, _ := a.look(now, cost, never); way != leaves {
		return nil
	}
	return a.admit(now, cost, leaves)
}

// oversize returns an *OversizeError if cost is above the capacity of a limit.
func (a *account) oversize(cost Cost) error {
	for i := range a.meters {
		m := &a.meters[i]
		if own := m.share(cost); own > m.capacity() {
			return &OversizeError{Key: a.key, Unit: m.limit.Unit, Cost: own, Capacity: m.capacity()}
		}
	}
	return nil
}

// Hold lets nobody be admitted on key before until; the later of two holds wins, and a time that
// has passed holds nobody. The release is a ramp: one call leaves, and each time all of a round
// have been Served twice as many may be in flight, until a limit or MaxInFlight is what keeps the
// next one back, or one is refused.
func (l *Local) Hold(key string, until time.Time) {
	a, err := l.open(key)
	if err != nil {
		return
	}
	now := a.tick(l.now())
	a.holdUntil(now, l.instant(until))
	a.advance(now)
	a.mu.Unlock()
}

// Lift ends the hold of key now; the ramp that follows a hold follows this one too.
func (l *Local) Lift(key string) {
	a := l.peek(key)
	if a == nil {
		return
	}
	now := a.tick(l.now())
	a.hold.lift(now)
	a.advance(now)
	a.mu.Unlock()
}
