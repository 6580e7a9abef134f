package middleware

import (
	"fmt"
	"net/http"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// What cannot be true of a server's meter is not believed: neither the budget nor what is learned of the
// key goes by it. It is said once for each key and reason, in a Doubted event.

// A doubt is why a statement is not believed.
type doubt uint8

const (
	illegible  doubt = iota // there is something, but no number or time
	tooLarge                // a limit
	aboveLimit              // what remains
	tooFar                  // the reset, or the hint
	longPast                // the reset
	doubts
)

var reasons = [doubts]string{
	illegible:  "it cannot be read",
	tooLarge:   "nobody's limit is so large",
	aboveLimit: "more is left than the limit",
	tooFar:     "that is too far off",
	longPast:   "the reset has been over for long",
}

const (
	// largest is the largest limit that is believed: a million million and more tokens is no quota.
	largest = int64(1) << 43
	// farthest is the longest reset, or hint, that is believed: the slowest quotas are for a month.
	farthest = 31 * 24 * time.Hour
	// pastFor is how long a window's reset may stay at nothing while not all of it is back: whoever
	// rounds down says so for a second.
	pastFor = 5 * time.Second
)

// What a doubt may be about: a meter of each unit, by its number, or one of these.
const (
	ofHint   = int(bucket.OutputTokens) + 1
	ofHeader = ofHint + 1
)

// doubted returns why w cannot be believed, and false if it can.
func (m *meter) doubted(now time.Duration, unit bucket.Unit, w *retryafter.Window) (doubt, bool) {
	switch {
	case w.Limit > largest:
		return tooLarge, true
	case w.Limit >= 0 && w.Remaining > w.Limit:
		return aboveLimit, true
	case w.Reset > farthest:
		return tooFar, true
	}
	past := &m.past[unit]
	if w.Reset != 0 || w.Refills || w.Limit < 0 || w.Remaining == w.Limit {
		if past.Load() != 0 {
			past.Store(0)
		}
		return 0, false
	}
	since := past.Load()
	if since == 0 {
		past.CompareAndSwap(0, int64(now)+1)
		return 0, false
	}
	return longPast, now-time.Duration(since-1) > pastFor
}

// believed returns w's reset as far as it can be believed, and false where what w says is left cannot be.
func (s *sending) believed(unit bucket.Unit, w *retryafter.Window) (reset time.Duration, ok bool) {
	d, doubted := s.m.doubted(s.layer.meters.now(), unit, w)
	if !doubted {
		return w.Reset, true
	}
	if s.news(int(unit), d) {
		s.doubt("%d of %d %s left, reset in %v: %s", w.Remaining, w.Limit, unit, w.Reset, reasons[d])
	}
	return -1, d == tooFar || d == longPast
}

// news reports whether this was not told of the key before.
func (s *sending) news(subject int, d doubt) bool {
	bit := uint64(1) << (subject*int(doubts) + int(d))
	return s.t.observer != nil && s.m.doubts.Load()&bit == 0 && s.m.doubts.Or(bit)&bit == 0
}

// doubt tells of what is not believed.
func (s *sending) doubt(format string, args ...any) {
	s.t.observe(s.t.Context, Event{Kind: Doubted, Key: s.m.key, Err: fmt.Errorf("middleware: not believed: "+format, args...)})
}

// unreadable tells of limit headers that cannot be read at all.
func (s *sending) unreadable(source *retryafter.Source, h http.Header) {
	if name := source.Illegible(h); name != "" && s.news(ofHeader, illegible) {
		s.doubt("%s: %.40q: %s", name, h.Get(name), reasons[illegible])
	}
}

// doubtHint tells of a hint that cannot be read, or cannot be true: the ladder waits no longer than its
// MaxDelay for that one.
func (s *sending) doubtHint(sig retryafter.Signal, h http.Header) {
	switch said := h.Get("Retry-After"); {
	case sig.HasHint && sig.RetryAfter > farthest && s.news(ofHint, tooFar):
		s.doubt("to wait for %v: %s", sig.RetryAfter, reasons[tooFar])
	case !sig.HasHint && said != "" && s.news(ofHint, illegible):
		s.doubt("Retry-After: %.40q: %s", said, reasons[illegible])
	}
}
