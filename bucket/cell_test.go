package bucket

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// exactCell is a cell in rational numbers.
type exactCell struct {
	rate, brim, level *big.Rat
	at                int64
}

func newExactCell(l Limit, headroom int64) *exactCell {
	scale := big.NewRat(headroom, headroomSteps)
	e := &exactCell{
		rate: new(big.Rat).Mul(big.NewRat(l.Amount, int64(l.Per)), scale),
		brim: new(big.Rat).Mul(new(big.Rat).SetInt64(l.capacity()), scale),
	}
	if one := big.NewRat(1, 1); e.brim.Cmp(one) < 0 {
		e.brim = one
	}
	e.level = new(big.Rat).Set(e.brim)
	return e
}

func (e *exactCell) cap() {
	if e.level.Cmp(e.brim) > 0 {
		e.level.Set(e.brim)
	}
}

func (e *exactCell) refill(now int64) {
	e.level.Add(e.level, new(big.Rat).Mul(e.rate, new(big.Rat).SetInt64(now-e.at)))
	e.at = now
	e.cap()
}

func (e *exactCell) add(tokens int64) {
	e.level.Add(e.level, new(big.Rat).SetInt64(tokens))
	e.cap()
}

func drawLimit(t *rapid.T, most int64) Limit {
	l := Limit{
		Amount: rapid.Int64Range(1, most).Draw(t, "amount"),
		Per: rapid.OneOf(
			rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}),
			rapid.Map(rapid.Int64Range(1, int64(48*time.Hour)), func(n int64) time.Duration { return time.Duration(n) }),
		).Draw(t, "per"),
	}
	if rapid.Bool().Draw(t, "has burst") {
		l.Burst = rapid.Int64Range(1, most).Draw(t, "burst")
	}
	return l
}

// A cell that counts single nanoseconds is equal to the rational one at every step, and wakes in the
// nanosecond; one that had to be coarser is never ahead of it.
func TestCellIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t, 5_000_000)
		headroom := rapid.SampledFrom([]int64{headroomSteps, 9000, 8750, 3333, 1}).Draw(t, "headroom")
		c, e := newCell(l, headroom), newExactCell(l, headroom)
		exact := c.step == 1 && big.NewRat(c.num, c.den).Cmp(e.rate) == 0
		now := rapid.Int64Range(-1e15, 1e15).Draw(t, "start")
		e.at = now
		c.refill(now)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 1e9), rapid.Int64Range(0, 1e14)).Draw(t, "dt")
			n := rapid.Int64Range(0, 2*l.capacity()).Draw(t, "tokens")
			c.refill(now)
			e.refill(now)
			deep := c.level-c.units(n) < -16*c.brim // another brim or two below and it is clamped
			if rapid.Bool().Draw(t, "charge") && !deep {
				c.charge(n)
				e.add(-n)
			} else {
				c.refund(n)
				e.add(n)
			}
			got := big.NewRat(c.level, c.den)
			if exact {
				if got.Cmp(e.level) != 0 {
					t.Fatalf("level %v, want %v", got.FloatString(6), e.level.FloatString(6))
				}
			} else if got.Cmp(e.level) > 0 {
				t.Fatalf("level %v is above %v", got.FloatString(6), e.level.FloatString(6))
			}
			cost := rapid.Int64Range(1, l.capacity()).Draw(t, "cost")
			at := max(c.reach(c.need(cost)), now)
			want := new(big.Rat).SetInt64(min(cost, c.room))
			if cost > c.room {
				want = e.brim
			}
			level := func(at int64) *big.Rat {
				f := *e
				f.level = new(big.Rat).Set(e.level)
				f.refill(at)
				return f.level
			}
			if at < never && level(at).Cmp(want) < 0 {
				t.Fatalf("at %d the level is %v, not %v yet", at, level(at), want)
			}
			if at > now && exact && level(at-1).Cmp(want) >= 0 {
				t.Fatalf("a nanosecond before %d the level is %v already", at, level(at-1))
			}
		}
	})
}

// No limit is so odd that its cell overflows, stands still, or refills too fast by a millionth.
func TestCellFitsEveryLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		any := rapid.OneOf(rapid.Int64Range(1, math.MaxInt64), rapid.Int64Range(1, 1e6))
		l := Limit{Amount: any.Draw(t, "amount"), Per: time.Duration(any.Draw(t, "per")), Burst: any.Draw(t, "burst")}
		headroom := rapid.Int64Range(1, headroomSteps).Draw(t, "headroom")
		c := newCell(l, headroom)
		if c.brim <= 0 || c.brim > maxBrim || c.num <= 0 || c.num > maxBrim || c.den <= 0 || c.step <= 0 || c.room < 1 || c.level != c.brim {
			t.Fatalf("%+v makes %+v", l, c)
		}
		e := newExactCell(l, headroom)
		if l.capacity() < maxBrim {
			if room := new(big.Int).Quo(e.brim.Num(), e.brim.Denom()); room.Int64() != c.room {
				t.Fatalf("room %d, want %v", c.room, room)
			}
		}
		// num/den/step <= rate, or a brim in a step.
		rate := big.NewRat(c.num, c.den)
		rate.Quo(rate, new(big.Rat).SetInt64(c.step))
		if rate.Cmp(e.rate) > 0 && c.num > 1 {
			t.Fatalf("rate %v is above %v", rate, e.rate)
		}
		c.charge(maxCost)
		c.charge(maxCost)
		if c.level < floor {
			t.Fatal("deeper than the floor")
		}
		c.refill(never)
		c.refund(maxCost)
		if c.level > c.brim {
			t.Fatal("above the brim")
		}
		if at := c.reach(c.brim); at > never || at < c.at {
			t.Fatalf("reach = %d", at)
		}
	})
}

func TestCellKeepsItsTokensWhenResized(t *testing.T) {
	c := newCell(PerMinute(Tokens, 600), headroomSteps)
	c.refill(0)
	c.charge(250)
	for _, tt := range []struct {
		amount int64
		want   float64
	}{{400, 350}, {997, 350}, {300, 300}, {600, 300}} {
		c.resize(newCell(PerMinute(Tokens, tt.amount), headroomSteps))
		if got := float64(c.level) / float64(c.den); math.Abs(got-tt.want) > 1e-6 || got > tt.want {
			t.Errorf("after %d: %v tokens, want %v", tt.amount, got, tt.want)
		}
	}
}

// What a new unit cannot express is rounded against the caller: less than one unit, down.
func TestResizingMintsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCell(drawLimit(t, 5000), headroomSteps)
		c.refill(0)
		c.charge(rapid.Int64Range(0, 3*c.room).Draw(t, "charge"))
		c.refill(rapid.Int64Range(0, 1e10).Draw(t, "later"))
		was := big.NewRat(c.level, c.den)
		c.resize(newCell(drawLimit(t, 5000), 9000))
		if brim := big.NewRat(c.brim, c.den); was.Cmp(brim) > 0 {
			was = brim
		}
		lost := new(big.Rat).Sub(was, big.NewRat(c.level, c.den))
		if lost.Sign() < 0 || lost.Cmp(big.NewRat(1, c.den)) >= 0 {
			t.Fatalf("%v became %d/%d", was, c.level, c.den)
		}
	})
}
