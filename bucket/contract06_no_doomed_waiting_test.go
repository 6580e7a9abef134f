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

// acquireAfter plays a schedule and then asks for one more admission with a deadline. It returns what
// Acquire said at once, within the same instant, and the error.
func acquireAfter(t *testing.T, cfg bucket.Config, steps []step, at time.Duration, cost bucket.Cost, within time.Duration) (refusedAtOnce bool, left time.Duration, err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		local, start := newLocal(t, cfg), time.Now()
		for _, s := range steps {
			time.Sleep(s.at - time.Since(start))
			synctest.Wait()
			switch s.verb {
			case arrive:
				go local.Acquire(ctx, theKey, s.cost)
			case hold:
				local.Hold(theKey, start.Add(s.hold))
			}
			synctest.Wait()
		}
		time.Sleep(at - time.Since(start))
		synctest.Wait()
		timed, stop := context.WithTimeout(ctx, within)
		defer stop()
		_, err = local.Acquire(timed, theKey, cost)
		left = time.Since(start)
		refusedAtOnce = err != nil && left == at
	})
	return refusedAtOnce, left, err
}

// lastArrival draws a crowd without deadlines and then one call more, whose departure the reference finds by
// letting a copy of the key run on.
func lastArrival(rt *rapid.T, cfg bucket.Config, costs func(*rapid.T) bucket.Cost, verbs ...verb) (steps []step, r *refKey, at time.Duration, cost bucket.Cost, departs, bound time.Duration) {
	steps, r, _ = drawSchedule(rt, cfg, mix{
		steps: 25,
		pace:  []time.Duration{0, 0, 0, 10 * time.Millisecond, time.Second},
		verbs: append(verbs, arrive, arrive, arrive, arrive),
		holds: []time.Duration{time.Second, 20 * time.Second},
		costs: costs,
	})
	at = r.now + 1777
	r.advance(at)
	cost = costs(rt)
	bound, departs = foresee(r, at, cost)
	return steps, r, at, cost, departs, bound
}

// foresee says when a call of this cost that comes now would leave, by contract 6's formula and in fact.
func foresee(r *refKey, at time.Duration, cost bucket.Cost) (bound, departs time.Duration) {
	c := r.clone()
	c.arrive(step{at: at, verb: arrive, call: 1_000_000, cost: cost})
	return c.bound(c.calls[1_000_000]), c.departure(1_000_000, 100*time.Hour)
}

// One limit: refused at once if and only if the departure, which is then known exactly, is past the
// deadline, to the nanosecond; the error says how long the wait would have been, and nothing was taken.
//
// Proved able to fail: leave what is ahead out of the bound; let a cost above capacity wait for itself
// instead of a full bucket; compare with deadline-1 or deadline+1; count Wait from the base.
func TestContract06_WithOneLimitRefusedIfAndOnlyIfDoomed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// A cost of exactly the capacity would lose, at the brim, the fraction of a nanosecond's refill.
		limit := bucket.Limit{Unit: bucket.Requests, Amount: rapid.Int64Range(6, 40).Draw(rt, "amount"), Per: 10 * time.Second,
			Burst: rapid.SampledFrom([]int64{0, 0, 6, 60}).Draw(rt, "burst")}
		cfg := bucket.Config{MaxWait: -1, Limits: []bucket.Limit{limit}}
		steps, r, at, cost, departs, bound := lastArrival(rt, cfg, smallCost)
		if rapid.IntRange(0, 4).Draw(rt, "oversize") == 0 { // it must wait for a full bucket
			cost.Requests = capacityOf(limit) + 1
			bound, departs = foresee(r, at, cost)
		}
		if departs != bound {
			rt.Fatalf("the reference contradicts itself: bound %v, departure %v", bound, departs)
		}
		within := departs - at + rapid.SampledFrom([]time.Duration{-time.Second, -1, 1, time.Second}).Draw(rt, "slack")
		if within <= 0 {
			return
		}
		doomed := departs > at+within
		atOnce, left, err := acquireAfter(t, cfg, steps, at, cost, within)
		var faults []string
		if doomed != atOnce || !doomed && (err != nil || left != departs) {
			faults = append(faults, sprintf("within %v: %v at %v; departure is at %v", within, err, left, departs))
		}
		var e *bucket.WaitError
		if doomed && (!errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bucket.ErrOverdue) ||
			e.Key != theKey || e.Unit != limit.Unit || e.Wait != departs-at) {
			faults = append(faults, sprintf("refused with %#v, want the key, the unit and a wait of %v", err, departs-at))
		}
		tell(rt, cfg, append(steps, step{at: at, verb: arrive, call: 1_000_000, cost: cost, within: within}), faults)
	})
}

