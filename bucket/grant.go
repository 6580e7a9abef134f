package bucket

import (
	"context"
	"time"
)

// Grant is leave to send one call, and the handle by which the call tells the bucket how it went.
// It is a value: copy it freely; there is nothing to free. Every grant ends with exactly one of
// Settle, Refused and Cancel; the calls that come after it, on this value or on a copy, do
// nothing. The zero Grant does nothing at all. Its methods are safe for concurrent use and do not
// block.
//
// In the order of a call's life:
//
//	g, err := limiter.Acquire(ctx, key, estimate)
//	...                  // never sent: g.Cancel()
//	g.Report(meters...)  // what the answer's headers say is left, if they say so
//	g.Served()           // the server accepted it; or g.Refused(hold), the end
//	g.Settle(cost)       // the body has ended: what it really cost, the end
type Grant struct {
	// Four words, so that a grant is handed on in registers.
	call   *call // of a Local, or a foreign one
	id     uint64
	place  Place
	waited int64 // how long; of an overdue probe its complement
}

// Served says that the headers of an accepted answer are here. It lets the next overdue probe go
// and counts for the ramp after a hold. It does not end the grant.
func (g Grant) Served() {
	if g.call != nil {
		g.call.serve(g.id)
	}
}

// Refused says that the server refused the call and ends the grant, all in one critical section:
// the tokens come back, the request does not, and nobody is admitted on the key before hold from
// now has passed. The later of two holds wins; a hold of zero or less holds nothing.
func (g Grant) Refused(hold time.Duration) {
	if g.call != nil {
		g.call.refuse(g.id, hold, unhinted)
	}
}

// RefusedHinted is Refused by a server that says how long to wait: hint is what it says, without
// the jitter and the caps that may be in hold. Adaptive learns from it how the server meters.
func (g Grant) RefusedHinted(hold, hint time.Duration) {
	if g.call != nil {
		g.call.refuse(g.id, hold, max(hint, 0))
	}
}

// Report says what the answer's headers state as left, after the server charged this call. See Meter.
func (g Grant) Report(meters ...Meter) {
	if g.call != nil && len(meters) > 0 {
		g.call.report(g.id, meters)
	}
}

// Settle says what the call really cost and ends the grant: less than was taken comes back, more
// is charged as debt, and the slot under MaxInFlight is free. Whoever does not know the cost, or
// lost a call that was sent, settles for the estimate. Negative components count as zero.
func (g Grant) Settle(cost Cost) {
	if g.call != nil {
		g.call.settle(g.id, cost)
	}
}

// Cancel says that the call was never sent and ends the grant: all that was taken comes back.
func (g Grant) Cancel() {
	if g.call != nil {
		g.call.cancel(g.id)
	}
}

// Waited returns how long Acquire waited for the grant.
func (g Grant) Waited() time.Duration { return time.Duration(max(g.waited, ^g.waited)) }

// Overdue reports whether the call left as an overdue probe, charged as debt.
func (g Grant) Overdue() bool { return g.waited < 0 }

// Place returns the call's place in line, for WithPlace when it must come again.
func (g Grant) Place() Place { return g.place }

// Meter is one of the server's own meters, as an answer's headers state it. A Limit or Remaining
// of -1 and a Reset or Per of 0 or less are not stated; without Remaining there is nothing to learn.
//
// It is matched to a limit of the same Unit. Where the key has several of that unit, the one of
// the same Per is meant, or, when Per is not stated, the one of the same Amount; where that leaves
// none or more than one, the meter is ignored.
//
// It sets the level of its limit to what is left, less all that was admitted since; also upwards, if
// no later grant has reported. Where one keeps below the server's limit, by a Headroom below 1 or by
// an Amount smaller than the Limit stated, a call has to fit both what the server says and what is
// left of one's own.
type Meter struct {
	Unit      Unit
	Limit     int64
	Remaining int64
	Reset     time.Duration // until it is full again
	Per       time.Duration
	Refills   bool // it refills continuously, rather than at Reset
}

// Place is a call's place in the queue of its key: that of its first arrival. The zero Place is
// none. Places are comparable between the keys of one Local, not between two Locals.
type Place struct {
	at int64 // first arrival on the Local's clock, a little later where several came at once; never zero
}

func (p Place) before(q Place) bool { return p.at < q.at }

// NewPlace returns the place of a call of a limiter of another package, whose calls arrive in the order of
// n; 0 is the zero Place.
func NewPlace(n int64) Place { return Place{n} }

// Before reports whether p is nearer to the head of the line than q.
func (p Place) Before(q Place) bool { return p.before(q) }

type placeKey struct{}

// WithPlace returns a context under which Acquire queues at p rather than at the end of the line:
// a call that was refused and comes again keeps the place of its first arrival, instead of
// queueing behind everybody who came while it was out.
func WithPlace(ctx context.Context, p Place) context.Context {
	return context.WithValue(ctx, placeKey{}, p)
}

// PlaceFrom returns the place that WithPlace put into ctx; the zero Place if there is none.
func PlaceFrom(ctx context.Context) Place {
	p, _ := ctx.Value(placeKey{}).(Place)
	return p
}

// Account is what a limiter of another package implements to make grants. Its methods are called
// with the id given to NewGrant, perhaps late, twice or not in order, and concurrently; they must
// ignore an id that has ended, and they must not block.
//
// An Account that has a method RefusedHinted(id uint64, hold, hint time.Duration) is told of a
// Grant.RefusedHinted by that.
type Account interface {
	Served(id uint64)
	Refused(id uint64, hold time.Duration)
	Report(id uint64, meters []Meter)
	Settle(id uint64, cost Cost)
	Cancel(id uint64)
}

// GrantInfo is what a Grant can be asked by its holder.
type GrantInfo struct {
	Waited  time.Duration
	Overdue bool
	Place   Place
}

// NewGrant makes a grant for a limiter of another package, whose Account is told how it went.
func NewGrant(a Account, id uint64, info GrantInfo) Grant {
	waited := int64(max(info.Waited, 0))
	if info.Overdue {
		waited = ^waited
	}
	g := Grant{id: id, place: info.Place, waited: waited}
	if a != nil {
		g.call = &call{foreign: a}
	}
	return g
}
