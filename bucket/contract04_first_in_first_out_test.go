package bucket_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

var sprintf = fmt.Sprintf

// queueMix is a crowd at one key: arrivals in bursts, cancels, settlements both ways.
func queueMix(costs func(*rapid.T) bucket.Cost) mix {
	return mix{
		steps: 60, end: 2 * time.Minute,
		pace:  []time.Duration{0, 0, 0, 10 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second},
		verbs: []verb{arrive, arrive, arrive, arrive, arrive, giveUp, giveUp, settle, settle, unsent},
		costs: costs,
		truth: func(rt *rapid.T, c bucket.Cost) bucket.Cost {
			c.Requests = rapid.Int64Range(0, 2*c.Requests).Draw(rt, "true requests")
			c.InputTokens = rapid.Int64Range(0, 2*c.InputTokens).Draw(rt, "true tokens")
			return c
		},
	}
}

// Every call is admitted at exactly the instant at which the reference admits it: when all before it in
// line are gone and the exact levels cover it, not a nanosecond before or after. And on the log alone:
// nobody is admitted while somebody who came before still waits.
//
// Proved able to fail: let an arrival that fits pass the line; give two arrivals of one instant the same
// place; set the timer 1 ns late; do not move the line up on a settlement, or when its head gives up.
func TestContract04_CallsLeaveInOrderOfArrivalAtTheEarliestInstant(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bucket.Config{Limits: drawLimits(rt), MaxWait: -1, MaxInFlight: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "slots")}
		steps, r, end := drawSchedule(rt, cfg, queueMix(smallCost))
		p := play(t, cfg, steps, end)
		faults := differences(r, steps, p)
		for _, s := range steps {
			if s.verb != arrive {
				continue
			}
			f := p.fates[s.call]
			for _, o := range steps {
				if of := p.fates[o.call]; f.what == "granted" && o.verb == arrive && o.call < s.call && (of.what == "waiting" || of.at > f.at) {
					faults = append(faults, sprintf("#%d left at %v before #%d", s.call, f.at, o.call))
				}
			}
		}
		tell(rt, cfg, steps, faults)
	})
}

// A waiter that gave up before it was the head leaves no trace at all: the schedule in which it never came
// runs exactly alike.
//
// Proved able to fail: take a waiter that gave up out of the line only if it was the head; leave it there.
func TestContract04_ACancelledWaiterLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bucket.Config{Limits: drawLimits(rt), MaxWait: -1}
		steps, r, end := drawSchedule(rt, cfg, queueMix(smallCost))
		p := play(t, cfg, steps, end)
		faults := differences(r, steps, p)
		gone := map[int]bool{}
		for _, s := range steps {
			if s.verb != giveUp || r.fates[s.call].what != "cancelled" {
				continue
			}
			for _, o := range steps { // was somebody before it still in line?
				if of := r.fates[o.call]; o.verb == arrive && o.call < s.call && !gone[o.call] && (of.what == "waiting" || of.at > s.at) {
					gone[s.call] = true
				}
			}
		}
		var fewer []step
		for _, s := range steps {
			if !gone[s.call] {
				fewer = append(fewer, s)
			}
		}
		twin := play(t, cfg, fewer, end)
		for id, f := range twin.fates {
			if f != p.fates[id] {
				faults = append(faults, sprintf("call #%d: %+v, but without the cancelled waiters %+v", id, p.fates[id], f))
			}
		}
		tell(rt, cfg, steps, faults)
	})
}

// A refused call that comes again keeps the place of its turn's first arrival: it stands before everybody
// who came after that, and behind those who came before.
//
// Proved able to fail: ignore the place in the context.
func TestContract04_ARefusedCallKeepsTheFirstPlaceOfItsTurn(t *testing.T) {
	checkAgainstReference(t, func(rt *rapid.T) bucket.Config {
		return bucket.Config{MaxWait: -1, Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: rapid.Int64Range(5, 20).Draw(rt, "amount"), Per: 10 * time.Second}}}
	}, func(rt *rapid.T, cfg bucket.Config) mix {
		return mix{
			steps: 40, end: 2 * time.Minute,
			pace:  []time.Duration{0, 0, 0, 10 * time.Millisecond, time.Second},
			verbs: []verb{arrive, arrive, arrive, refused},
			holds: []time.Duration{0}, // no hold, so no ramp: the line alone
			again: true,
			costs: smallCost,
		}
	})
}