// A window alone is exact as well where all costs are alike; where they differ, so that whole costs leave
// gaps in it, the bound may be lower than the departure, never higher.
//
// Proved able to fail: forget in window.drain that a line longer than Amount waits for itself.
func TestContract06_WithOneWindowRefusedIfAndOnlyIfDoomed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bucket.Config{MaxWait: -1, Limits: []bucket.Limit{{Unit: bucket.Requests, Shape: bucket.Window,
			Amount: rapid.Int64Range(5, 12).Draw(rt, "amount"), Per: 10 * time.Second}}}
		alike := rapid.Bool().Draw(rt, "alike")
		costs := smallCost
		if alike {
			costs = func(*rapid.T) bucket.Cost { return bucket.Cost{Requests: 1} }
		}
		steps, _, at, cost, departs, _ := lastArrival(rt, cfg, costs)
		within := departs - at + rapid.SampledFrom([]time.Duration{-time.Second, -1, 1, time.Second}).Draw(rt, "slack")
		if within <= 0 {
			return
		}
		doomed := departs > at+within
		atOnce, left, err := acquireAfter(t, cfg, steps, at, cost, within)
		if atOnce && !doomed || alike && doomed && !atOnce || !doomed && (err != nil || left != departs) {
			tell(rt, cfg, append(steps, step{at: at, verb: arrive, call: 1_000_000, cost: cost, within: within}),
				[]string{sprintf("within %v: %v at %v; departure is at %v", within, err, left, departs)})
		}
	})
}

// Many limits, holds, overdue probes: the bound read off the contract is past the deadline: refused at once.
// The call would have left in time: not refused. Between the two, a tighter bound may say either.
//
// Proved able to fail: look at the first limit only; add the limits' waits up; forget the hold; forget that
// an overdue probe may leave sooner.
func TestContract06_TheBoundIsLowerAndCoversEveryLimitAndTheHold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bucket.Config{MaxWait: -1, Limits: drawLimits(rt)}
		kind := rapid.SampledFrom([]string{"limits", "holds", "overdue"}).Draw(rt, "kind")
		var verbs []verb
		switch kind {
		case "holds":
			verbs = []verb{hold}
		case "overdue":
			cfg.MaxWait = rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second}).Draw(rt, "patience")
		}
		windows := slices.ContainsFunc(cfg.Limits, func(l bucket.Limit) bool { return l.Shape == bucket.Window })
		steps, _, at, cost, departs, bound := lastArrival(rt, cfg, smallCost, verbs...)
		deadline := rapid.SampledFrom([]time.Duration{bound, departs}).Draw(rt, "near") +
			rapid.SampledFrom([]time.Duration{-time.Second, -1, 1, time.Second}).Draw(rt, "slack")
		if deadline <= at {
			return
		}
		atOnce, left, err := acquireAfter(t, cfg, steps, at, cost, deadline-at)
		var faults []string
		if kind != "overdue" && !windows && bound > deadline && !atOnce { // the formula is of levels alone
			faults = append(faults, sprintf("not refused at once (%v at %v): bound %v is past the deadline %v", err, left, bound, deadline))
		}
		if departs < deadline && atOnce {
			faults = append(faults, sprintf("refused (%v), but it would leave at %v, before the deadline %v", err, departs, deadline))
		}
		tell(rt, cfg, append(steps, step{at: at, verb: arrive, call: 1_000_000, cost: cost, within: deadline - at}), faults)
	})
}

