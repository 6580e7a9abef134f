package bucket_test

import (
	"math"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

const century = 100 * 365 * 24 * time.Hour

// A clock that jumps to and fro mints nothing: a take at an instant before the latest one seen is a take at
// the latest one.
//
// Proved able to fail: let the key's clock, and the instant of its level, go back with the caller's.
func TestContract13_AClockThatStepsBackMintsNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limits := []bucket.Limit{drawTokenBucket(rt, bucket.Requests)}
		if rapid.Bool().Draw(rt, "window") {
			limits[0] = drawWindow(rt, bucket.Requests)
		}
		local := newLocal(rt, bucket.Config{Limits: limits})
		model := newRefMeter(limits[0], big.NewRat(1, 1))
		model.at = -never // full, whenever the first take is
		base := time.Now()
		latest, now := -never, time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(rt, "attempts") {
			if g := gap(rt, limits[0]); rapid.Bool().Draw(rt, "back") {
				now -= g
			} else {
				now += g
			}
			latest = max(latest, now)
			cost := rapid.Int64Range(1, capacityOf(limits[0])).Draw(rt, "cost")
			_, wait := local.TakeAt(base.Add(now), theKey, bucket.Cost{Requests: cost})
			if fits := model.fits(cost, latest); fits != (wait == 0) {
				rt.Fatalf("%+v: at %v, after %v, a take of %d: wait %v, but the level is %v", limits[0], now, latest, cost, wait, model.levelAt(latest))
			}
			if wait == 0 {
				model.charge(cost, latest)
			}
		}
	})
}

// Numbers of any size: no panic, nothing minted, no cost that wraps into a refund.
//
// Proved able to fail: let the costs of Tokens be summed without a bound; drop the clamp at the brim.
func TestContract13_NoNumberOverflows(t *testing.T) {
	big64 := rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, math.MaxInt64), rapid.Int64Range(math.MaxInt64-3, math.MaxInt64),
		rapid.SampledFrom([]int64{1 << 31, 1 << 32, 1 << 53, 1 << 60, 1<<62 + 1}))
	rapid.Check(t, func(rt *rapid.T) {
		limit := bucket.Limit{Unit: bucket.Tokens, Amount: big64.Draw(rt, "amount"), Per: time.Duration(big64.Draw(rt, "per"))}
		if rapid.Bool().Draw(rt, "window") {
			limit.Shape = bucket.Window
		} else if rapid.Bool().Draw(rt, "burst") {
			limit.Burst = big64.Draw(rt, "burst")
		}
		top := capacityOf(limit)
		local := newLocal(rt, bucket.Config{Limits: []bucket.Limit{limit}})
		base, now := time.Now(), time.Duration(0)
		sum := new(big.Int)
		for range rapid.IntRange(1, 30).Draw(rt, "attempts") {
			step := rapid.Int64Range(0, 1<<58).Draw(rt, "gap") >> rapid.IntRange(0, 58).Draw(rt, "shift")
			now += time.Duration(step)
			cost := min(big64.Draw(rt, "cost"), top, 1<<44) // beyond that a component is not told apart
			_, wait := local.TakeAt(base.Add(now), theKey, bucket.Cost{InputTokens: cost / 2, OutputTokens: cost - cost/2})
			if wait < 0 {
				rt.Fatalf("%+v: a wait of %v", limit, wait)
			}
			if wait == 0 {
				sum.Add(sum, big.NewInt(cost))
			}
		}
		most := new(big.Rat).Mul(big.NewRat(limit.Amount, int64(limit.Per)), rat(int64(now)))
		most.Add(most, rat(top))
		if limit.Shape == bucket.Window {
			most = new(big.Rat).Mul(rat(limit.Amount), rat(int64(now/limit.Per)+1))
		}
		if new(big.Rat).SetInt(sum).Cmp(most) > 0 {
			rt.Fatalf("%+v: %v admitted within %v, at most %s may be", limit, sum, now, most.FloatString(1))
		}
		// costs beyond all measure neither wrap nor refund
		_, wait := local.TakeAt(base.Add(now), theKey, bucket.Cost{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64})
		if wait == 0 && top < 1<<44 {
			if _, wait := local.TakeAt(base.Add(now), theKey, bucket.Cost{InputTokens: 1}); wait <= 0 {
				rt.Fatalf("%+v: a take out of the debt of an endless cost", limit)
			}
		}
	})
}

// A century idle overflows nothing: the bucket is full, no more.
//
// Proved able to fail: let an overdue head leave under a hold; start the cell empty.
func TestContract13_ACenturyIdle(t *testing.T) {
	limits := []bucket.Limit{bucket.PerMinute(bucket.Requests, 60), {Unit: bucket.Tokens, Amount: math.MaxInt64, Per: time.Nanosecond},
		{Unit: bucket.InputTokens, Amount: 1_000_000_007, Per: time.Hour, Burst: math.MaxInt64},
		{Unit: bucket.OutputTokens, Amount: 60, Per: time.Minute, Shape: bucket.Window}}
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: limits})
		pour := func() {
			n := 0
			for range 1000 {
				if _, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1, InputTokens: 1, OutputTokens: 1}); wait == 0 {
					n++
				}
			}
			if n != 60 {
				t.Errorf("%d taken in an instant, want 60", n)
			}
		}
		pour()
		time.Sleep(century)
		pour()
		// a hold until beyond the end of time does not end early
		local.Hold(theKey, time.Now().Add(math.MaxInt64))
		went := arriveInBackground(t, local, bucket.Cost{Requests: 1})
		time.Sleep(century / 10)
		if _, done := went(); done {
			t.Error("admitted under a hold until the end of time")
		}
	})
}

// Rate times time of exactly 2^64: an empty bucket is full again, not still empty.
//
// Proved able to fail: multiply rate and time in 64 bits.
func TestContract13_AProductBeyond64BitsFills(t *testing.T) {
	for _, limit := range []bucket.Limit{
		{Unit: bucket.Requests, Amount: 1 << 30, Per: 1},
		{Unit: bucket.Requests, Amount: 1 << 40, Per: 1024, Burst: 1 << 42},
	} {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{limit}})
		now := time.Now()
		for i, n := range []int64{capacityOf(limit), capacityOf(limit)} {
			if _, wait := local.TakeAt(now, theKey, bucket.Cost{Requests: n}); wait != 0 {
				t.Errorf("%+v: take %d of all there is: wait %v", limit, i, wait)
			}
			now = now.Add(1 << 34)
		}
	}
}

// The clock's base is the Local's own: one made long after another, in the same process, has as
// much time before it.
//
// Proved able to fail: keep the base in a package variable.
func TestContract13_TheBaseIsTheLocals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 3 { // a bubble's clock ends in 2262
			local := newLocal(t, bucket.Config{MaxWait: -1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}})
			for range 2 {
				time.Sleep(century * 2 / 5)
				if _, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1}); wait != 0 {
					t.Fatalf("Local %d: a full bucket lets nobody take: wait %v", i, wait)
				}
				start := time.Now()
				if _, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1}); err != nil || time.Since(start) != time.Minute {
					t.Fatalf("Local %d: left after %v, %v, want 1m", i, time.Since(start), err)
				}
			}
		}
	})
}
