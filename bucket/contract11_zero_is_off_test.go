package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

// Without limits nothing is charged and nobody waits for a level, whatever it costs; holds, ramps and
// MaxInFlight still apply, as the reference has it.
//
// Proved able to fail: let a call leave at once when there are no limits.
func TestContract11_NoLimitsChargeNothingButHoldsRampsAndSlotsApply(t *testing.T) {
	checkAgainstReference(t, func(rt *rapid.T) bucket.Config {
		return bucket.Config{MaxWait: -1, MaxInFlight: rapid.SampledFrom([]int{0, 1, 3}).Draw(rt, "slots")}
	}, func(*rapid.T, bucket.Config) mix {
		m := holdMix()
		m.costs = func(rt *rapid.T) bucket.Cost {
			return bucket.Cost{Requests: rapid.Int64Range(0, 1<<62).Draw(rt, "requests"), InputTokens: rapid.Int64Range(0, 1<<62).Draw(rt, "tokens")}
		}
		return m
	})
}

// The zero Config admits everything at once.
//
// Proved able to fail: give the zero Config a limit.
func TestContract11_TheZeroConfigIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{})
		start := time.Now()
		for range 10_000 {
			if _, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1, InputTokens: 1 << 40}); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("took %v", d)
		}
		if s, ok := local.Stats(theKey); !ok || s.InFlight != 10_000 || len(s.Levels) != 0 {
			t.Errorf("stats %+v (%v), want 10,000 in flight and no level", s, ok)
		}
	})
}
