package bucket

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Limit is one meter of a key: at most Amount of Unit per Per, in the manner of Shape.
//
// Amount zero is off: such a limit charges nothing, as if it were not there.
type Limit struct {
	Unit   Unit          `json:"unit"`
	Amount int64         `json:"amount"`          // how much Per allows; never negative
	Per    time.Duration `json:"per"`             // the span Amount is stated for; always positive
	Burst  int64         `json:"burst,omitempty"` // capacity of a TokenBucket; 0 means Amount. Must be 0 for a Window
	Shape  Shape         `json:"shape"`           // TokenBucket unless stated
}

// Shape is the way a Limit refills. The zero Shape is TokenBucket.
type Shape uint8

const (
	// TokenBucket holds at most Burst, starts full and refills at Amount/Per continuously: a
	// window of length w admits at most Burst + Amount*w/Per.
	TokenBucket Shape = iota
	// Window admits whatever keeps the sum of the last Per at or under Amount: each charge
	// comes back exactly Per after it was made. It suits providers that meter by fixed or
	// rolling windows, where a full token bucket would admit twice the limit in its first Per.
	Window
)

// String returns token_bucket or window.
func (s Shape) String() string {
	switch s {
	case TokenBucket:
		return "token_bucket"
	case Window:
		return "window"
	}
	return fmt.Sprintf("Shape(%d)", uint8(s))
}

// MarshalText is String, for JSON and logs.
func (s Shape) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Shape) UnmarshalText(text []byte) error {
	for k := TokenBucket; k <= Window; k++ {
		if k.String() == string(text) {
			*s = k
			return nil
		}
	}
	return fmt.Errorf("bucket: unknown shape %q", text)
}

// PerMinute returns the usual limit: amount of unit per minute in a token bucket that holds one
// minute's worth. Amount zero is off.
func PerMinute(unit Unit, amount int64) Limit {
	return Limit{Unit: unit, Amount: amount, Per: time.Minute}
}

// Validate names the first thing wrong with l: an unknown Unit or Shape, a negative Amount or
// Burst, a Per that is not positive, a Burst on a Window, or a Burst without an Amount to refill it.
func (l Limit) Validate() error {
	switch {
	case l.Unit > OutputTokens:
		return fmt.Errorf("bucket: limit: unknown unit %d", uint8(l.Unit))
	case l.Shape > Window:
		return fmt.Errorf("bucket: limit of %s: unknown shape %d", l.Unit, uint8(l.Shape))
	case l.Amount < 0:
		return fmt.Errorf("bucket: limit of %s: negative Amount %d", l.Unit, l.Amount)
	case l.Per <= 0:
		return fmt.Errorf("bucket: limit of %s: Per must be positive, is %v", l.Unit, l.Per)
	case l.Burst < 0:
		return fmt.Errorf("bucket: limit of %s: negative Burst %d", l.Unit, l.Burst)
	case l.Burst > 0 && l.Shape == Window:
		return fmt.Errorf("bucket: limit of %s: a Window has no Burst, is %d", l.Unit, l.Burst)
	case l.Burst > 0 && l.Amount == 0:
		return fmt.Errorf("bucket: limit of %s: Burst %d without an Amount that refills it", l.Unit, l.Burst)
	}
	return nil
}

// WorstWindow returns the most that l admits in any window of length d, so that a configuration
// can be held against a provider's published limit: Burst + Amount*d/Per for a TokenBucket
// (rounded down), Amount for every Per begun in d for a Window, and at least what one instant
// admits. It saturates at the largest int64, which is also the answer for a limit that is off.
//
// Calls admitted beyond the level are not in it: overdue probes, costs above capacity, and the
// difference by which a call settled for more than its estimate. Headroom is not in it either.
func (l Limit) WorstWindow(d time.Duration) int64 {
	if l.Amount <= 0 || l.Per <= 0 {
		return math.MaxInt64
	}
	d = max(d, 0)
	if l.Shape == Window {
		begun := int64(d / l.Per)
		if d%l.Per != 0 {
			begun++
		}
		return satMul(l.Amount, max(begun, 1))
	}
	hi, lo := bits.Mul64(uint64(l.Amount), uint64(d))
	if hi >= uint64(l.Per) {
		return math.MaxInt64
	}
	refill, _ := bits.Div64(hi, lo, uint64(l.Per))
	if refill > math.MaxInt64 {
		return math.MaxInt64
	}
	return satAdd(l.capacity(), int64(refill))
}

// capacity is what one instant can admit from rest.
func (l Limit) capacity() int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Amount
}

// satAdd and satMul are for operands that are not negative.
func satAdd(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}

func satMul(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
