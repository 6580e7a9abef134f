package bucket_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

// slowLimits refill so slowly that waiters become overdue, or so that it is a near thing.
func slowLimits(rt *rapid.T) []bucket.Limit {
	limits := []bucket.Limit{{Unit: bucket.Requests, Amount: rapid.SampledFrom([]int64{1, 2, 6, 20, 45}).Draw(rt, "amount"), Per: 30 * time.Second,
		Burst: rapid.SampledFrom([]int64{0, 3}).Draw(rt, "depth")}}
	if rapid.Bool().Draw(rt, "tokens too") {
		limits = append(limits, bucket.Limit{Unit: bucket.Tokens, Amount: 10, Per: time.Minute,
			Burst: rapid.Int64Range(5, 20).Draw(rt, "burst"), Shape: bucket.TokenBucket})
	}
	return limits
}

func overdueMix(verbs ...verb) mix {
	return mix{
		steps: 60, crowd: 20, end: 5 * time.Minute,
		pace:  []time.Duration{0, 0, 0, 10 * time.Millisecond, 500 * time.Millisecond, time.Second, 3 * time.Second},
		verbs: append(verbs, arrive, arrive, arrive, served, served, served),
		holds: []time.Duration{500 * time.Millisecond, 3 * time.Second, 20 * time.Second},
		costs: func(rt *rapid.T) bucket.Cost {
			return bucket.Cost{Requests: 1, InputTokens: rapid.Int64Range(1, 5).Draw(rt, "tokens")}
		},
	}
}

// The whole rule: who leaves overdue, when, and who does not, as the reference has it. And on the log
// alone: no probe leaves while another is out, that is, before its headers, its end, or MaxWait since it
// left; and no level is ever below minus one capacity.
//
// Proved able to fail: let a probe go while another is out; never give a lost one up; end it with the grant
// instead of its headers; do not start MaxWait anew when somebody leaves on a level; let debt reach two
// capacities.
func TestContract05_OverdueWaitersLeaveOneAtATime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bucket.Config{Limits: slowLimits(rt), MaxWait: rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second}).Draw(rt, "patience")}
		steps, r, end := drawSchedule(rt, cfg, overdueMix(settle))
		if r.tie {
			rt.Skip("the contracts leave it open")
		}
		p := play(t, cfg, steps, end)
		faults := differences(r, steps, p)
		type outing struct{ from, to time.Duration }
		outings := map[int]outing{}
		for id, f := range p.fates {
			if f.what != "probe" {
				continue
			}
			o := outing{f.at, f.at + cfg.MaxWait}
			for _, s := range steps {
				if s.call == id && s.verb != arrive && s.at >= f.at {
					o.to = min(o.to, s.at)
				}
			}
			for other, x := range outings {
				if o.from < x.to && x.from < o.to {
					faults = append(faults, sprintf("#%d and #%d are out as probes at once", id, other))
				}
			}
			outings[id] = o
		}
		for i, v := range p.views {
			for j, l := range v.levels {
				if l < -float64(capacityOf(cfg.Limits[j]))-1e-6 {
					faults = append(faults, sprintf("after step %d: level %v of %+v", i, l, cfg.Limits[j]))
				}
			}
		}
		tell(rt, cfg, steps, faults)
	})
}

// With refusals: a refused probe holds the others for the server's hint, during which nobody leaves and the
// clock of MaxWait stands still.
//
// Proved able to fail: let hold.unheld run on under a hold; let an overdue head leave under it.
func TestContract05_AHoldOutranksMaxWaitAndStopsItsClock(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bucket.Config{Limits: slowLimits(rt), MaxWait: 2 * time.Second}
		steps, r, end := drawSchedule(rt, cfg, overdueMix(refused, refused, hold, settle))
		if r.tie {
			rt.Skip("the contracts leave it open")
		}
		p := play(t, cfg, steps, end)
		faults := differences(r, steps, p)
		for id, f := range p.fates {
			for _, h := range r.holds {
				if (f.what == "granted" || f.what == "probe") && h[0] < f.at && f.at < h[1] {
					faults = append(faults, sprintf("#%d left at %v, under the hold from %v to %v", id, f.at, h[0], h[1]))
				}
			}
		}
		tell(rt, cfg, steps, faults)
	})
}

