package bucket_test

import (
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

func drawWindow(rt *rapid.T, unit bucket.Unit) bucket.Limit {
	return bucket.Limit{
		Unit:   unit,
		Amount: rapid.Int64Range(1, 40).Draw(rt, "amount"),
		Per:    rapid.SampledFrom(pers).Draw(rt, "per"),
		Shape:  bucket.Window,
	}
}

// The brute force: a take goes through exactly when the log of the last Per, it included, stays within
// Amount; so no window of length Per ever holds more, and whatever fits is admitted at once.
//
// Proved able to fail: let window.expire drop charges at Per-1, or only after Per; admit up to amount+1.
func TestContract02_NoWindowHoldsMoreThanAmountAndWhateverFitsGoesAtOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := drawWindow(rt, bucket.Requests)
		local := newLocal(rt, bucket.Config{Limits: []bucket.Limit{limit}})
		base := time.Now()
		var log []admission
		used := func(from, to time.Duration) (sum int64) { // over (from, to]
			for _, a := range log {
				if from < a.at && a.at <= to {
					sum += a.cost
				}
			}
			return sum
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 80).Draw(rt, "attempts") {
			now += gap(rt, limit)
			cost := rapid.Int64Range(1, limit.Amount).Draw(rt, "cost")
			_, wait := local.TakeAt(base.Add(now), theKey, bucket.Cost{Requests: cost})
			fits := used(now-limit.Per, now)+cost <= limit.Amount
			if fits != (wait == 0) {
				rt.Fatalf("%+v: at %v a take of %d: wait %v, but %d are used", limit, now, cost, wait, used(now-limit.Per, now))
			}
			if wait == 0 {
				log = append(log, admission{now, cost})
				continue
			}
			then := now + wait
			if used(then-limit.Per, then)+cost > limit.Amount || used(then-1-limit.Per, then-1)+cost <= limit.Amount {
				rt.Fatalf("%+v: at %v a take of %d is told to wait %v, not the earliest instant", limit, now, cost, wait)
			}
		}
		for _, a := range log {
			if sum := used(a.at-1, a.at+limit.Per-1); sum > limit.Amount {
				rt.Fatalf("%+v: %d in the window that starts at %v", limit, sum, a.at)
			}
			for _, b := range log { // any window: WorstWindow of its length
				if b.at < a.at {
					continue
				}
				d := b.at - a.at + 1 // the half-open window that just holds both
				if sum, stated := used(a.at-1, b.at), limit.WorstWindow(d); sum > stated {
					rt.Fatalf("%+v: %d admitted within %v, WorstWindow states %d", limit, sum, d, stated)
				}
			}
		}
	})
}

// Settlement in a window: a refund acts at the instant of the admission (it expires with it), an extra
// charge at the instant of settlement (it stays a whole Per from then).
//
// Proved able to fail: take the refund off the newest charge of the log; add the extra to the admission's
// own charge.
func TestContract02_RefundsActAtAdmissionAndExtrasAtSettlement(t *testing.T) {
	checkAgainstReference(t, func(rt *rapid.T) bucket.Config {
		limit := drawWindow(rt, bucket.Tokens)
		limit.Per = 10 * time.Second
		return bucket.Config{MaxWait: -1, Limits: []bucket.Limit{limit}}
	}, func(rt *rapid.T, cfg bucket.Config) mix {
		return mix{
			steps: 50, end: time.Minute,
			pace:  []time.Duration{0, 0, time.Millisecond, time.Second, 3 * time.Second, 9 * time.Second},
			verbs: []verb{arrive, arrive, arrive, settle, settle, unsent, giveUp},
			costs: func(rt *rapid.T) bucket.Cost {
				return bucket.Cost{InputTokens: rapid.Int64Range(1, cfg.Limits[0].Amount).Draw(rt, "cost")}
			},
			truth: func(rt *rapid.T, c bucket.Cost) bucket.Cost {
				return bucket.Cost{InputTokens: rapid.Int64Range(0, 2*c.InputTokens).Draw(rt, "truth")}
			},
		}
	})
}

// The reason for the shape: in the first minute a token bucket of a full minute's burst admits nearly twice
// the limit, a window never.
//
// Proved able to fail: give a Window a cell in newMeter; drop WorstWindow's case of a Window.
func TestContract02_TheFirstMinuteOfAFullBucketAndOfAWindow(t *testing.T) {
	greedy := func(limit bucket.Limit, d time.Duration) (taken int64) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{limit}})
		base := time.Now()
		for now := time.Duration(0); now < d && taken < 1000; {
			_, wait := local.TakeAt(base.Add(now), theKey, bucket.Cost{Requests: 1})
			if wait == 0 {
				taken++
			}
			now += wait
		}
		return taken
	}
	minute := bucket.PerMinute(bucket.Requests, 60)
	if n := greedy(minute, time.Minute); n != 119 {
		t.Errorf("a token bucket admits %d in the first minute, want 60 + 59", n)
	}
	minute.Shape = bucket.Window
	for d, want := range map[time.Duration]int64{time.Minute: 60, time.Minute + 1: 120, 2 * time.Minute: 120, time.Second: 60} {
		if n := greedy(minute, d); n != want {
			t.Errorf("a window admits %d in the first %v, want %d", n, d, want)
		}
		if n := minute.WorstWindow(d); n != want {
			t.Errorf("WorstWindow(%v) of a window is %d, want %d", d, n, want)
		}
	}
}

// A Window has no burst, and says so.
//
// Proved able to fail: drop the case from Limit.Validate.
func TestContract02_AWindowWithABurstIsRefused(t *testing.T) {
	limit := bucket.Limit{Unit: bucket.Requests, Amount: 5, Per: time.Second, Burst: 5, Shape: bucket.Window}
	if limit.Validate() == nil {
		t.Error("Validate accepts a Window with a Burst")
	}
	if _, err := bucket.New(bucket.Config{Limits: []bucket.Limit{limit}}); err == nil {
		t.Error("New accepts a Window with a Burst")
	}
	limit.Burst = 0
	if err := limit.Validate(); err != nil {
		t.Error(err)
	}
}
