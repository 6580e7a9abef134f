package bucket_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

func settleMix() mix {
	m := queueMix(smallCost)
	m.verbs = []verb{arrive, arrive, arrive, served, settle, settle, unsent, refused}
	m.holds = []time.Duration{0}
	m.truth = func(rt *rapid.T, c bucket.Cost) bucket.Cost {
		return bucket.Cost{
			Requests:     rapid.Int64Range(0, 3*c.Requests).Draw(rt, "true requests"),
			InputTokens:  rapid.Int64Range(0, 3*c.InputTokens).Draw(rt, "true in"),
			OutputTokens: rapid.Int64Range(0, 3*c.OutputTokens).Draw(rt, "true out"),
		}
	}
	return m
}

// Every ending books what the contract says, at its instant: the levels seen after every step, and the
// instants at which those who wait are admitted, are the reference's.
//
// Proved able to fail: refund nothing; give back the request of a refused call; keep its tokens, or those
// of a call not sent; charge nothing above the estimate; fill above the brim.
func TestContract08_EveryEndingBooksTheTrueCost(t *testing.T) {
	checkAgainstReference(t, func(rt *rapid.T) bucket.Config {
		return bucket.Config{MaxWait: -1, Limits: drawLimits(rt), MaxInFlight: rapid.SampledFrom([]int{0, 0, 2}).Draw(rt, "slots")}
	}, func(*rapid.T, bucket.Config) mix { return settleMix() })
}

// Once: after its ending a grant may be told anything, any number of times, and its copies too, and nothing
// changes, neither for it nor for the calls that came into its room since.
//
// Proved able to fail: settle without looking whether the grant has ended; use a record again under the
// same id.
func TestContract08_AnEndedGrantMayBeToldAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bucket.Config{MaxWait: -1, Limits: drawLimits(rt), MaxInFlight: rapid.SampledFrom([]int{0, 0, 2}).Draw(rt, "slots")}
		m := settleMix()
		m.steps = 25
		steps, r, end := drawSchedule(rt, cfg, m)
		// After every step, the first and the last two calls that have ended are told everything again.
		var more []step
		var views []view
		var ended []int
		for i, s := range steps {
			more, views = append(more, s), append(views, r.views[i])
			if s.verb == settle || s.verb == unsent || s.verb == refused {
				ended = append(ended, s.call)
			}
			told := ended
			if len(ended) > 3 {
				told = []int{ended[0], ended[len(ended)-2], ended[len(ended)-1]}
			}
			for _, id := range told {
				for _, again := range []step{
					{verb: settle},
					{verb: unsent},
					{verb: served},
					{verb: settle, cost: bucket.Cost{Requests: 99, InputTokens: 99}},
					{verb: refused, hold: time.Hour},
					{verb: report, meters: []bucket.Meter{{Unit: bucket.Requests, Remaining: 1}, {Unit: bucket.Tokens, Remaining: 1}}},
				} {
					again.at, again.call = s.at, id
					more, views = append(more, again), append(views, r.views[i])
				}
			}
		}
		r.views = views
		tell(rt, cfg, steps, differences(r, more, play(t, cfg, more, end)))
	})
}

// The zero Grant does nothing.
//
// Proved able to fail: drop the nil check of Served.
func TestContract08_TheZeroGrantDoesNothing(t *testing.T) {
	var g bucket.Grant
	g.Served()
	g.Report(bucket.Meter{Unit: bucket.Tokens, Remaining: 1})
	g.Settle(bucket.Cost{Requests: 1})
	g.Refused(time.Second)
	g.Cancel()
	if g.Waited() != 0 || g.Overdue() {
		t.Error("the zero Grant has waited, or is overdue")
	}
}

