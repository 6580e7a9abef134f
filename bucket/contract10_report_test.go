package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

// The level after every report, and what it lets through, is the reference's: remaining less everything
// admitted after that grant at its present cost, whether it is in flight, settled for more or less, refused
// or never sent; raised only by the newest grant that has reported; and after it the grant's own refund is
// dropped while its extra charge is booked.
//
// Proved able to fail: forget the later calls; count them at their estimates; let an older grant raise;
// refund after a report; drop the extra charge after it; raise above the brim.
func TestContract10_TheLevelIsWhatTheServerSaysLessWhatCameAfter(t *testing.T) {
	checkAgainstReference(t, func(rt *rapid.T) bucket.Config {
		return bucket.Config{MaxWait: -1, Limits: []bucket.Limit{
			{Unit: bucket.Requests, Amount: rapid.Int64Range(20, 200).Draw(rt, "requests"), Per: time.Minute},
			{Unit: bucket.Tokens, Amount: rapid.Int64Range(20, 200).Draw(rt, "tokens"), Per: time.Minute, Burst: rapid.SampledFrom([]int64{0, 150}).Draw(rt, "burst")},
		}}
	}, func(rt *rapid.T, cfg bucket.Config) mix {
		m := settleMix()
		m.steps, m.crowd = 80, 20
		m.pace = []time.Duration{0, 0, 0, 0, 10 * time.Millisecond, time.Second}
		m.verbs = []verb{arrive, arrive, arrive, report, report, report, report, settle, settle, unsent, refused}
		m.meters = func(rt *rapid.T) []bucket.Meter {
			var out []bucket.Meter
			for _, l := range cfg.Limits {
				if evenly(rt, "stated", []bool{true, true, true, false}) {
					out = append(out, bucket.Meter{Unit: l.Unit, Limit: l.Amount, Reset: -1,
						Remaining: rapid.Int64Range(-1, capacityOf(l)+5).Draw(rt, "remaining")})
				}
			}
			if rapid.Bool().Draw(rt, "a unit without a limit") {
				out = append(out, bucket.Meter{Unit: bucket.OutputTokens, Limit: 5, Remaining: 0, Reset: -1})
			}
			return out
		}
		return m
	})
}

// An older answer that comes late: it does not raise the level, and its grant's refund is dropped all the
// same, since the newer answer knew what the server had charged for it.
//
// Proved able to fail: let an older grant raise; drop the refund only where the report changed the level.
func TestContract10_AnOlderAnswerDoesNotRaise(t *testing.T) {
	for _, shape := range []bucket.Shape{bucket.TokenBucket, bucket.Window} {
		t.Run(shape.String(), func(t *testing.T) {
			testOlderAnswer(t, bucket.Limit{Unit: bucket.Tokens, Amount: 100, Per: time.Hour, Shape: shape})
		})
	}
}

func testOlderAnswer(t *testing.T, limit bucket.Limit) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{limit}})
		ten := bucket.Cost{InputTokens: 10}
		older, _ := local.TakeAt(time.Now(), theKey, ten)
		newer, _ := local.TakeAt(time.Now(), theKey, ten)
		level := func(after string, want float64) {
			t.Helper()
			if s, _ := local.Stats(theKey); s.Levels[0].Available != want {
				t.Errorf("after %s: %v, want %v", after, s.Levels[0].Available, want)
			}
		}
		newer.Report(bucket.Meter{Unit: bucket.Tokens, Limit: 100, Remaining: 70, Reset: -1})
		level("the newer report of 70", 70)
		older.Report(bucket.Meter{Unit: bucket.Tokens, Limit: 100, Remaining: 90, Reset: -1})
		level("the older report of 90", 70)
		older.Settle(bucket.Cost{InputTokens: 5})
		level("the older settlement", 70)
		newer.Settle(bucket.Cost{InputTokens: 15})
		level("the newer settlement for more", 65)
	})
}

// Settlements that cancel out leave nothing behind: one call's refund and the next one's extra charge, and
// the level is still what the server says less what came after at its present cost.
//
// Proved able to fail: skip, when a call ends, the corrections that add up to nothing with its own.
func TestContract10_CorrectionsThatCancelOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 100, Per: time.Hour}}})
		var g []bucket.Grant
		for _, n := range []int64{1, 3, 2} {
			took, _ := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: n})
			g = append(g, took)
		}
		g[2].Settle(bucket.Cost{Requests: 0})
		g[1].Settle(bucket.Cost{Requests: 5})
		g[0].Report(bucket.Meter{Unit: bucket.Requests, Limit: 100, Remaining: 50, Reset: -1})
		if s, _ := local.Stats(theKey); s.Levels[0].Available != 45 {
			t.Errorf("%v left, want 50 less 5 and 0", s.Levels[0].Available)
		}
	})
}