// The only waiter of a key whose bucket needs an hour leaves as a probe after MaxWait, so a deadline before
// that is doomed and one after it is not.
//
// Proved able to fail: leave overdue out of the bound.
func TestContract06_OverdueIsIncludedInTheBound(t *testing.T) {
	cfg := bucket.Config{MaxWait: 5 * time.Second, Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 1, Per: time.Hour}}}
	steps := []step{{verb: arrive, call: 1, cost: bucket.Cost{Requests: 1}}}
	for within, doomed := range map[time.Duration]bool{time.Second: true, 5*time.Second - 1 - 1000: true, 5*time.Second + 1: false, time.Minute: false} {
		atOnce, left, err := acquireAfter(t, cfg, steps, 1000, bucket.Cost{Requests: 1}, within)
		if atOnce != doomed || !doomed && left != 5*time.Second+1000 {
			t.Errorf("within %v: %v at %v, doomed is %v", within, err, left, doomed)
		}
	}
	cfg.Overdue = bucket.OverdueRefuse // no way out but the level
	if atOnce, _, err := acquireAfter(t, cfg, steps, 1000, bucket.Cost{Requests: 1}, time.Minute); !atOnce {
		t.Errorf("with OverdueRefuse a deadline of a minute is doomed, got %v", err)
	}
}

// Whole queues with deadlines under cancels and refunds: who is refused at once, who leaves later because
// a settlement or a report moved its departure past its deadline, who is admitted, as the reference has it.
//
// Proved able to fail: check doom on arrival only; leave the cost of one that left the line in its sums;
// queue one more than MaxQueue.
func TestContract06_DoomIsCheckedAgainAtEachGrant(t *testing.T) {
	checkAgainstReference(t, func(rt *rapid.T) bucket.Config {
		return bucket.Config{MaxWait: -1, MaxQueue: rapid.SampledFrom([]int{0, 0, 2, 5}).Draw(rt, "queue"), Limits: []bucket.Limit{
			{Unit: bucket.Requests, Amount: rapid.Int64Range(5, 40).Draw(rt, "amount"), Per: 10 * time.Second}}}
	}, func(rt *rapid.T, cfg bucket.Config) mix {
		m := queueMix(smallCost)
		m.within = []time.Duration{0, time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second}
		return m
	})
}

// A waiter whose departure was moved past its deadline by a settlement leaves at the next grant, with the
// same error as if it had been refused at once.
//
// Proved able to fail: check doom on arrival only; let WaitError match nothing.
func TestContract06_AWaiterFoundDoomedLeavesThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxWait: -1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 60)}})
		start := time.Now()
		first, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1, InputTokens: 60})
		if err != nil {
			t.Fatal(err)
		}
		second := arriveInBackground(t, local, bucket.Cost{Requests: 1, InputTokens: 10}) // due at 10 s
		type end struct {
			err error
			at  time.Duration
		}
		third := make(chan end, 1)
		go func() { // due at 20 s
			ctx, cancel := context.WithDeadline(t.Context(), start.Add(25*time.Second))
			defer cancel()
			_, err := local.Acquire(ctx, theKey, bucket.Cost{Requests: 1, InputTokens: 10})
			third <- end{err, time.Since(start)}
		}()
		time.Sleep(time.Second)
		first.Settle(bucket.Cost{Requests: 1, InputTokens: 70}) // now due at 20 s and 30 s
		e := <-third
		if at, done := second(); !done || at.Sub(start) != 20*time.Second {
			t.Errorf("the second left at %v (%v), want 20s", at.Sub(start), done)
		}
		var wait *bucket.WaitError
		if e.at > 20*time.Second || !errors.As(e.err, &wait) || !errors.Is(e.err, context.DeadlineExceeded) {
			t.Errorf("the third left at %v with %v, want a *WaitError at 20s or before", e.at, e.err)
		}
	})
}

// Proved able to fail: queue one more than MaxQueue; do not look at the context before taking.
func TestContract06_AFullQueueAndACancelledContextTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxWait: -1, MaxQueue: 2, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 10)}})
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := local.Acquire(cancelled, theKey, bucket.Cost{Requests: 1}); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled context: %v, want context.Canceled", err)
		}
		past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		if _, err := local.Acquire(past, theKey, bucket.Cost{Requests: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a deadline gone by: %v, want context.DeadlineExceeded", err)
		}
		if _, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 10}); err != nil {
			t.Fatal("the refused calls took something: ", err)
		}
		first := arriveInBackground(t, local, bucket.Cost{Requests: 1})
		arriveInBackground(t, local, bucket.Cost{Requests: 1})
		start := time.Now()
		if _, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1}); !errors.Is(err, bucket.ErrQueueFull) || time.Since(start) > 0 {
			t.Errorf("a third waiter of two: %v after %v, want ErrQueueFull at once", err, time.Since(start))
		}
		time.Sleep(6 * time.Second)
		if _, done := first(); !done {
			t.Error("the first waiter was not admitted at 6s: the refused ones took something")
		}
	})
}
