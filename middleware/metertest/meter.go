package metertest

import (
	"math"
	"time"
)

// never is the wait for what cannot ever fit.
const never = time.Duration(math.MaxInt64)

// A meter counts one unit. Instants are since the provider's start and do not
// step back from call to call. All arithmetic is in integers and exact. Not safe
// for concurrent use.
type meter interface {
	// wait is 0 if n fit now, never if they exceed what the meter can hold, else
	// the least time after which they fit if nobody takes anything until then.
	wait(at time.Duration, n int64) time.Duration
	// take takes n, which fit.
	take(at time.Duration, n int64)
	// takeAtMost takes n or what there is.
	takeAtMost(at time.Duration, n int64)
	// left is what is there, in whole units.
	left(at time.Duration) int64
	// more is the time until left grows, full the time until it can grow no more;
	// both are 0 when it is full already.
	more(at time.Duration) time.Duration
	full(at time.Duration) time.Duration
	// limit is the published amount.
	limit() int64
	// resize changes the amount and the burst. What was taken stays taken.
	resize(at time.Duration, amount, burst int64)
}

// newMeter returns a full meter, or nil if amount is 0. A burst of 0 is amount.
func newMeter(kind Meter, at time.Duration, amount, burst int64, per, offset time.Duration) meter {
	if amount == 0 {
		return nil
	}
	switch kind {
	case RollingWindow:
		return &rolling{amount: amount, per: per}
	case FixedWindow:
		return &fixed{amount: amount, per: per, offset: offset % per}
	}
	if burst == 0 {
		burst = amount
	}
	return &tokenBucket{amount: amount, burst: burst, per: per, whole: burst, seen: at}
}
