package metertest

import (
	"math/bits"
	"time"
)

// tokenBucket holds whole units and a part of one, counted in 1/per of a unit, so
// that no refill is ever rounded.
type tokenBucket struct {
	amount, burst int64
	per           time.Duration
	whole         int64
	part          uint64 // of a unit, in 1/per; 0 when full
	seen          time.Duration
}

func (b *tokenBucket) refill(at time.Duration) {
	passed := at - b.seen
	if passed <= 0 {
		return
	}
	b.seen = at
	hi, lo := bits.Mul64(uint64(passed), uint64(b.amount))
	lo, carry := bits.Add64(lo, b.part, 0)
	hi += carry
	if hi < uint64(b.per) { // else the quotient is past 64 bits, and the brim
		gain, rest := bits.Div64(hi, lo, uint64(b.per))
		if b.whole < b.burst && gain < uint64(b.burst-b.whole) {
			b.whole += int64(gain)
			b.part = rest
			return
		}
	}
	b.whole, b.part = b.burst, 0
}

// until is the time until the bucket holds n > whole.
func (b *tokenBucket) until(n int64) time.Duration {
	hi, lo := bits.Mul64(uint64(n-b.whole), uint64(b.per))
	lo, borrow := bits.Sub64(lo, b.part, 0)
	hi -= borrow
	// Rounded up: a nanosecond earlier it would not fit.
	lo, carry := bits.Add64(lo, uint64(b.amount)-1, 0)
	hi += carry
	if hi >= uint64(b.amount) {
		return never
	}
	d, _ := bits.Div64(hi, lo, uint64(b.amount))
	if d > uint64(never) {
		return never
	}
	return time.Duration(d)
}

func (b *tokenBucket) wait(at time.Duration, n int64) time.Duration {
	b.refill(at)
	switch {
	case n > b.burst:
		return never
	case n <= b.whole:
		return 0
	}
	return b.until(n)
}

func (b *tokenBucket) take(at time.Duration, n int64) {
	b.refill(at)
	b.whole -= n
}

func (b *tokenBucket) takeAtMost(at time.Duration, n int64) {
	b.refill(at)
	if n > b.whole {
		b.whole, b.part = 0, 0
		return
	}
	b.whole -= n
}

func (b *tokenBucket) left(at time.Duration) int64 {
	b.refill(at)
	return b.whole
}

func (b *tokenBucket) more(at time.Duration) time.Duration {
	b.refill(at)
	if b.whole >= b.burst {
		return 0
	}
	return b.until(b.whole + 1)
}

func (b *tokenBucket) full(at time.Duration) time.Duration {
	b.refill(at)
	if b.whole >= b.burst {
		return 0
	}
	return b.until(b.burst)
}

func (b *tokenBucket) limit() int64 { return b.amount }

func (b *tokenBucket) resize(at time.Duration, amount, burst int64) {
	b.refill(at)
	if burst == 0 {
		burst = amount
	}
	b.amount, b.burst = amount, burst
	if b.whole >= burst {
		b.whole, b.part = burst, 0
	}
}