// A key with two limits of one unit: the report goes to the one of the same Per, else of the same amount.
//
// Proved able to fail: apply it to the only or the last limit of the unit; take a Remaining of -1 at its
// word.
func TestContract10_AReportFindsItsLimit(t *testing.T) {
	second := bucket.Limit{Unit: bucket.Requests, Amount: 50, Per: time.Second}
	minute := bucket.PerMinute(bucket.Requests, 100)
	for name, c := range map[string]struct {
		meter          bucket.Meter
		second, minute float64
	}{
		"by Per":              {bucket.Meter{Unit: bucket.Requests, Limit: -1, Remaining: 7, Reset: -1, Per: time.Minute}, 49, 7},
		"by the other Per":    {bucket.Meter{Unit: bucket.Requests, Limit: -1, Remaining: 7, Reset: -1, Per: time.Second}, 7, 99},
		"by amount":           {bucket.Meter{Unit: bucket.Requests, Limit: 100, Remaining: 7, Reset: -1}, 49, 7},
		"by neither":          {bucket.Meter{Unit: bucket.Requests, Limit: 77, Remaining: 7, Reset: -1}, 49, 99},
		"of another unit":     {bucket.Meter{Unit: bucket.Tokens, Limit: 100, Remaining: 7, Reset: -1}, 49, 99},
		"without remaining":   {bucket.Meter{Unit: bucket.Requests, Limit: 100, Remaining: -1, Reset: time.Second}, 49, 99},
		"above what it is":    {bucket.Meter{Unit: bucket.Requests, Limit: 100, Remaining: 1000, Reset: -1}, 49, 100},
		"nothing left at all": {bucket.Meter{Unit: bucket.Requests, Limit: 100, Remaining: 0, Reset: -1}, 49, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local := newLocal(t, bucket.Config{Limits: []bucket.Limit{second, minute}})
				g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
				if err != nil {
					t.Fatal(err)
				}
				g.Report(c.meter)
				s, _ := local.Stats(theKey)
				if len(s.Levels) != 2 || s.Levels[0].Available != c.second || s.Levels[1].Available != c.minute {
					t.Errorf("%+v, want %v and %v", s.Levels, c.second, c.minute)
				}
			})
		})
	}
}

// A window is corrected too: at once it holds what the server says, less what came after, and it never lets
// more than that through.
//
// Proved able to fail: ignore reports for windows; forget the later calls; never raise.
func TestContract10_AWindowIsCorrectedToo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := bucket.Limit{Unit: bucket.Requests, Amount: rapid.Int64Range(5, 40).Draw(rt, "amount"), Per: time.Minute, Shape: bucket.Window}
		before := rapid.Int64Range(0, limit.Amount-2).Draw(rt, "before")
		later := rapid.Int64Range(1, limit.Amount-before-1).Draw(rt, "later")
		remaining := rapid.Int64Range(0, limit.Amount).Draw(rt, "remaining")
		var available float64
		var let int64
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, bucket.Config{Limits: []bucket.Limit{limit}})
			take := func(n int64) bucket.Grant {
				g, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: n})
				if wait > 0 {
					let--
				}
				let++
				return g
			}
			take(before)
			time.Sleep(time.Second)
			g := take(1)
			time.Sleep(time.Second)
			take(later)
			time.Sleep(time.Second)
			g.Report(bucket.Meter{Unit: bucket.Requests, Limit: limit.Amount, Remaining: remaining, Reset: -1})
			s, _ := local.Stats(theKey)
			available = s.Levels[0].Available
			let = 0
			for range 2 * limit.Amount {
				take(1)
			}
		})
		want := min(remaining, limit.Amount) - later
		if available != float64(want) || let != max(want, 0) {
			rt.Fatalf("amount %d, taken %d, 1, %d, the server says %d after the second: available %v, let through %d, want %d",
				limit.Amount, before, later, remaining, available, let, want)
		}
	})
}
