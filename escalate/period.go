package escalate

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// period is one stretch of a gate's life in which calls were let through: closed,
// with a breaker that counts them, or half-open, without one. A new one begins
// whenever the gate closes or becomes half-open, so old counts are simply let go.
type period struct {
	gate        *gate
	breaker     *gobreaker.TwoStepCircuitBreaker[struct{}] // nil: half-open
	escalations atomic.Uint32                              // in a row
	booking     *failure                                   // under the breaker's own lock
	next        *period                                    // what a served probe began; under gate.mu
}

// errNeutral is what the breaker excludes.
var errNeutral = errors.New("escalate: neutral")

// failure is the error given to the breaker for a failed call. It brings the
// counts back out of it, so that ReadyToTrip can be asked without the breaker's
// lock.
type failure struct {
	booked bool
	counts gobreaker.Counts
}

func (*failure) Error() string { return "escalate: failure" }

// newClosed makes a closed period. Its breaker counts and never trips.
func (g *gate) newClosed() *period {
	p := &period{gate: g}
	p.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         g.name,
		Interval:     g.set.Interval,
		BucketPeriod: g.set.BucketPeriod,
		IsExcluded:   func(err error) bool { return err == errNeutral },
		IsSuccessful: func(err error) bool {
			f, failed := err.(*failure)
			if failed {
				f.booked = true
				p.booking = f
			}
			return !failed
		},
		ReadyToTrip: func(counts gobreaker.Counts) bool {
			p.booking.counts = counts
			p.booking = nil
			return false
		},
	})
	return p
}

// book gives a call's end to the breaker. The breaker forgets calls that are
// older than its rolling window; theirs is booked as of now instead.
func (p *period) book(done func(error), at time.Duration, err error) {
	g := p.gate
	if g.window > 0 && g.now()-at >= g.window-g.set.BucketPeriod {
		done(errNeutral)
		if again, e := p.breaker.Allow(); e == nil {
			done = again
		}
	}
	done(err)
}

// fail books a failed call and asks ReadyToTrip.
func (p *period) fail(done func(error), at time.Duration) (trip bool, err error) {
	f := new(failure)
	p.book(done, at, f)
	if !f.booked {
		// A new Interval began while the call was under way and the breaker
		// ignored its end. Calls may well be longer than Interval: book it as of
		// now, or a route that fails slowly would never trip.
		if again, e := p.breaker.Allow(); e == nil {
			again(f)
		}
	}
	err = guard("ReadyToTrip", func() { trip = p.gate.set.ReadyToTrip(f.counts) })
	return trip && err == nil, err
}
