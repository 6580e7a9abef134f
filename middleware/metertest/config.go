package metertest

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// TokensHeader is the request header in which the default Config.Cost looks for
// the number of tokens that a request costs: a decimal integer. A request without
// it, or with anything else in it, costs no tokens.
const TokensHeader = "X-Metertest-Tokens"

// Meter is how a provider counts what its clients take.
type Meter uint8

const (
	// TokenBucket holds a burst, starts full and refills continuously.
	TokenBucket Meter = iota
	// RollingWindow never admits more than the limit in any window of length
	// Per: what was taken comes back exactly Per later. Bursts are not used.
	RollingWindow
	// FixedWindow forgets everything at the end of each window of length Per.
	// Bursts are not used.
	FixedWindow
)

// String returns "token bucket", "rolling window" or "fixed window".
func (m Meter) String() string {
	switch m {
	case TokenBucket:
		return "token bucket"
	case RollingWindow:
		return "rolling window"
	case FixedWindow:
		return "fixed window"
	}
	return fmt.Sprintf("Meter(%d)", uint8(m))
}

// RetryAfter is the form in which a refusal says how long to wait. It has no
// effect in dialects that state the wait elsewhere (Gemini: in the body).
type RetryAfter uint8

const (
	// Seconds is a Retry-After of whole seconds, rounded up, as most send it.
	Seconds RetryAfter = iota
	// Millis is a retry-after-ms header, rounded up to a whole millisecond,
	// beside the Retry-After of whole seconds.
	Millis
	// Date is a Retry-After in the IMF-fixdate form of RFC 9110 section 5.6.7,
	// rounded up to a whole second.
	Date
	// NoHint says nothing.
	NoHint
	// Zero is a Retry-After of 0 seconds, whatever the wait is.
	Zero
)

// Neighbour is somebody else on the same quota. He calls in an open loop: at his
// own pace, whatever the answers are, and does not come back with what was
// refused. The zero Neighbour does not exist.
//
// He costs no goroutine: his calls are worked off, each at its own instant,
// when the provider next looks at its meters.
type Neighbour struct {
	// Every is the time between two calls; 0 means no neighbour.
	Every time.Duration
	// Tokens is what each of his calls costs.
	Tokens int64
	// Poisson draws the times between his calls from an exponential distribution
	// with mean Every; else they are all equal.
	Poisson bool
	// From is when he starts and Until when he stops, since New. An Until of 0
	// means that he never stops.
	From, Until time.Duration
}

// Config describes a Provider. The zero Config is one that admits everything at
// once and answers 200.
type Config struct {
	// Name stands in the errors of connections that are reset, as the address,
	// and before the reason with which an invalid Config answers. Empty means
	// "metertest".
	Name string

	// Requests and Tokens are the limits per Per; 0 leaves that unmetered. A call
	// is admitted by both or by neither.
	Requests, Tokens int64
	// Per is the time that the limits are for. 0 means a minute.
	Per time.Duration
	// Meter is how both are counted.
	Meter Meter
	// RequestBurst and TokenBurst are the capacities of TokenBucket meters; 0
	// means the limit itself. Ten requests per second, published as 600 per
	// minute, is Requests 600 and RequestBurst 10.
	RequestBurst, TokenBurst int64
	// Offset is how far into a FixedWindow the provider is when it is made.
	Offset time.Duration
	// RefusedCostsRequest makes a refused call take a request as well, or what
	// there is of one: the count never falls below zero.
	RefusedCostsRequest bool
	// Neighbour draws on the same meters.
	Neighbour Neighbour

	// Dialect is the set of limit headers and error bodies that is spoken.
	Dialect Dialect
	// RetryAfter is the form of the hint in refusals.
	RetryAfter RetryAfter

	// Up is how long a request is on its way: the provider decides when it
	// arrives. Latency is the whole time from sending to the headers of a served
	// answer and RefusedLatency to those of a refused one (any status of 400 or
	// above), Up included in both; where less than Up is left, the answer is
	// there at once.
	Up, Latency, RefusedLatency time.Duration
	// Jitter spreads each of these times uniformly by this share, up and down:
	// 0.5 makes 100 ms anything from 50 to 150 ms. In [0, 1].
	Jitter float64
	// Seed seeds the jitter and a Poisson neighbour. The same seed gives the same
	// draws in the order of arrivals.
	Seed uint64

	// Cost says how many tokens a request costs; body is all of its body. Below
	// zero counts as zero. Nil means what TokensHeader says. It is called without
	// locks, by many goroutines, and must not change the request.
	Cost func(r *http.Request, body []byte) int64
	// Respond writes the answer of an admitted call; a Status of 0 means 200. Nil
	// means a short answer in the dialect. It is called without locks, by many
	// goroutines, and must not change the request.
	Respond func(r *http.Request, body []byte) Answer

	// Script is what is answered first, before the meters are asked: see
	// Provider.Script.
	Script []Answer

	// MaxConns bounds the connections of each in-memory Transport, as
	// MaxConnsPerHost does in http.Transport: a call waits until one is free, and
	// one is free when its last answer was read to the end or closed. 0 means no
	// bound.
	MaxConns int
}

// Validate reports the first thing that is wrong with c. New does not return the
// error: a Provider of an invalid Config answers every request with status 500
// and the error as text, so a test that forgets to look still sees it.
func (c Config) Validate() error {
	switch {
	case c.Requests < 0 || c.Tokens < 0:
		return errors.New("metertest: Requests and Tokens must not be negative")
	case c.RequestBurst < 0 || c.TokenBurst < 0:
		return errors.New("metertest: RequestBurst and TokenBurst must not be negative")
	case c.Per < 0 || c.Offset < 0:
		return errors.New("metertest: Per and Offset must not be negative")
	case c.Up < 0 || c.Latency < 0 || c.RefusedLatency < 0:
		return errors.New("metertest: Up, Latency and RefusedLatency must not be negative")
	case !(c.Jitter >= 0 && c.Jitter <= 1):
		return errors.New("metertest: Jitter must be in [0, 1]")
	case c.MaxConns < 0:
		return errors.New("metertest: MaxConns must not be negative")
	case c.Neighbour.Every < 0 || c.Neighbour.Tokens < 0 || c.Neighbour.From < 0 || c.Neighbour.Until < 0:
		return errors.New("metertest: nothing in Neighbour may be negative")
	case c.Meter > FixedWindow:
		return fmt.Errorf("metertest: unknown %v", c.Meter)
	case c.Dialect > IETF:
		return fmt.Errorf("metertest: unknown %v", c.Dialect)
	case c.RetryAfter > Zero:
		return fmt.Errorf("metertest: unknown RetryAfter(%d)", c.RetryAfter)
	}
	for i, a := range c.Script {
		if err := a.validate(); err != nil {
			return fmt.Errorf("metertest: Script[%d]: %w", i, err)
		}
	}
	return nil
}
