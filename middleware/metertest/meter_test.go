package metertest

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The models below are slow and plain: a bucket in big rationals, and windows
// that look at every taking there ever was.

type model interface {
	left(at time.Duration) int64
	take(at time.Duration, n int64)
	full(at time.Duration) bool
}

type modelBucket struct {
	amount, burst int64
	per           time.Duration
	level         *big.Rat
	seen          time.Duration
}

func (m *modelBucket) at(t time.Duration) *big.Rat {
	gain := new(big.Rat).Mul(big.NewRat(int64(t-m.seen), int64(m.per)), big.NewRat(m.amount, 1))
	level := new(big.Rat).Add(m.level, gain)
	if brim := big.NewRat(m.burst, 1); level.Cmp(brim) > 0 {
		return brim
	}
	return level
}

func (m *modelBucket) left(at time.Duration) int64 {
	level := m.at(at)
	return new(big.Int).Quo(level.Num(), level.Denom()).Int64()
}

func (m *modelBucket) take(at time.Duration, n int64) {
	m.level = new(big.Rat).Sub(m.at(at), big.NewRat(n, 1))
	m.seen = at
	if m.level.Sign() < 0 {
		m.level = new(big.Rat)
	}
}

func (m *modelBucket) full(at time.Duration) bool { return m.at(at).Cmp(big.NewRat(m.burst, 1)) == 0 }

type modelWindow struct {
	amount      int64
	per, offset time.Duration
	rolling     bool
	log         []taking
}

func (m *modelWindow) counts(t taking, at time.Duration) bool {
	if m.rolling {
		return at-t.at < m.per
	}
	return (t.at+m.offset)/m.per == (at+m.offset)/m.per
}

func (m *modelWindow) left(at time.Duration) int64 {
	n := m.amount
	for _, t := range m.log {
		if m.counts(t, at) {
			n -= t.n
		}
	}
	return n
}

func (m *modelWindow) take(at time.Duration, n int64) { m.log = append(m.log, taking{at, n}) }
func (m *modelWindow) full(at time.Duration) bool     { return m.left(at) == m.amount }

func TestMetersDoWhatTheirModelsDo(t *testing.T) {
	for _, kind := range []Meter{TokenBucket, RollingWindow, FixedWindow} {
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				amount := rapid.Int64Range(1, 50).Draw(t, "amount")
				per := time.Duration(rapid.Int64Range(1, 100).Draw(t, "per"))
				burst, offset := amount, time.Duration(0)
				var m model
				switch kind {
				case TokenBucket:
					burst = rapid.Int64Range(1, 60).Draw(t, "burst")
					m = &modelBucket{amount: amount, burst: burst, per: per, level: big.NewRat(burst, 1)}
				default:
					offset = time.Duration(rapid.Int64Range(0, 200).Draw(t, "offset"))
					m = &modelWindow{amount: amount, per: per, offset: offset, rolling: kind == RollingWindow}
				}
				real := newMeter(kind, 0, amount, burst, per, offset)
				at := time.Duration(0)
				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					at += time.Duration(rapid.Int64Range(0, 40).Draw(t, "passed"))
					n := rapid.Int64Range(0, 70).Draw(t, "n")
					if got, want := real.left(at), m.left(at); got != want {
						t.Fatalf("at %d: left %d, want %d", at, got, want)
					}
					wait := real.wait(at, n)
					most := burst
					if kind != TokenBucket {
						most = amount
					}
					switch {
					case n > most:
						if wait != never {
							t.Fatalf("at %d: %d of at most %d: wait %d, want never", at, n, most, wait)
						}
					case wait == 0 != (m.left(at) >= n):
						t.Fatalf("at %d: wait for %d is %d, but %d are left", at, n, wait, m.left(at))
					case wait > 0:
						if m.left(at+wait) < n || m.left(at+wait-1) >= n {
							t.Fatalf("at %d: wait for %d is %d, which is not the least", at, n, wait)
						}
					}
					if more := real.more(at); more > 0 && (m.left(at+more) <= m.left(at) || m.left(at+more-1) != m.left(at)) || more == 0 && !m.full(at) {
						t.Fatalf("at %d: more after %d", at, more)
					}
					if full := real.full(at); !m.full(at+full) || full > 0 && m.full(at+full-1) {
						t.Fatalf("at %d: full after %d", at, full)
					}
					if wait == 0 {
						real.take(at, n)
						m.take(at, n)
					} else if rapid.Bool().Draw(t, "take what there is") {
						real.takeAtMost(at, 1)
						if kind == TokenBucket || m.left(at) >= 1 {
							m.take(at, 1)
						}
					}
				}
			})
		})
	}
}

