package escalate

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// gate is what stands in front of one route. Its state is one of
//
//	closed     closed != nil; calls pass, the period's breaker counts them
//	open       closed == half == nil; nobody passes before until
//	half-open  half != nil; at most MaxRequests probes are under way
//
// A call belongs to the period it was let through in. What it reports once
// that period is over is history, but for one thing: the hint of a call that was
// given up makes an open gate rest for longer.
type gate struct {
	name, quota string
	set         Settings      // with defaults
	window      time.Duration // of rolling counts, as gobreaker rounds it; else 0
	base        time.Time     // until and deadlines are since this
	tickets     *sync.Pool

	closed atomic.Pointer[period] // written under mu
	broken atomic.Uint64          // failures after the headers

	mu         sync.Mutex
	half       *period
	until      time.Duration // end of the rest
	kind       Kind          // why it opened last
	probes     []probe       // those that hold a slot
	served     uint32        // probes served in this half-open period
	openings   uint64
	watches    watchList
	changes    []change // not yet given to OnStateChange
	delivering bool
}

// probe is a slot of a half-open gate.
type probe struct {
	ticket   *ticket
	seq      uint64
	deadline time.Duration // when the slot is free again by itself
}

type change struct{ from, to gobreaker.State }

func newGate(name, quota string, set Settings, base time.Time, tickets *sync.Pool) *gate {
	if set.Name != "" {
		name = set.Name + "/" + name
	}
	g := &gate{name: name, quota: quota, set: set, base: base, tickets: tickets}
	if set.BucketPeriod > 0 && set.Interval > set.BucketPeriod { // else gobreaker's window is fixed
		g.window = (set.Interval + set.BucketPeriod - 1) / set.BucketPeriod * set.BucketPeriod
	}
	g.closed.Store(g.newClosed())
	return g
}

func (g *gate) now() time.Duration { return time.Since(g.base) }

// allow lets the caller through, or says how long it would have to wait.
func (g *gate) allow() (Permit, error) {
	if p := g.closed.Load(); p != nil {
		return g.pass(p)
	}
	g.mu.Lock()
	if p := g.closed.Load(); p != nil {
		g.mu.Unlock()
		return g.pass(p)
	}
	now := g.now()
	if g.half == nil {
		if now < g.until {
			err := g.refusal(gobreaker.ErrOpenState, g.until-now)
			g.mu.Unlock()
			return Permit{}, err
		}
		g.half, g.probes, g.served = &period{gate: g}, g.probes[:0], 0
		g.changed(gobreaker.StateOpen, gobreaker.StateHalfOpen)
	}
	if free := g.slotIn(now); free > 0 {
		err := g.refusal(gobreaker.ErrTooManyRequests, free)
		g.mu.Unlock()
		return Permit{}, err
	}
	p := g.permit(g.half, nil)
	g.dropOverdue(now)
	g.probes = append(g.probes, probe{p.ticket, p.seq, later(now, g.set.Timeout)})
	g.mu.Unlock()
	if err := g.deliver(); err != nil {
		return Permit{}, joined(err, p.Done(Outcome{Verdict: Neutral}))
	}
	return p, nil
}

// pass lets a call through a closed gate.
func (g *gate) pass(p *period) (Permit, error) {
	done, err := p.breaker.Allow()
	if err != nil { // cannot be: the breaker of a closed gate never trips
		return Permit{}, &Error{Key: g.quota, RetryAfter: g.set.Timeout, Err: err}
	}
	return g.permit(p, done), nil
}

func (g *gate) permit(p *period, done func(error)) Permit {
	t := g.tickets.Get().(*ticket)
	t.done = done
	if g.window > 0 {
		t.at = g.now()
	}
	return Permit{period: p, ticket: t, seq: t.seq.Load()}
}

// refusal is the error of a call that is turned away. Under mu.
func (g *gate) refusal(cause error, rest time.Duration) *Error {
	return &Error{Key: g.quota, Kind: g.kind, RetryAfter: rest, Err: cause}
}