// What each ending leaves of a call of one request and 40 tokens out of 10 and 100.
//
// Proved able to fail: settle nothing for a refused call, or everything; charge nothing above the estimate;
// keep what was never sent.
func TestContract08_WhatEachEndingLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		end              func(bucket.Grant)
		requests, tokens float64
	}{
		"settled for less": {func(g bucket.Grant) { g.Settle(bucket.Cost{Requests: 1, InputTokens: 5, OutputTokens: 5}) }, 9, 90},
		"settled for more": {func(g bucket.Grant) { g.Settle(bucket.Cost{Requests: 1, InputTokens: 150}) }, 9, -50},
		"sent and lost":    {func(g bucket.Grant) { g.Settle(bucket.Cost{Requests: 1, InputTokens: 30, OutputTokens: 10}) }, 9, 60},
		"refused":          {func(g bucket.Grant) { g.Refused(0) }, 9, 100},
		"never sent":       {func(g bucket.Grant) { g.Cancel() }, 10, 100},
		"settled, then all": {func(g bucket.Grant) {
			g.Settle(bucket.Cost{Requests: 1, InputTokens: 40})
			g.Cancel()
			g.Refused(time.Hour)
			g.Settle(bucket.Cost{})
		}, 9, 60},
		"cancelled, then all": {func(g bucket.Grant) {
			g.Cancel()
			g.Settle(bucket.Cost{Requests: 5, InputTokens: 90})
			g.Refused(time.Hour)
		}, 10, 100},
		"refused, then settle": {func(g bucket.Grant) { g.Refused(0); g.Settle(bucket.Cost{Requests: 1, InputTokens: 40}); g.Cancel() }, 9, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local := newLocal(t, bucket.Config{Limits: []bucket.Limit{
					{Unit: bucket.Requests, Amount: 10, Per: time.Hour}, {Unit: bucket.Tokens, Amount: 100, Per: time.Hour}}})
				g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1, InputTokens: 30, OutputTokens: 10})
				if err != nil {
					t.Fatal(err)
				}
				c.end(g)
				s, _ := local.Stats(theKey)
				if len(s.Levels) != 2 || s.Levels[0].Available != c.requests || s.Levels[1].Available != c.tokens || s.InFlight != 0 || s.HeldFor != 0 {
					t.Errorf("%+v, want levels %v and %v", s, c.requests, c.tokens)
				}
			})
		})
	}
}

// recorder is a limiter's account outside this package.
type recorder struct{ told []string }

func (r *recorder) Served(id uint64) { r.told = append(r.told, sprintf("served %d", id)) }
func (r *recorder) Cancel(id uint64) { r.told = append(r.told, sprintf("cancel %d", id)) }
func (r *recorder) Refused(id uint64, hold time.Duration) {
	r.told = append(r.told, sprintf("refused %d %v", id, hold))
}
func (r *recorder) Settle(id uint64, cost bucket.Cost) {
	r.told = append(r.told, sprintf("settle %d %v", id, cost.Requests))
}
func (r *recorder) Report(id uint64, meters []bucket.Meter) {
	r.told = append(r.told, sprintf("report %d %d", id, len(meters)))
}

// Limiters of other packages can make grants: what the grant is told reaches the account, under its id.
//
// Proved able to fail: pass another id on; lose that it was overdue.
func TestContract08_AGrantOfAnotherLimiterReachesItsAccount(t *testing.T) {
	local := newLocal(t, bucket.Config{})
	origin, _ := local.TakeAt(time.Now(), theKey, bucket.Cost{})
	r := new(recorder)
	g := bucket.NewGrant(r, 7, bucket.GrantInfo{Waited: time.Second, Overdue: true, Place: origin.Place()})
	g.Report(bucket.Meter{}, bucket.Meter{})
	g.Served()
	g.Settle(bucket.Cost{Requests: 3})
	g.Refused(time.Minute)
	g.Cancel()
	want := []string{"report 7 2", "served 7", "settle 7 3", "refused 7 1m0s", "cancel 7"}
	if !slices.Equal(r.told, want) {
		t.Errorf("told %q, want %q", r.told, want)
	}
	if g.Waited() != time.Second || !g.Overdue() || g.Place() != origin.Place() {
		t.Errorf("waited %v, overdue %v, place %v", g.Waited(), g.Overdue(), g.Place())
	}
}

// A negative cost would mint: it is an error, and takes nothing.
//
// Proved able to fail: do not look at the sign, in Acquire or in Settle.
func TestContract08_ANegativeCostIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 9), bucket.PerMinute(bucket.Tokens, 9)}})
		for _, c := range []bucket.Cost{{Requests: -1}, {InputTokens: -1}, {OutputTokens: -1}, {InputTokens: 2, OutputTokens: -2}} {
			if _, err := local.Acquire(t.Context(), theKey, c); err == nil {
				t.Errorf("%+v was admitted", c)
			}
			if _, wait := local.TakeAt(time.Now(), theKey, c); wait == 0 {
				t.Errorf("%+v was taken", c)
			}
		}
		if _, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 7, InputTokens: 7}); wait > 0 {
			t.Fatal("something was taken")
		}
		g, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 2, InputTokens: 2})
		if wait > 0 {
			t.Fatal("something was taken")
		}
		g.Settle(bucket.Cost{Requests: -5, InputTokens: -5})
		if s, _ := local.Stats(theKey); s.Levels[0].Available != 2 || s.Levels[1].Available != 2 {
			t.Errorf("a negative settlement does not count as zero: %+v", s.Levels)
		}
	})
}
