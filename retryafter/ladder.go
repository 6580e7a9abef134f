package retryafter

import (
	"math"
	"time"
)

// Action is what the ladder does about a refusal.
type Action uint8

const (
	// Wait waits and sends again on the same route.
	Wait Action = iota
	// Escalate gives this route up: another one exists.
	Escalate
	// Return hands the answer back to the caller, unread.
	Return
)

// String returns wait, escalate or return.
func (a Action) String() string {
	switch a {
	case Wait:
		return "wait"
	case Escalate:
		return "escalate"
	}
	return "return"
}

// Refusal is one refused answer and where its turn stands.
type Refusal struct {
	// Signal is what the answer meant.
	Signal Signal
	// Total counts the refusals of this turn so far, on all routes, this one
	// included.
	Total int
	// OnRoute counts the refusals on this route, this one included.
	OnRoute int
	// Routes is how many routes the turn has been sent on, this one included; 0
	// means 1. The first send on a route is no retry, so Total - Routes retries
	// have been made.
	Routes int
	// Route says that another route exists for the turn.
	Route bool
	// Left is the time left to the context's deadline, where HasDeadline.
	Left        time.Duration
	HasDeadline bool
	// Need is what the call takes of a unit, for [Signal.Wait]; it may be nil.
	Need func(unit string) int64
}

// Step is the ladder's pure rule: what to do about a refusal, and with Wait how
// long to wait, before jitter.
//
//   - The ladder climbs for RateLimited and Overloaded answers that are Retryable.
//     QuotaExhausted escalates where a route exists; it never waits. Everything
//     else is returned.
//   - A wait that the answer states above EscalateOver escalates where a route exists.
//   - After FallbackAfterRetries retries on a route the next refusal escalates
//     where a route exists; after MaxRetries retries the answer is returned.
//   - A stated wait above MaxDelay is clamped, or under Stop not begun.
//   - A wait past the deadline is not begun: it escalates where a route exists,
//     else the answer is returned.
//   - Without a hint the wait is DefaultDelay (or the provider's documented
//     minimum, if longer) for FallbackAfterRetries refusals on a route, doubling
//     after, and never above MaxDelay.
//
// With Escalate, and with Return under Stop, the duration is how long the server
// wants to be left alone, not clamped. With any other Return it is the wait that
// was not begun; it is 0 for a QuotaExhausted answer that states none and for
// answers that are no refusals.
func (p Policy) Step(r Refusal) (Action, time.Duration) {
	p = p.OrDefault()
	wait, full, stated := p.climb(r)
	giveUp := func() (Action, time.Duration) {
		if r.Route {
			return Escalate, full
		}
		if p.OverCap == Stop {
			return Return, full
		}
		return Return, wait
	}
	switch r.Signal.Class {
	case RateLimited, Overloaded:
		if !r.Signal.Retryable {
			return Return, wait
		}
	case QuotaExhausted:
		if !stated {
			wait, full = 0, 0
		}
		return giveUp()
	default:
		return Return, 0
	}

	over := p.EscalateOver
	if over == 0 {
		over = p.MaxDelay
	}
	switch {
	case stated && r.Route && full > over:
		return Escalate, full
	case r.Route && r.OnRoute > p.FallbackAfterRetries:
		return Escalate, full
	case r.Total-max(r.Routes, 1) >= p.MaxRetries:
		if p.OverCap == Stop {
			return Return, full
		}
		return Return, wait
	case stated && p.OverCap == Stop && full > p.MaxDelay:
		return giveUp()
	case r.HasDeadline && wait > r.Left:
		return giveUp()
	}
	return Wait, wait
}

// climb returns the wait of this rung, the same before it was capped, and
// whether the server stated it.
func (p Policy) climb(r Refusal) (wait, full time.Duration, stated bool) {
	s := r.Signal
	if p.RespectRetryAfter {
		if s.Class == QuotaExhausted && s.HasHint {
			full, stated = max(s.RetryAfter, 0), true
		} else {
			floor := s.Floor
			s.Floor = 0
			full, stated = s.Wait(r.Need)
			if stated && !s.HasHint {
				full = max(full, floor)
			}
		}
		if stated {
			return p.Backoff(full, true), full, true
		}
	}
	full = max(p.DefaultDelay, 0)
	if p.RespectRetryAfter {
		full = max(full, r.Signal.Floor)
	}
	for i := p.FallbackAfterRetries; i < r.OnRoute && full <= p.MaxDelay; i++ {
		if full > math.MaxInt64/2 {
			full = math.MaxInt64
			break
		}
		full *= 2
	}
	wait = max(min(full, p.MaxDelay), 0)
	return wait, wait, false
}