// A crowd of 20 behind a bucket of one per day: nobody moves for 30 s; then probes leave one by one, each as
// soon as the one before has its headers, one second here, until the debt is one burst; and the rest wait.
//
// Proved able to fail: let probes go together; let a probe's departure start MaxWait anew; free the next at
// Settle instead of Served; do not bound the debt.
func TestContract05_ACrowdDoesNotStormOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 10, Per: 240 * time.Hour}}})
		if _, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 10}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan time.Duration, 20)
		for range 20 {
			go func() {
				g, err := local.Acquire(ctx, theKey, bucket.Cost{Requests: 1})
				if err != nil {
					return
				}
				if !g.Overdue() {
					t.Error("a probe does not say that it is one")
				}
				left <- time.Since(start)
				if g.Waited() != time.Since(start) {
					t.Errorf("waited %v, says %v", time.Since(start), g.Waited())
				}
				time.Sleep(time.Second)
				g.Served() // the next may go, though the body is a long one
				time.Sleep(time.Minute)
				g.Settle(bucket.Cost{Requests: 1})
			}()
		}
		time.Sleep(time.Hour)
		cancel()
		synctest.Wait()
		close(left)
		want := 30 * time.Second
		n := 0
		for at := range left {
			if at != want {
				t.Errorf("probe %d left at %v, want %v", n, at, want)
			}
			n++
			want += time.Second
		}
		if n != 10 {
			t.Errorf("%d probes left, want 10: one burst of debt", n)
		}
	})
}

// A refused probe holds the others for the server's hint; it keeps its place, so that it is the first to try
// again when the hold is over, and a served one lets the next go.
//
// Proved able to fail: ignore the hold of Refused; ignore the place of the one that comes again; let it
// wait for another MaxWait.
func TestContract05_ARefusedProbeHoldsTheOthersForTheHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 10, Per: 240 * time.Hour}}})
		local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 10})
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var sends []string
		turn := func(name string, refusals int) {
			turnCtx := ctx
			for {
				g, err := local.Acquire(turnCtx, theKey, bucket.Cost{Requests: 1})
				if err != nil {
					return
				}
				sends = append(sends, sprintf("%s at %v", name, time.Since(start)))
				time.Sleep(time.Second)
				if refusals == 0 {
					g.Served()
					g.Settle(bucket.Cost{Requests: 1})
					return
				}
				refusals--
				g.Refused(10 * time.Second)
				turnCtx = bucket.WithPlace(ctx, g.Place())
			}
		}
		go turn("first", 1)
		synctest.Wait()
		go turn("second", 0)
		synctest.Wait()
		go turn("third", 0)
		time.Sleep(time.Minute)
		cancel()
		synctest.Wait()
		want := []string{"first at 30s", "first at 41s", "second at 42s", "third at 43s"}
		if !slices.Equal(sends, want) {
			t.Errorf("sends %q, want %q", sends, want)
		}
	})
}

// A probe whose answer never comes is given up MaxWait after it left, so that the next may try.
//
// Proved able to fail: wait for a probe's headers for ever.
func TestContract05_ALostProbeDoesNotBlockTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxWait: 5 * time.Second,
			Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 2, Per: 1000 * time.Hour}}})
		local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 2})
		start := time.Now()
		first := arriveInBackground(t, local, bucket.Cost{Requests: 1})
		second := arriveInBackground(t, local, bucket.Cost{Requests: 1})
		time.Sleep(time.Minute)
		if at, done := first(); !done || at.Sub(start) != 5*time.Second {
			t.Errorf("first probe left: %v after %v, want 5s", done, at.Sub(start))
		}
		if at, done := second(); !done || at.Sub(start) != 10*time.Second {
			t.Errorf("second probe left: %v after %v, want 10s", done, at.Sub(start))
		}
	})
}

// A negative MaxWait is never overdue: the waiter leaves when the level covers it, a day later.
//
// Proved able to fail: take a negative MaxWait for the default.
func TestContract05_ANegativeMaxWaitIsNeverOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxWait: -1,
			Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 1, Per: 24 * time.Hour}}})
		local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
		start := time.Now()
		g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
		if d := time.Since(start); err != nil || g.Overdue() || d != 24*time.Hour {
			t.Errorf("left after %v, overdue %v, error %v; want 24h, false, nil", d, g.Overdue(), err)
		}
	})
}

// By option an overdue waiter is refused instead, with an error that says so; schedules run as the
// reference has it.
//
// Proved able to fail: let them probe all the same; return the *WaitError without ErrOverdue.
func TestContract05_OverdueRefuseSendsWaitersAway(t *testing.T) {
	checkAgainstReference(t, func(rt *rapid.T) bucket.Config {
		return bucket.Config{Limits: slowLimits(rt), MaxWait: 2 * time.Second, Overdue: bucket.OverdueRefuse}
	}, func(*rapid.T, bucket.Config) mix { return overdueMix(settle, hold, giveUp) })

	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Overdue: bucket.OverdueRefuse,
			Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 1, Per: 24 * time.Hour}}})
		local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
		start := time.Now()
		_, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
		var wait *bucket.WaitError
		if !errors.Is(err, bucket.ErrOverdue) || !errors.As(err, &wait) || wait.Key != theKey {
			t.Errorf("got %v, want a *WaitError of the key that is ErrOverdue", err)
		}
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("refused after %v, want 30s", d)
		}
	})
}
