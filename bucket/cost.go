package bucket

import (
	"fmt"
	"math"
)

// Cost is what one call is charged. The zero Cost is charged nothing, but it still queues behind
// the others, takes a slot under MaxInFlight and waits for a hold to end.
//
// A negative component is an error wherever a Cost is taken. A component beyond 2^44 (some
// seventeen million million) counts as 2^44, which keeps every sum of costs inside an int64.
type Cost struct {
	Requests     int64
	InputTokens  int64
	OutputTokens int64
}

// Of returns what c charges a limit of the given unit: Tokens is input plus output, at most the
// largest int64. It is zero for an unknown unit.
func (c Cost) Of(u Unit) int64 {
	switch u {
	case Requests:
		return c.Requests
	case Tokens:
		if sum := c.InputTokens + c.OutputTokens; sum >= c.InputTokens || c.OutputTokens < 0 {
			return sum
		}
		return math.MaxInt64
	case InputTokens:
		return c.InputTokens
	case OutputTokens:
		return c.OutputTokens
	}
	return 0
}

// Unit says what a Limit counts. The zero Unit is Requests.
type Unit uint8

// The units of a Limit.
const (
	Requests     Unit = iota // Cost.Requests
	Tokens                   // Cost.InputTokens + Cost.OutputTokens
	InputTokens              // Cost.InputTokens
	OutputTokens             // Cost.OutputTokens
)

var unitNames = [...]string{"requests", "tokens", "input_tokens", "output_tokens"}

// String returns requests, tokens, input_tokens or output_tokens.
func (u Unit) String() string {
	if int(u) < len(unitNames) {
		return unitNames[u]
	}
	return fmt.Sprintf("Unit(%d)", uint8(u))
}

// MarshalText is String, for JSON and logs.
func (u Unit) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (u *Unit) UnmarshalText(text []byte) error {
	for k := range unitNames {
		if unitNames[k] == string(text) {
			*u = Unit(k)
			return nil
		}
	}
	return fmt.Errorf("bucket: unknown unit %q", text)
}

// maxCost is the most that one component of a Cost counts. Half a million calls of this size may
// be summed before an int64 is full.
const maxCost = 1 << 44

// clamped returns c with each component at most maxCost; c has been validated.
func (c Cost) clamped() Cost {
	return Cost{
		Requests:     min(c.Requests, maxCost),
		InputTokens:  min(c.InputTokens, maxCost),
		OutputTokens: min(c.OutputTokens, maxCost),
	}
}

func (c Cost) negative() bool { return c.Requests|c.InputTokens|c.OutputTokens < 0 }

func (c Cost) validate() error {
	if !c.negative() {
		return nil
	}
	name, n := "Requests", c.Requests
	switch {
	case c.Requests < 0:
	case c.InputTokens < 0:
		name, n = "InputTokens", c.InputTokens
	default:
		name, n = "OutputTokens", c.OutputTokens
	}
	return fmt.Errorf("bucket: negative cost: %s is %d", name, n)
}

func (c Cost) plus(d Cost) Cost {
	return Cost{c.Requests + d.Requests, c.InputTokens + d.InputTokens, c.OutputTokens + d.OutputTokens}
}

func (c Cost) minus(d Cost) Cost {
	return Cost{c.Requests - d.Requests, c.InputTokens - d.InputTokens, c.OutputTokens - d.OutputTokens}
}
