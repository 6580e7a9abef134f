package escalate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kind says why a call was given up on a route.
type Kind uint8

// The kinds of escalation. The zero Kind is RateLimit.
const (
	RateLimit  Kind = iota // refused by a rate limit until the ladder ran out
	Overloaded             // the server is short of capacity (503, 529)
	Quota                  // waiting will not cure it: no credit, a spent day
	Server                 // the server failed (500, 502, 504)
	Transport              // no answer: dial, reset, per-try timeout
)

// String returns "rate_limit", "overloaded", "quota", "server" or "transport".
func (k Kind) String() string {
	switch k {
	case RateLimit:
		return "rate_limit"
	case Overloaded:
		return "overloaded"
	case Quota:
		return "quota"
	case Server:
		return "server"
	case Transport:
		return "transport"
	default:
		return "kind(" + strconv.Itoa(int(k)) + ")"
	}
}

// MarshalText is String, for JSON and logs.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *Kind) UnmarshalText(text []byte) error {
	for i := RateLimit; i <= Transport; i++ {
		if i.String() == string(text) {
			*k = i
			return nil
		}
	}
	return fmt.Errorf("escalate: unknown kind %q", text)
}

// Sentinels of this package. What a gate refuses matches gobreaker.ErrOpenState
// or gobreaker.ErrTooManyRequests.
var (
	// ErrNoRoute says that a route index is out of range.
	ErrNoRoute = errors.New("escalate: no such route")
	// ErrNoCredential says that a rewritten request carries no credential
	// though its route has RequireCredential set.
	ErrNoCredential = errors.New("escalate: no credential for this route")
	// ErrNotJSON says that a route sets body fields and the request's body is
	// not a JSON object.
	ErrNotJSON = errors.New("escalate: body is not a JSON object")
)

// Error is an escalation: a call was given up on a route, by the ladder above
// it or by the route's own gate. It is what the layers of package middleware
// hand up to reroute a call, and what a caller gets when no route is left.
type Error struct {
	// Key is the quota of the route (Router.Quota).
	Key string
	// Kind is why. When the gate refused, it is why the gate opened.
	Kind Kind
	// Attempts is the number of sends that were made; 0 when the gate refused.
	Attempts int
	// RetryAfter is how long until it is worth coming back: the server's hint,
	// the rest left of a gate, or, when all routes rest, of the soonest one. 0
	// is not known.
	RetryAfter time.Duration
	// Err is the cause: the refused answer or the fault, gobreaker's
	// ErrOpenState or ErrTooManyRequests when the gate refused, or the joined
	// errors of all routes.
	Err error
}

// Error returns a text of the form "escalate: key: rate_limit after 4 attempts,
// retry after 12.2s: cause". Do not match on it.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("escalate: ")
	if e.Key != "" {
		b.WriteString(e.Key)
		b.WriteString(": ")
	}
	b.WriteString(e.Kind.String())
	switch {
	case e.Attempts == 1:
		b.WriteString(" after 1 attempt")
	case e.Attempts > 1:
		b.WriteString(" after " + strconv.Itoa(e.Attempts) + " attempts")
	}
	if e.RetryAfter > 0 {
		b.WriteString(", retry after " + e.RetryAfter.String())
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
