package bucket_test

import (
	"math/big"
	"slices"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

func unitsOf(u bucket.Unit, c bucket.Cost) int64 {
	switch u {
	case bucket.Requests:
		return c.Requests
	case bucket.Tokens:
		return c.InputTokens + c.OutputTokens
	case bucket.InputTokens:
		return c.InputTokens
	default:
		return c.OutputTokens
	}
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func nonNegative(x *big.Rat) *big.Rat {
	if x.Sign() < 0 {
		return new(big.Rat)
	}
	return x
}

// refMeter is the history of one limit.
type refMeter struct {
	limit    bucket.Limit
	capacity *big.Rat // Burst, or Amount, after headroom
	rate     *big.Rat // per nanosecond, token buckets only

	level *big.Rat // token bucket: what was there at the instant "at"
	at    time.Duration

	entries []refEntry // window: every charge, at its instant
}

type refEntry struct {
	at     time.Duration
	amount int64
}

func newRefMeter(l bucket.Limit, headroom *big.Rat) *refMeter {
	m := &refMeter{limit: l, capacity: rat(l.Amount)}
	if l.Burst > 0 {
		m.capacity = rat(l.Burst)
	}
	m.capacity.Mul(m.capacity, headroom)
	m.rate = new(big.Rat).Quo(rat(l.Amount), rat(int64(l.Per)))
	m.rate.Mul(m.rate, headroom)
	m.level = new(big.Rat).Set(m.capacity)
	return m
}

func (m *refMeter) clone() *refMeter {
	c := *m
	c.level = new(big.Rat).Set(m.level)
	c.entries = slices.Clone(m.entries)
	return &c
}

// levelAt is what is left at t; a window's may be read only at or after its last event.
func (m *refMeter) levelAt(t time.Duration) *big.Rat {
	if m.limit.Shape == bucket.Window {
		left := new(big.Rat).Set(m.capacity)
		for _, e := range m.entries {
			if e.at <= t && t < e.at+m.limit.Per {
				left.Sub(left, rat(e.amount))
			}
		}
		return left
	}
	l := new(big.Rat).Mul(m.rate, rat(int64(t-m.at)))
	l.Add(l, m.level)
	if l.Cmp(m.capacity) > 0 {
		l.Set(m.capacity)
	}
	return l
}

// fits says whether n may be taken at t: it is there, or the meter is full and n is above all it can hold.
func (m *refMeter) fits(n int64, t time.Duration) bool {
	level := m.levelAt(t)
	if rat(n).Cmp(m.capacity) > 0 {
		return level.Cmp(m.capacity) == 0
	}
	return level.Cmp(rat(n)) >= 0
}

// fitsOverdue says whether a probe may take n at t: its debt stays within one capacity.
func (m *refMeter) fitsOverdue(n int64, t time.Duration) bool {
	after := new(big.Rat).Sub(m.levelAt(t), rat(n))
	return after.Add(after, m.capacity).Sign() >= 0
}

// charge takes n at t and returns where a refund finds it.
func (m *refMeter) charge(n int64, t time.Duration) int {
	if m.limit.Shape == bucket.Window {
		m.entries = append(m.entries, refEntry{t, n})
		return len(m.entries) - 1
	}
	m.setLevel(new(big.Rat).Sub(m.levelAt(t), rat(n)), t)
	return 0
}

// refund gives n back at t; a window gives it back at the instant of the charge.
func (m *refMeter) refund(where int, n int64, t time.Duration) {
	if m.limit.Shape == bucket.Window {
		m.entries[where].amount -= n
		return
	}
	m.setLevel(new(big.Rat).Add(m.levelAt(t), rat(n)), t)
}

func (m *refMeter) setLevel(l *big.Rat, t time.Duration) {
	if l.Cmp(m.capacity) > 0 {
		l = new(big.Rat).Set(m.capacity)
	}
	m.level, m.at = l, t
}
