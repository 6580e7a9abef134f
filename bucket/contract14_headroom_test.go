package bucket_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

// Amount and Burst are scaled by Headroom, exactly: a take is let through when the exact level of the scaled
// limit covers it, and after the exact wait.
//
// Proved able to fail: scale only the rate, only the brim, or no Window; take 0 for 0.9.
func TestContract14_HeadroomScalesAmountAndBurst(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := drawTokenBucket(rt, bucket.Requests)
		if rapid.Bool().Draw(rt, "window") {
			limit = drawWindow(rt, bucket.Requests)
		}
		limit.Amount, limit.Burst = 10*limit.Amount, 10*limit.Burst
		headroom := rapid.SampledFrom([]float64{0, 1, 0.9, 0.5, 0.75, 0.3, 0.99, 0.1}).Draw(rt, "headroom")
		share := big.NewRat(int64(math.Round(headroom*10_000)), 10_000)
		if headroom == 0 {
			share = big.NewRat(1, 1)
		}
		local := newLocal(rt, bucket.Config{Limits: []bucket.Limit{limit}, Headroom: headroom})
		model := newRefMeter(limit, share)
		top, _ := model.capacity.Float64()
		base, now := time.Now(), time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(rt, "attempts") {
			now += gap(rt, limit)
			cost := rapid.Int64Range(1, int64(top)).Draw(rt, "cost")
			_, wait := local.TakeAt(base.Add(now), theKey, bucket.Cost{Requests: cost})
			if fits := model.fits(cost, now); fits != (wait == 0) {
				rt.Fatalf("%+v at %v: at %v a take of %d: wait %v, but the level is %v", limit, headroom, now, cost, wait, model.levelAt(now).FloatString(9))
			}
			if wait == 0 {
				model.charge(cost, now)
			} else if !model.fits(cost, now+wait) || model.fits(cost, now+wait-1) {
				rt.Fatalf("%+v at %v: at %v a take of %d is told to wait %v, not the earliest instant", limit, headroom, now, cost, wait)
			}
		}
	})
}

// Proved able to fail: drop the case from Config.Validate.
func TestContract14_HeadroomIsAboveZeroAndAtMostOne(t *testing.T) {
	for headroom, ok := range map[float64]bool{0: true, 1: true, 0.9: true, 0.0001: true, -0.1: false, 1.0001: false, 2: false,
		math.Inf(1): false, math.Inf(-1): false} {
		if err := (bucket.Config{Headroom: headroom}).Validate(); (err == nil) != ok {
			t.Errorf("Headroom %v: %v", headroom, err)
		}
	}
	if (bucket.Config{Headroom: math.NaN()}).Validate() == nil {
		t.Error("Headroom NaN is valid")
	}
}