// What any window of a bucket admits, and any window at all of a rolling one.
func TestMetersNeverAdmitMoreThanTheyPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Meter{TokenBucket, RollingWindow, FixedWindow}).Draw(t, "kind")
		amount := rapid.Int64Range(1, 20).Draw(t, "amount")
		burst := rapid.Int64Range(1, 20).Draw(t, "burst")
		per := time.Duration(rapid.Int64Range(1, 50).Draw(t, "per"))
		m := newMeter(kind, 0, amount, burst, per, 0)
		var log []taking
		at := time.Duration(0)
		for range 200 {
			at += time.Duration(rapid.Int64Range(0, 5).Draw(t, "passed"))
			n := rapid.Int64Range(1, 5).Draw(t, "n")
			if m.wait(at, n) == 0 {
				m.take(at, n)
				log = append(log, taking{at, n})
			}
		}
		for i := range log {
			sum := int64(0)
			for j := i; j < len(log); j++ {
				sum += log[j].n
				w := log[j].at - log[i].at
				most := int64(math.MaxInt64)
				switch kind {
				case TokenBucket:
					most = burst + int64(w)*amount/int64(per)
				case RollingWindow:
					if w < per {
						most = amount
					}
				case FixedWindow:
					most = amount * (int64(w/per) + 2)
					if log[i].at/per == log[j].at/per {
						most = amount
					}
				}
				if sum > most {
					t.Fatalf("%v: %d in a window of %d, at most %d", kind, sum, w, most)
				}
			}
		}
	})
}

func TestBucketIsExactWhereProductsPass64Bits(t *testing.T) {
	day := 24 * time.Hour
	m := newMeter(TokenBucket, 0, math.MaxInt64/2, 0, day, 0)
	m.take(0, math.MaxInt64/2)
	if got, want := m.left(day/3), int64(math.MaxInt64/2/3); got != want {
		t.Errorf("a third of a day refills %d, want %d", got, want)
	}
	if got := m.full(day / 3); got != day-day/3 {
		t.Errorf("full after %v, want %v", got, day-day/3)
	}
	if got := m.left(math.MaxInt64); got != math.MaxInt64/2 {
		t.Errorf("a century refills to %d, want the brim", got)
	}
	slow := newMeter(TokenBucket, 0, 1, math.MaxInt64, math.MaxInt64, 0)
	slow.take(0, math.MaxInt64)
	if got := slow.wait(0, math.MaxInt64); got != never {
		t.Errorf("a wait of ages is %v, want never", got)
	}
	if got := slow.wait(0, 1); got != math.MaxInt64 {
		t.Errorf("one age is %v", got)
	}
}

func TestResizeKeepsWhatWasTaken(t *testing.T) {
	for _, c := range []struct {
		kind          Meter
		amount, burst int64
		want          int64 // left after 6 of 10 were taken and the meter resized
	}{
		{TokenBucket, 20, 0, 4}, {TokenBucket, 3, 0, 3}, {TokenBucket, 20, 2, 2},
		{RollingWindow, 20, 0, 14}, {RollingWindow, 3, 0, 0},
		{FixedWindow, 20, 0, 14}, {FixedWindow, 3, 0, 0},
	} {
		t.Run(fmt.Sprintf("%v to %d", c.kind, c.amount), func(t *testing.T) {
			m := newMeter(c.kind, 0, 10, 0, time.Minute, 0)
			m.take(time.Second, 6)
			m.resize(time.Second, c.amount, c.burst)
			if got := m.left(time.Second); got != c.want {
				t.Errorf("left %d, want %d", got, c.want)
			}
			if got := m.left(time.Hour); got != max(c.burst, c.amount) && c.burst == 0 {
				t.Errorf("an hour later %d are left, want %d", got, c.amount)
			}
		})
	}
}
