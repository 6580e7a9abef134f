package bucket

import (
	"math/big"
	"math/bits"
)

// A cell is the level of one token bucket in exact integers. The level is counted in units of
// 1/den token, chosen so that a nanosecond (a step, in general) refills num whole units and that
// the brim is whole too: nothing is ever rounded, so a call leaves neither a nanosecond early nor,
// for want of a fraction, late.
type cell struct {
	level int64 // units; below zero is debt
	brim  int64 // units it holds at most, at most maxBrim
	at    int64 // the instant that level is for
	num   int64 // units that a step refills
	step  int64 // nanoseconds; 1 for every ordinary limit
	den   int64 // units in a token
	room  int64 // whole tokens in the brim
}

const (
	// maxBrim leaves room for a debt of thirty-two brims above floor.
	maxBrim = int64(1) << 57
	// floor is the deepest debt there is.
	floor = -int64(1) << 62
	// maxStep is how coarse a limit's time may become for the sake of an exact rate.
	maxStep = 1_000_000
)

// newCell returns the full cell of limit l, scaled by headroom/headroomSteps.
//
// Where a rate is so odd and a brim so large that exact units do not fit an int64, the step is
// made longer: the refill then comes in lumps of a few nanoseconds, never early. Where that is not
// enough the rate is rounded down, by less than one part in a million.
func newCell(l Limit, headroom int64) cell {
	scale := big.NewRat(headroom, headroomSteps)
	rate := new(big.Rat).Mul(big.NewRat(l.Amount, int64(l.Per)), scale)
	brim := new(big.Rat).Mul(new(big.Rat).SetInt64(l.capacity()), scale)
	if brim.Cmp(big.NewRat(1, 1)) < 0 {
		brim.SetInt64(1)
	}
	room := new(big.Int).Quo(brim.Num(), brim.Denom())
	for step := int64(1); step <= maxStep; step *= 10 {
		perStep := new(big.Rat).Mul(rate, new(big.Rat).SetInt64(step))
		den := perStep.Denom()
		if step == 1 { // the brim is to be whole too: the least common multiple
			gcd := new(big.Int).GCD(nil, nil, den, brim.Denom())
			den = new(big.Int).Mul(den, new(big.Int).Quo(brim.Denom(), gcd))
		}
		if c, ok := fitCell(perStep, brim, den, step); ok {
			c.room = room.Int64()
			return c
		}
	}
	return coarseCell(rate, brim)
}

// fitCell returns the cell of the given unit, if it fits; rounded down where den does not divide.
func fitCell(perStep, brim *big.Rat, den *big.Int, step int64) (cell, bool) {
	units := func(r *big.Rat) *big.Int {
		n := new(big.Int).Mul(r.Num(), den)
		return n.Quo(n, r.Denom())
	}
	n, b := units(perStep), units(brim)
	most := big.NewInt(maxBrim)
	if b.Cmp(most) > 0 || !den.IsInt64() {
		return cell{}, false
	}
	if n.Cmp(most) > 0 {
		n = most // full within a step either way
	}
	return cell{level: b.Int64(), brim: b.Int64(), at: dawn, num: n.Int64(), step: step, den: den.Int64()}, true
}

// coarseCell is for limits that no exact cell fits: amounts of some 10^13 a minute and more.
func coarseCell(rate, brim *big.Rat) cell {
	most := new(big.Rat).SetInt64(maxBrim)
	if brim.Cmp(most) > 0 {
		brim = most // thousands of calls of maxCost
	}
	den := big.NewInt(1)
	for {
		double := new(big.Int).Lsh(den, 1)
		if new(big.Rat).Mul(brim, new(big.Rat).SetInt(double)).Cmp(most) > 0 {
			break
		}
		den = double
	}
	for step := int64(1); ; step *= 10 {
		perStep := new(big.Rat).Mul(rate, new(big.Rat).SetInt64(step))
		c, _ := fitCell(perStep, brim, den, step)
		if c.num >= 1<<20 || step > never/10 {
			c.num = max(c.num, 1)
			c.room = c.brim / c.den
			return c
		}
	}
}

// refill brings the level to now.
func (c *cell) refill(now int64) {
	dt := now - c.at
	if dt <= 0 {
		return
	}
	if c.step != 1 {
		dt /= c.step
	}
	hi, lo := bits.Mul64(uint64(c.num), uint64(dt))
	if hi != 0 || lo >= uint64(c.brim-c.level) {
		c.level, c.at = c.brim, now
		return
	}
	c.level += int64(lo)
	c.at += dt * c.step
}

// units is tokens in units, at most -floor.
func (c *cell) units(tokens int64) int64 {
	hi, lo := bits.Mul64(uint64(tokens), uint64(c.den))
	if hi != 0 || lo > uint64(-floor) {
		return -floor
	}
	return int64(lo)
}

// need is the level at which a call of cost may leave: its cost, or the brim where that is less.
func (c *cell) need(cost int64) int64 {
	if cost > c.room {
		return c.brim
	}
	return cost * c.den
}

// reach is the first instant at which the level is at least want units, if nothing is charged
// until then; a brim is no bar to it.
func (c *cell) reach(want int64) int64 {
	if c.level >= want {
		return c.at
	}
	missing := uint64(want - c.level)
	steps := (missing + uint64(c.num) - 1) / uint64(c.num)
	return later(c.at, satMul(int64(steps), c.step))
}

// span is how long tokens, no more than room, take to be refilled.
func (c *cell) span(tokens int64) int64 {
	steps := (uint64(tokens*c.den) + uint64(c.num) - 1) / uint64(c.num)
	return satMul(int64(steps), c.step)
}

// charge takes tokens, into debt if need be. The level is that of now.
func (c *cell) charge(tokens int64) {
	if c.level >= 0 && tokens <= c.room {
		c.level -= tokens * c.den
		return
	}
	c.level = max(c.level-c.units(tokens), floor)
}

// refund gives tokens back, up to the brim. The level may be an older one: what a refund and the
// refill since then make of it does not depend on their order.
func (c *cell) refund(tokens int64) { c.level = min(c.level+c.units(tokens), c.brim) }

// resize gives the cell the rate and brim of to and keeps its tokens, up to the new brim.
func (c *cell) resize(to cell) {
	to.at = c.at
	owed := c.level < 0
	level := uint64(c.level)
	if owed {
		level = -level
	}
	hi, lo := bits.Mul64(level, uint64(to.den))
	var units int64
	if hi >= uint64(c.den) {
		units = -floor
	} else {
		q, r := bits.Div64(hi, lo, uint64(c.den))
		if owed && r > 0 {
			q++ // a debt is not rounded away
		}
		units = int64(min(q, uint64(-floor)))
	}
	if owed {
		units = -units
	}
	to.level = min(units, to.brim)
	*c = to
}