// admits is allow without the taking.
func (g *gate) admits() (bool, time.Duration) {
	if g.closed.Load() != nil {
		return true, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	rest := g.rest(g.now())
	return rest == 0, rest
}

// rest is how long until allow would let somebody through. Under mu.
func (g *gate) rest(now time.Duration) time.Duration {
	switch {
	case g.closed.Load() != nil:
		return 0
	case g.half != nil:
		return g.slotIn(now)
	default:
		return max(0, g.until-now)
	}
}

// slotIn is how long until a half-open gate has a slot by itself. Under mu.
func (g *gate) slotIn(now time.Duration) time.Duration {
	taken, first := uint64(g.served), time.Duration(0)
	for _, p := range g.probes {
		if p.deadline > now {
			taken++
			if first == 0 || p.deadline-now < first {
				first = p.deadline - now
			}
		}
	}
	if taken < uint64(g.set.MaxRequests) {
		return 0
	}
	return first
}

func (g *gate) dropOverdue(now time.Duration) {
	kept := g.probes[:0]
	for _, p := range g.probes {
		if p.deadline > now {
			kept = append(kept, p)
		}
	}
	g.probes = kept
}

func (g *gate) stillAdmits(p Permit) (bool, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if g.half != nil && g.half == p.period {
		for _, s := range g.probes {
			if s.ticket == p.ticket && s.seq == p.seq && s.deadline > now {
				return true, 0
			}
		}
	}
	return g.closed.Load() != nil, g.rest(now)
}

// endCall books a call of a closed period that was not served.
func (g *gate) endCall(p *period, done func(error), at time.Duration, o Outcome) (err error) {
	trip := true
	switch o.Verdict {
	default:
		p.book(done, at, errNeutral)
		return nil
	case QuotaOut:
		p.book(done, at, errNeutral)
	case Failure, Escalated:
		if g.closed.Load() != p {
			break // the counts it belonged to are gone
		}
		trip, err = p.fail(done, at)
		if o.Verdict == Escalated && p.escalations.Add(1) >= g.set.Escalations {
			trip = true
		}
	}
	return joined(err, g.openIf(trip, p, o))
}

// endProbe ends a probe, whether or not it still holds its slot.
func (g *gate) endProbe(p Permit, o Outcome) error {
	switch o.Verdict {
	case Failure, Escalated, QuotaOut, Refused:
		return g.open(p.period, o)
	}
	g.mu.Lock()
	if g.half != p.period {
		g.mu.Unlock()
		return nil
	}
	for i, s := range g.probes {
		if s.ticket == p.ticket && s.seq == p.seq {
			g.probes = append(g.probes[:i], g.probes[i+1:]...)
			break
		}
	}
	if o.Verdict == Success {
		if g.served++; g.served >= g.set.MaxRequests {
			next := g.newClosed()
			p.period.next, g.half = next, nil
			g.closed.Store(next)
			g.changed(gobreaker.StateHalfOpen, gobreaker.StateClosed)
		}
	}
	g.mu.Unlock()
	return g.deliver()
}

// late books a failure after the headers.
func (g *gate) late(p *period, kind Kind) error {
	g.broken.Add(1)
	if p.breaker == nil {
		g.mu.Lock()
		p = p.next // the period that this probe's success began, if it did
		g.mu.Unlock()
	}
	if p == nil || g.closed.Load() != p {
		return nil
	}
	done, err := p.breaker.Allow()
	if err != nil {
		return nil
	}
	trip, err := p.fail(done, g.now())
	if trip {
		err = joined(err, g.open(p, Outcome{Verdict: Failure, Kind: kind}))
	}
	return err
}

func (g *gate) open(p *period, o Outcome) error { return g.openIf(true, p, o) }

// openIf opens the gate on the word of a call of period p, if trip says so and p
// is not over. If the gate is open already, a hint still makes it rest for
// longer: the later of two rests wins.
func (g *gate) openIf(trip bool, p *period, o Outcome) error {
	kind, rest := o.Kind, g.set.Timeout
	if o.Verdict == QuotaOut {
		kind = Quota
	}
	if o.HasHint {
		rest = max(0, o.RetryAfter)
	}
	g.mu.Lock()
	until := later(g.now(), min(rest, g.set.MaxRest))
	closed, from := g.closed.Load(), gobreaker.StateClosed
	if g.half != nil {
		from = gobreaker.StateHalfOpen
	}
	if !trip || closed != p && g.half != p {
		if open := closed == nil && g.half == nil; open && o.HasHint && until > g.until {
			g.until, g.kind = until, kind
		}
		g.mu.Unlock()
		return nil
	}
	g.until, g.kind = until, kind
	g.half = nil
	g.closed.Store(nil)
	g.openings++
	g.changed(from, gobreaker.StateOpen)
	woken := g.watches.detach()
	g.mu.Unlock()
	err := woken.call()
	return joined(err, g.deliver())
}

// changed notes a change of state for OnStateChange. Under mu.
func (g *gate) changed(from, to gobreaker.State) {
	if g.set.OnStateChange != nil {
		g.changes = append(g.changes, change{from, to})
	}
}

// deliver gives the noted changes to OnStateChange, in order and one at a time.
// Called without mu. While one caller delivers, others, and calls from within
// OnStateChange, leave theirs to it.
func (g *gate) deliver() (err error) {
	if g.set.OnStateChange == nil {
		return nil
	}
	for {
		g.mu.Lock()
		if g.delivering || len(g.changes) == 0 {
			g.mu.Unlock()
			return err
		}
		c := g.changes[0]
		g.changes = g.changes[1:]
		g.delivering = true
		g.mu.Unlock()
		err = joined(err, g.deliverOne(c))
	}
}

func (g *gate) deliverOne(c change) error {
	defer func() { // also when the hook ends its goroutine
		g.mu.Lock()
		g.delivering = false
		g.mu.Unlock()
	}()
	return guard("OnStateChange", func() { g.set.OnStateChange(g.name, c.from, c.to) })
}

// state is the state as people see it: an open gate whose rest is over is
// half-open, though no probe has come yet. Under mu.
func (g *gate) state(now time.Duration) gobreaker.State {
	switch {
	case g.closed.Load() != nil:
		return gobreaker.StateClosed
	case g.half != nil || now >= g.until:
		return gobreaker.StateHalfOpen
	default:
		return gobreaker.StateOpen
	}
}

// later is t + d, saturating. Neither is negative.
func later(t, d time.Duration) time.Duration {
	if sum := t + d; sum >= t {
		return sum
	}
	return 1<<63 - 1
}
