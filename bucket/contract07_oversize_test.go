package bucket_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

func oversizeMix(top int64) mix {
	return mix{
		steps: 40, end: 10 * time.Minute,
		pace:  []time.Duration{0, 0, 0, 10 * time.Millisecond, time.Second, 20 * time.Second},
		verbs: []verb{arrive, arrive, arrive, giveUp, settle},
		costs: func(rt *rapid.T) bucket.Cost {
			return bucket.Cost{Requests: 1, InputTokens: rapid.SampledFrom([]int64{1, top / 2, top, top + 1, 2 * top, 3*top + 1}).Draw(rt, "tokens")}
		},
	}
}

func drawOversizeLimits(rt *rapid.T) []bucket.Limit {
	limits := []bucket.Limit{{Unit: bucket.Tokens, Amount: 20, Per: 10 * time.Second, Burst: rapid.SampledFrom([]int64{0, 10, 40}).Draw(rt, "burst")}}
	if rapid.Bool().Draw(rt, "requests too") {
		limits = append(limits, bucket.Limit{Unit: bucket.Requests, Amount: 3, Per: 10 * time.Second})
	}
	return limits
}

// A cost above capacity waits for its turn and for a full bucket, leaves a debt of all it costs, and those
// behind it wait for the debt; nobody waits for ever, every waiter leaves when the reference says.
//
// Proved able to fail: let it wait for a level of its cost; admit it at any level; charge it no more than
// the capacity.
func TestContract07_TooBigIsAdmittedAloneFromAFullBucket(t *testing.T) {
	checkAgainstReference(t, func(rt *rapid.T) bucket.Config {
		return bucket.Config{MaxWait: -1, Limits: drawOversizeLimits(rt)}
	}, func(rt *rapid.T, cfg bucket.Config) mix { return oversizeMix(capacityOf(cfg.Limits[0])) })

	rapid.Check(t, func(rt *rapid.T) { // with the reference's word that nobody is left behind
		cfg := bucket.Config{MaxWait: -1, Limits: drawOversizeLimits(rt)}
		steps, _, end := drawSchedule(rt, cfg, oversizeMix(capacityOf(cfg.Limits[0])))
		p := play(t, cfg, steps, end+24*time.Hour)
		for id, f := range p.fates {
			if f.what == "waiting" {
				tell(rt, cfg, steps, []string{sprintf("#%d waits for ever", id)})
			}
		}
	})
}

// By option it is refused at once, before it queues, with an error that says cost and limit; others are not
// disturbed.
//
// Proved able to fail: queue it all the same; refuse a cost equal to the capacity.
func TestContract07_OversizeRefuseSaysSoAtOnce(t *testing.T) {
	checkAgainstReference(t, func(rt *rapid.T) bucket.Config {
		return bucket.Config{MaxWait: -1, Limits: drawOversizeLimits(rt), Oversize: bucket.OversizeRefuse}
	}, func(rt *rapid.T, cfg bucket.Config) mix { return oversizeMix(capacityOf(cfg.Limits[0])) })

	local := newLocal(t, bucket.Config{Oversize: bucket.OversizeRefuse, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}})
	_, err := local.Acquire(t.Context(), theKey, bucket.Cost{InputTokens: 1000, OutputTokens: 1})
	var e *bucket.OversizeError
	if !errors.Is(err, bucket.ErrOversize) || !errors.As(err, &e) || *e != (bucket.OversizeError{Key: theKey, Unit: bucket.Tokens, Cost: 1001, Capacity: 1000}) {
		t.Errorf("got %#v, want an *OversizeError of 1001 tokens above 1000", err)
	}
}

// In a window as well: alone, and whoever comes after it waits until it has left the window.
//
// Proved able to fail: let it wait for room for its cost, which never comes; admit it at once.
func TestContract07_TooBigForAWindowGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxWait: -1, Limits: []bucket.Limit{{Unit: bucket.Tokens, Amount: 100, Per: time.Minute, Shape: bucket.Window}}})
		start := time.Now()
		small := arriveInBackground(t, local, bucket.Cost{InputTokens: 1})
		time.Sleep(time.Second)
		big := arriveInBackground(t, local, bucket.Cost{InputTokens: 150})
		after := arriveInBackground(t, local, bucket.Cost{InputTokens: 1})
		time.Sleep(24 * time.Hour)
		if at, done := small(); !done || at.Sub(start) != 0 {
			t.Errorf("the small one left: %v at %v", done, at.Sub(start))
		}
		if at, done := big(); !done || at.Sub(start) != time.Minute {
			t.Errorf("the big one left: %v at %v, want 1m, when the window was empty", done, at.Sub(start))
		}
		if at, done := after(); !done || at.Sub(start) < 2*time.Minute {
			t.Errorf("the one behind it left: %v at %v, want 2m or later", done, at.Sub(start))
		}
	})
}
