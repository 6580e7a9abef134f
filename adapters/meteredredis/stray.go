package meteredredis

import (
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A stray is an open grant of the fallback. The store may be there again when it ends; then it hears of it.
type stray struct {
	b     *budget
	o     *outage
	cost  bucket.Cost
	grant bucket.Grant // of the fallback
	ended atomic.Bool
}

var _ bucket.Account = (*stray)(nil)

// end reports whether this is the end, the first time.
func (s *stray) end() bool { return s.ended.CompareAndSwap(false, true) }

// over reports whether the outage is.
func (s *stray) over() bool { return s.b.away() != s.o }

// Served says that the headers of an accepted answer are here.
func (s *stray) Served(uint64) { s.grant.Served() }

// Report says what the server states as left. The store has no admission that it goes with.
func (s *stray) Report(_ uint64, meters []bucket.Meter) { s.grant.Report(meters...) }

// Refused says that the server refused the call. A hold that is set before the outage ends is handed to the store then.
func (s *stray) Refused(_ uint64, hold time.Duration) {
	if !s.end() {
		return
	}
	s.grant.Refused(hold)
	if s.over() {
		s.b.limiter.Hold(s.b.key, time.Now().Add(hold))
	}
}

// Settle says what the call really cost. More than its estimate is owed to the store; less does not come back from it,
// which has not been told of the call alone.
func (s *stray) Settle(_ uint64, cost bucket.Cost) {
	if !s.end() {
		return
	}
	s.grant.Settle(cost)
	cost = clamped(cost)
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.limits {
		extra := cost.Of(b.limits[i].Unit) - s.cost.Of(b.limits[i].Unit)
		switch {
		case extra <= 0:
		case b.back != nil || s.over():
			b.say(ride, opExtra, whole(int64(i+1)), whole(extra))
		default:
			b.spent[i] += float64(extra)
		}
	}
	b.look()
}

// Cancel says that it was never sent.
func (s *stray) Cancel(uint64) {
	if s.end() {
		s.grant.Cancel()
	}
}
