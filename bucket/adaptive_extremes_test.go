package bucket_test

import (
	"encoding/json"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Whatever the limits and the hints, a refusal comes to an end, nobody waits for a negative time, and what is
// learned can be given back.
//
// Proved able to fail: let a period be as long as it likes, which turns for ever; bound what is Configured by 2^44.
func TestAdaptiveBearsTheLargestNumbers(t *testing.T) {
	many := []int64{1, 1000, 1 << 44, math.MaxInt64}
	for _, per := range []time.Duration{1, time.Millisecond, 1 << 61, 1 << 62, math.MaxInt64} {
		for _, amount := range many {
			for _, burst := range append(many, 0) {
				limit := bucket.Limit{Unit: bucket.Requests, Amount: amount, Per: per, Burst: burst}
				for _, hint := range []time.Duration{0, 1, time.Minute, 1 << 61, math.MaxInt64} {
					synctest.Test(t, func(t *testing.T) { refuseAll(t, limit, hint) })
				}
			}
		}
	}
}

// refuseAll has a few calls of one limit refused, and gives back what that has taught.
func refuseAll(t *testing.T, limit bucket.Limit, hint time.Duration) {
	config := adaptive(limit)
	local := newLocal(t, config)
	for range 4 {
		g, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
		if wait < 0 {
			t.Fatalf("%+v, %v: a wait of %v", limit, hint, wait)
		}
		if wait == 0 {
			time.Sleep(10 * time.Millisecond)
			g.RefusedHinted(time.Second, hint)
		}
		time.Sleep(min(wait, time.Hour) + time.Second)
	}
	text, err := json.Marshal(local.Learned())
	if err == nil {
		err = json.Unmarshal(text, &config.Learned)
	}
	if err == nil {
		err = config.Validate()
	}
	if err != nil {
		t.Fatalf("%+v, %v: %v", limit, hint, err)
	}
	newLocal(t, config).TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
}

// A window that ended a century and a half ago is over.
//
// Proved able to fail: look again for the end of the last window there is.
func TestAdaptiveBearsTheEndOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
		taking(local, 1, 0)[0].RefusedHinted(40*time.Second, 40*time.Second)
		for _, years := range []int{100, 150} {
			g, wait := local.TakeAt(time.Now().AddDate(years, 0, 0), theKey, bucket.Cost{Requests: 1})
			if wait > 0 {
				t.Fatalf("a wait of %v after %d years", wait, years)
			}
			serveAll([]bucket.Grant{g})
		}
	})
}

// A crowd that is refused after the limits have been changed says nothing of the new ones.
//
// Proved able to fail: leave in relearn what was blamed, which is out of range then.
func TestACrowdOfLimitsThatAreNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := bucket.PerMinute(bucket.Tokens, 60_000)
		local := newLocal(t, adaptive(tokens, bucket.PerMinute(bucket.Requests, 600)))
		grants := taking(local, 12, time.Second)
		time.Sleep(20 * time.Millisecond)
		grants[11].RefusedHinted(time.Second, time.Second)
		if err := local.SetLimits(theKey, tokens); err != nil {
			t.Fatal(err)
		}
		grants[10].RefusedHinted(time.Second, time.Second)
		if k := local.Learned()[theKey]; len(k.Limits) != 1 || k.Limits[0].Burst != 0 {
			t.Errorf("learned %+v", k)
		}
	})
}