// What wakes the head: each of these lets it go at the very instant.
//
// Proved able to fail: drop the wake-up of Settle, Cancel, Refused, Report, SetLimits or Lift, each in
// turn.
func TestContract04_TheHeadIsWokenAtTheInstant(t *testing.T) {
	hourly := bucket.Limit{Unit: bucket.Tokens, Amount: 100, Per: time.Hour}
	for name, wake := range map[string]func(l *bucket.Local, g bucket.Grant){
		"a refund":                 func(_ *bucket.Local, g bucket.Grant) { g.Settle(bucket.Cost{Requests: 1, InputTokens: 10}) },
		"a call that was not sent": func(_ *bucket.Local, g bucket.Grant) { g.Cancel() },
		"a refusal":                func(_ *bucket.Local, g bucket.Grant) { g.Refused(0) },
		"a report of a fuller meter": func(_ *bucket.Local, g bucket.Grant) {
			g.Report(bucket.Meter{Unit: bucket.Tokens, Limit: 100, Remaining: 90, Reset: -1})
		},
		"limits lifted": func(l *bucket.Local, _ bucket.Grant) {
			if err := l.SetLimits(theKey); err != nil {
				t.Error(err)
			}
		},
		"limits raised": func(l *bucket.Local, _ bucket.Grant) {
			if err := l.SetLimits(theKey, bucket.Limit{Unit: bucket.Tokens, Amount: 1 << 40, Per: time.Nanosecond}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local := newLocal(t, bucket.Config{Limits: []bucket.Limit{hourly}, MaxWait: -1})
				first, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1, InputTokens: 100})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				went := arriveInBackground(t, local, bucket.Cost{Requests: 1, InputTokens: 50})
				time.Sleep(5 * time.Second)
				if _, done := went(); done {
					t.Fatal("admitted from an empty bucket")
				}
				wake(local, first)
				synctest.Wait()
				at, done := went()
				switch {
				case !done:
					t.Fatal("not woken")
				case name == "limits raised" && at.Sub(start) > 5*time.Second+time.Microsecond,
					name != "limits raised" && at.Sub(start) != 5*time.Second:
					t.Errorf("woken after %v, want 5s", at.Sub(start))
				}
			})
		})
	}
	t.Run("a lifted hold", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, bucket.Config{})
			local.Hold(theKey, time.Now().Add(time.Hour))
			start := time.Now()
			went := arriveInBackground(t, local, bucket.Cost{Requests: 1})
			time.Sleep(5 * time.Second)
			if _, done := went(); done {
				t.Fatal("admitted under a hold")
			}
			local.Lift(theKey)
			synctest.Wait()
			if at, done := went(); !done || at.Sub(start) != 5*time.Second {
				t.Errorf("woken: %v, after %v, want 5s", done, at.Sub(start))
			}
		})
	})
}

// TakeAt does not queue, but neither does it slip by those who do.
//
// Proved able to fail: let leave look at the levels only; leave what is ahead out of the wait.
func TestContract04_TakeAtDoesNotOvertakeTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxWait: -1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 60)}})
		start := time.Now()
		local.TakeAt(start, theKey, bucket.Cost{InputTokens: 50})
		waiter := arriveInBackground(t, local, bucket.Cost{InputTokens: 40}) // due at 30 s
		if _, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{InputTokens: 1}); wait != 31*time.Second {
			t.Errorf("a take of 1 out of 10 with a queue of 40: wait %v, want 31s", wait)
		}
		time.Sleep(30 * time.Second)
		if at, done := waiter(); !done || at.Sub(start) != 30*time.Second {
			t.Errorf("the waiter left: %v at %v, want 30s", done, at.Sub(start))
		}
		time.Sleep(time.Second)
		if _, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{InputTokens: 1}); wait != 0 {
			t.Errorf("a take when the queue is gone: wait %v", wait)
		}
	})
}

// arriveInBackground starts a call and returns how to ask whether, and when, it was admitted.
func arriveInBackground(t *testing.T, local *bucket.Local, cost bucket.Cost) func() (time.Time, bool) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	admitted := make(chan time.Time, 1)
	go func() {
		if _, err := local.Acquire(ctx, theKey, cost); err == nil {
			admitted <- time.Now()
		}
	}()
	synctest.Wait()
	var at time.Time
	done := false
	return func() (time.Time, bool) {
		synctest.Wait()
		if !done {
			select {
			case at = <-admitted:
				done = true
			default:
			}
		}
		return at, done
	}
}
