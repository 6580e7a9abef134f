package retryafter

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// OverCap says what the ladder does with a hint above Policy.MaxDelay where no
// other route exists.
type OverCap uint8

const (
	// Clamp waits MaxDelay and tries then.
	Clamp OverCap = iota
	// Stop hands the answer back at once.
	Stop
)

// Policy is the ladder: how refusals are waited out, and when waiting ends. A
// wholly zero Policy means [DefaultPolicy]; any other is taken literally.
// Policy is a value without state; its methods may be called concurrently.
type Policy struct {
	// RespectRetryAfter obeys what the server states. False: hints are ignored
	// and every refusal is treated as one without a hint.
	RespectRetryAfter bool
	// DefaultDelay is the wait when the server gives no hint: flat for
	// FallbackAfterRetries refusals on a route, doubling after. Must be above 0.
	DefaultDelay time.Duration
	// MaxDelay caps any single wait, before jitter. Must be DefaultDelay or more.
	MaxDelay time.Duration
	// FallbackAfterRetries is how many retries are made on one route before the
	// next refusal escalates, where another route exists. 0 escalates at the
	// first refusal.
	FallbackAfterRetries int
	// MaxRetries is the hard cap on rate-limit retries of a turn, all routes
	// together. Must be 1 or more. Where FallbackAfterRetries is above it, the
	// hard stop comes first.
	MaxRetries int
	// Jitter is the bound of what is added to every wait, uniformly; it is never
	// subtracted. 0 is off.
	Jitter time.Duration
	// OverCap says what to do with a hint above MaxDelay without another route.
	OverCap OverCap
	// EscalateOver escalates at once, where a route exists, when the hint is
	// above it. 0 means MaxDelay.
	EscalateOver time.Duration
}

// DefaultPolicy returns the ladder that is used where nothing is said: hints
// respected, 5 s without one, no wait above 60 s, the backup after 3 retries,
// the end after 5, up to 1 s of jitter.
func DefaultPolicy() Policy {
	return Policy{
		RespectRetryAfter:    true,
		DefaultDelay:         5 * time.Second,
		MaxDelay:             60 * time.Second,
		FallbackAfterRetries: 3,
		MaxRetries:           5,
		Jitter:               time.Second,
	}
}

// OrDefault returns DefaultPolicy for a wholly zero Policy, else p itself.
func (p Policy) OrDefault() Policy {
	if p == (Policy{}) {
		return DefaultPolicy()
	}
	return p
}

// Validate names the first broken constraint. A wholly zero Policy is valid: it
// means the default.
func (p Policy) Validate() error {
	p = p.OrDefault()
	switch {
	case p.DefaultDelay == 0:
		return errors.New("retryafter: Policy.DefaultDelay must not be zero")
	case p.MaxDelay == 0:
		return errors.New("retryafter: Policy.MaxDelay must not be zero")
	case p.MaxDelay < p.DefaultDelay:
		return errors.New("retryafter: Policy.MaxDelay must be at least DefaultDelay")
	case p.MaxRetries < 1:
		return errors.New("retryafter: Policy.MaxRetries must be at least 1")
	case p.DefaultDelay < 0:
		return errors.New("retryafter: Policy.DefaultDelay must not be negative")
	case p.MaxDelay < 0:
		return errors.New("retryafter: Policy.MaxDelay must not be negative")
	case p.FallbackAfterRetries < 0:
		return errors.New("retryafter: Policy.FallbackAfterRetries must not be negative")
	case p.Jitter < 0:
		return errors.New("retryafter: Policy.Jitter must not be negative")
	case p.EscalateOver < 0:
		return errors.New("retryafter: Policy.EscalateOver must not be negative")
	case p.OverCap > Stop:
		return errors.New("retryafter: Policy.OverCap must be Clamp or Stop")
	}
	return nil
}

// Backoff is the pure rule of one wait, before jitter: min(hint, MaxDelay) where
// there is a hint (ok) and it is respected, else min(DefaultDelay, MaxDelay). A
// hint of 0 is a hint; a negative one counts as 0.
func (p Policy) Backoff(hint time.Duration, ok bool) time.Duration {
	p = p.OrDefault()
	if ok && p.RespectRetryAfter {
		return max(min(hint, p.MaxDelay), 0)
	}
	return max(min(p.DefaultDelay, p.MaxDelay), 0)
}

// Jittered returns d plus a uniform draw from [0, Jitter), saturating.
func (p Policy) Jittered(d time.Duration) time.Duration {
	p = p.OrDefault()
	if p.Jitter <= 0 {
		return d
	}
	j := rand.N(p.Jitter)
	if d > math.MaxInt64-j {
		return math.MaxInt64
	}
	return d + j
}
