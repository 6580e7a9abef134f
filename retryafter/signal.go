package retryafter

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Class says what an answer means for the caller's pace.
type Class uint8

const (
	// OK is an answer that was served.
	OK Class = iota
	// RateLimited means that this caller is too fast: 429, and other statuses
	// that a known server means so (403 at GitHub, 503 SlowDown at S3).
	RateLimited
	// Overloaded means that the service is short of capacity, whoever asks:
	// 503, 529, and a known server's like. The caller's budget was not the cause.
	Overloaded
	// QuotaExhausted means that waiting will not cure it: no credit, a spent
	// day or month, or an allowance of zero.
	QuotaExhausted
	// ServerError is a failure of the server: 5xx other than 503 and 529.
	ServerError
	// Other is everything else, a request larger than the whole window included:
	// such a 429 can never succeed.
	Other
)

// String returns the class's name as it is used in events and logs: ok,
// rate_limited, overloaded, quota_exhausted, server_error or other.
func (c Class) String() string {
	switch c {
	case OK:
		return "ok"
	case RateLimited:
		return "rate_limited"
	case Overloaded:
		return "overloaded"
	case QuotaExhausted:
		return "quota_exhausted"
	case ServerError:
		return "server_error"
	}
	return "other"
}

// MarshalText is String, for JSON and logs.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Class) UnmarshalText(text []byte) error {
	for k := OK; k <= Other; k++ {
		if k.String() == string(text) {
			*c = k
			return nil
		}
	}
	return fmt.Errorf("retryafter: unknown class %q", text)
}

// Window is one of the server's meters, as it stood when the server answered.
type Window struct {
	// Unit is what is counted: "requests", "tokens" (input and output),
	// "input_tokens" or "output_tokens". Where a server shows several windows of
	// one of these, the one with the least remaining carries the unit and the
	// others carry names of their own ("burst", "tokens_month"). Meters of
	// anything else ("points", "content-bytes") have their own names too.
	Unit string
	// Limit is the size of the window, Remaining what is left of it; -1 is not stated.
	Limit, Remaining int64
	// Reset is how long until the window is whole again (Refills), or until it
	// starts anew; never less than 0, except that -1 is not stated.
	Reset time.Duration
	// Per is the window's length; 0 is not stated.
	Per time.Duration
	// Refills says that the server refills it continuously rather than all at
	// once at Reset.
	Refills bool
}

// Signal is what an answer says about the caller's pace. The zero Signal is a
// served answer that says nothing.
type Signal struct {
	Class Class
	// RetryAfter is the wait that the answer itself states, in its headers or its
	// body; it means something only where HasHint is true, and is then 0 or more.
	// It is stated even where Class forbids a retry.
	RetryAfter time.Duration
	HasHint    bool
	// Retryable says that the same request may succeed later. It is false for OK.
	Retryable bool
	// Floor is the least wait that the provider documents for answers of this
	// kind that state none, such as a minute for GitHub's secondary limits; 0 is none.
	Floor time.Duration
	// Windows are the server's meters, in the order in which the provider
	// declares them.
	Windows []Window
}

// Wait returns how long to wait before the next try, and false where the answer
// leaves that to the client.
//
// The stated hint comes first. Without one it is the latest wait among the
// windows that have no room for the call: for a fixed window the time until it
// starts anew; for one that refills continuously only until the call fits,
// which is (needed - remaining) * reset / (limit - remaining). Where no window
// is known to be exhausted, a RateLimited answer's windows that state a reset but
// not what remains are taken to be. The provider's documented minimum (Floor) is
// the least of it.
//
// need tells what the call takes of a unit; a nil need, or an answer below 1,
// counts as 1. A need above the limit waits for the whole window. Wait returns
// false for OK, for QuotaExhausted, where no wait helps, and for a ServerError
// or Other answer that is not Retryable.
func (s Signal) Wait(need func(unit string) int64) (time.Duration, bool) {
	switch s.Class {
	case RateLimited, Overloaded:
	case ServerError, Other:
		if !s.Retryable {
			return 0, false
		}
	default:
		return 0, false
	}
	if s.HasHint {
		return max(s.RetryAfter, 0), true
	}
	wait, unknown, ok := time.Duration(0), time.Duration(0), false
	if s.Class == RateLimited || s.Class == Overloaded {
		for _, w := range s.Windows {
			n := int64(1)
			if need != nil {
				n = max(need(w.Unit), 1)
			}
			// A reset of 0 beside an amount that is not reported says nothing either.
			if w.Remaining < 0 && w.Reset > 0 {
				w.Remaining = 0
				d, _ := w.wait(n)
				unknown = max(unknown, d)
			} else if d, blocked := w.wait(n); blocked {
				wait, ok = max(wait, d), true
			}
		}
		// Overload is not the fault of this caller's windows.
		if !ok && unknown > 0 && s.Class == RateLimited {
			wait, ok = unknown, true
		}
	}
	if s.Floor > 0 {
		wait, ok = max(wait, s.Floor), true
	}
	return wait, ok
}

// wait returns how long until n fit in the window, and false where they fit now
// or the window does not say.
func (w Window) wait(n int64) (time.Duration, bool) {
	if w.Remaining < 0 || w.Remaining >= n {
		return 0, false
	}
	if w.Limit > 0 {
		n = min(n, w.Limit)
	}
	if !w.Refills {
		return w.Reset, w.Reset >= 0
	}
	missing := max(n-w.Remaining, 0)
	switch {
	case w.Reset >= 0 && w.Limit > w.Remaining:
		return scale(w.Reset, missing, w.Limit-w.Remaining), true
	case w.Reset >= 0:
		return w.Reset, true
	case w.Per > 0 && w.Limit > 0:
		return scale(w.Per, missing, w.Limit), true
	}
	return 0, false
}

// scale returns d*num/den, rounded up and saturating; d and num are 0 or more,
// den is 1 or more.
func scale(d time.Duration, num, den int64) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(num))
	lo, carry := bits.Add64(lo, uint64(den)-1, 0)
	hi += carry
	if hi >= uint64(den) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(den))
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(q)
}
