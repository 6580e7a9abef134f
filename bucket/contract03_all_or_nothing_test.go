package bucket_test

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

// drawLimits draws two to four limits of one key, buckets and windows, on all units.
func drawLimits(rt *rapid.T) []bucket.Limit {
	var out []bucket.Limit
	for range rapid.IntRange(2, 4).Draw(rt, "limits") {
		l := bucket.Limit{
			Unit:   rapid.SampledFrom([]bucket.Unit{bucket.Requests, bucket.Tokens, bucket.InputTokens, bucket.OutputTokens}).Draw(rt, "unit"),
			Amount: rapid.Int64Range(5, 60).Draw(rt, "amount"),
			Per:    rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, time.Minute}).Draw(rt, "per"),
			Shape:  rapid.SampledFrom([]bucket.Shape{bucket.TokenBucket, bucket.TokenBucket, bucket.Window}).Draw(rt, "shape"),
		}
		if l.Shape == bucket.TokenBucket {
			l.Burst = rapid.SampledFrom([]int64{0, 0, 5, 100}).Draw(rt, "burst")
		}
		out = append(out, l)
	}
	return out
}

// smallCost costs at least one in every unit and, with the smallest limits above, never more than fits.
func smallCost(rt *rapid.T) bucket.Cost {
	return bucket.Cost{
		Requests:     rapid.Int64Range(1, 5).Draw(rt, "requests"),
		InputTokens:  rapid.Int64Range(1, 3).Draw(rt, "in"),
		OutputTokens: rapid.Int64Range(1, 2).Draw(rt, "out"),
	}
}

// A take of several limits is granted exactly when every one of them covers it, and then all are charged;
// a take that fails leaves all of them as they were, which the next takes would show.
//
// Proved able to fail: let the last limit alone decide in account.fits.
func TestContract03_AllLimitsAreTakenTogetherOrNoneIsTouched(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limits := drawLimits(rt)
		local := newLocal(rt, bucket.Config{Limits: limits})
		base := time.Now()
		var model []*refMeter
		for _, l := range limits {
			model = append(model, newRefMeter(l, big.NewRat(1, 1)))
		}
		fits := func(c bucket.Cost, t time.Duration) bool {
			return !slices.ContainsFunc(model, func(m *refMeter) bool { return !m.fits(unitsOf(m.limit.Unit, c), t) })
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(rt, "attempts") {
			now += gap(rt, rapid.SampledFrom(limits).Draw(rt, "limit"))
			cost := smallCost(rt)
			_, wait := local.TakeAt(base.Add(now), theKey, cost)
			if fits(cost, now) != (wait == 0) {
				rt.Fatalf("%+v: at %v a take of %+v: wait %v, the limits cover it: %v", limits, now, cost, wait, fits(cost, now))
			}
			if wait > 0 {
				if !fits(cost, now+wait) || fits(cost, now+wait-1) {
					rt.Fatalf("%+v: at %v a take of %+v is told to wait %v, not the earliest instant", limits, now, cost, wait)
				}
				continue
			}
			for _, m := range model {
				m.charge(unitsOf(m.limit.Unit, cost), now)
			}
		}
	})
}

// The slot under MaxInFlight is part of the same all or nothing: calls that are refused at once (their
// deadline is a nanosecond away, the queue is full) take no slot, no place and no token. The schedule
// without them runs exactly alike, and both run as the reference does.
//
// Proved able to fail: charge the limits that fit when another does not; count a call as in flight when it
// queues; leave the cost of one that left the line in its sums.
func TestContract03_ACallRefusedAtOnceLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limits := drawLimits(rt)
		limits = slices.DeleteFunc(limits, func(l bucket.Limit) bool { return l.Shape == bucket.Window })
		cfg := bucket.Config{Limits: limits, MaxWait: -1, MaxQueue: 3, MaxInFlight: rapid.IntRange(0, 4).Draw(rt, "slots")}
		steps, r, end := drawSchedule(rt, cfg, mix{
			steps: 40, end: time.Minute,
			pace:   []time.Duration{0, 0, 10 * time.Millisecond, time.Second, 3 * time.Second},
			verbs:  []verb{arrive, arrive, arrive, arrive, settle, settle, giveUp},
			costs:  smallCost,
			within: []time.Duration{0, 0, 0, 1},
		})
		if r.tie {
			rt.Skip("the contracts leave it open")
		}
		p := play(t, cfg, steps, end)
		faults := differences(r, steps, p)
		var fewer []step
		for _, s := range steps {
			if f := p.fates[s.call]; s.verb == arrive && (f.what == "doomed" || f.what == "full") && f.at == s.at {
				continue
			}
			fewer = append(fewer, s)
		}
		twin := play(t, cfg, fewer, end)
		for id, f := range twin.fates {
			if f != p.fates[id] {
				faults = append(faults, sprintf("call #%d: %+v, but without the refused calls %+v", id, p.fates[id], f))
			}
		}
		tell(rt, cfg, steps, faults)
	})
}
