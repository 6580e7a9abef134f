package escalate

import (
	"sync/atomic"
	"time"
)

// Verdict is how a call that a gate let through ended on that route.
type Verdict uint8

const (
	// Success: the headers of an answer are here, and the route is well: it
	// accepted the call, or refused it for what is wrong with the call (most 4xx).
	// It clears the consecutive
	// failures, whatever refusals the ladder absorbed on the way; a probe's
	// closes the gate.
	Success Verdict = iota
	// Neutral: the end says nothing about the route: the caller cancelled, a
	// local refusal or wait, a panic of ours, a turn that left because the gate
	// opened. It counts nothing and clears nothing; a probe's hands its turn to
	// the next call.
	Neutral
	// Failure: the route failed the call: a Server or Transport fault, a per-try
	// timeout, or a ladder that was exhausted with no other route to go to. It
	// counts once in ReadyToTrip, however many sends it took; a probe's opens the
	// gate again.
	Failure
	// Escalated: the call goes to another route. It counts once in ReadyToTrip,
	// as Failure does, and Settings.Escalations of them in a row open the gate;
	// a probe's always does.
	Escalated
	// QuotaOut: the route's quota is spent. It opens the gate without counting.
	QuotaOut
	// Refused: the server refused (429, 503, 529) and the ladder keeps the call
	// on this route. While the gate is closed that is Neutral; a probe's opens
	// the gate again, since it was let through to find out just this.
	Refused
)

// String returns "success", "neutral", "failure", "escalated", "quota_out" or
// "refused".
func (v Verdict) String() string {
	names := [...]string{"success", "neutral", "failure", "escalated", "quota_out", "refused"}
	if int(v) < len(names) {
		return names[v]
	}
	return "verdict(?)"
}

// Outcome is what a call reports to the gate that let it through. The zero
// Outcome is a Success.
type Outcome struct {
	Verdict Verdict
	// Kind is why, for errors of calls that the gate then turns away. QuotaOut
	// is Quota whatever it says.
	Kind Kind
	// RetryAfter is the server's hint, if HasHint. When the outcome opens the
	// gate, the gate rests for it, else for Settings.Timeout. Negative is 0.
	RetryAfter time.Duration
	HasHint    bool
}

// Permit is one call's leave to use a route, from Router.Allow. It is a value to
// be passed on freely; the zero Permit belongs to no gate and does nothing. Its
// methods are safe for concurrent use.
type Permit struct {
	period *period
	ticket *ticket
	seq    uint64
}

// ticket is the part of a permit that knows whether it is spent. Tickets are
// used again: a permit holds the seq that its ticket had when it was made.
type ticket struct {
	seq  atomic.Uint64
	done func(error)   // gobreaker's; nil for a probe
	at   time.Duration // when it was let through; rolling windows only
}

// Done tells the gate how the call ended: at the headers of its final answer on
// this route, and on every other path out, panics included. The first call
// counts, further ones do nothing.
//
// The outcome is booked whatever Done returns: nil, or the *PanicError of a hook
// of the user's that the outcome set off.
func (p Permit) Done(o Outcome) error {
	if p.ticket == nil || !p.ticket.seq.CompareAndSwap(p.seq, p.seq+1) {
		return nil
	}
	g, t := p.period.gate, p.ticket
	if p.period.breaker == nil {
		return g.endProbe(p, o)
	}
	done, at := t.done, t.at
	t.done = nil
	g.tickets.Put(t)
	if o.Verdict == Success {
		p.period.book(done, at, nil)
		if p.period.escalations.Load() != 0 {
			p.period.escalations.Store(0)
		}
		return nil
	}
	return g.endCall(p.period, done, at, o)
}

// Late books a failure that came after Done(Success): the stream broke, or an
// error event came in the middle of it. It counts in ReadyToTrip as a further
// request that failed, apart from the success at the headers, and opens the gate
// if ReadyToTrip says so. It counts nothing if the gate has opened since. Call
// it at most once for one answer. The error is as Done's.
func (p Permit) Late(kind Kind) error {
	if p.period == nil {
		return nil
	}
	return p.period.gate.late(p.period, kind)
}

// Probe reports whether the call is a probe of a half-open gate: whether the
// gate's next move hangs on how it ends.
func (p Permit) Probe() bool { return p.period != nil && p.period.breaker == nil }

// Admits is for a call that has waited since Allow: it reports whether the call
// may still be sent under this permit, and if not, how long the gate rests yet.
// It may while the gate is closed, or while the call is itself the probe in
// time. It takes nothing and changes nothing.
func (p Permit) Admits() (bool, time.Duration) {
	if p.period == nil {
		return true, 0
	}
	g := p.period.gate
	if g.closed.Load() != nil {
		return true, 0
	}
	return g.stillAdmits(p)
}
