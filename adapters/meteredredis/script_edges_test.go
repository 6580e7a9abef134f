package meteredredis

import (
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Contract 2: what was admitted in one slice of a window counts from the last of it, never from an earlier instant.
func TestScriptCountsASliceFromItsLast(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.Limit{Unit: bucket.Requests, Amount: 10, Per: 256 * time.Second, Shape: bucket.Window})
	b.now -= b.now % 256_000_000
	b.run(t, b.takes(1, 5))
	b.now += 900_000
	b.run(t, b.takes(1, 5))
	b.now += 255_600_000 // the first has left the window, the second has not
	if r := b.run(t, b.takes(1, 1)); r.granted != 0 || r.wait != 400*time.Millisecond || r.window != r.wait {
		t.Errorf("%+v", r)
	}
	b.now += 400_000
	if r := b.run(t, b.takes(10, 1)); r.granted != 10 {
		t.Errorf("%+v", r)
	}
}

// A window's bound of when the head may leave is its own: without what another process claims.
func TestScriptBoundsAWindowWithoutClaims(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.Limit{Unit: bucket.Requests, Amount: 10, Per: 100 * time.Second, Shape: bucket.Window})
	other := *b
	other.speaker = newSpeaker(2, 99, &b.config, b.limits)
	b.run(t, b.takes(1, 6))
	b.now += 50_000_000
	b.run(t, b.takes(1, 2))
	old := b.takes(1, 9)
	old.age = 5 * time.Second
	if r := b.run(t, old); r.granted != 0 || r.window != 100*time.Second || r.wait != r.window {
		t.Fatalf("9 of 10 need both to leave: %+v", r)
	}
	other.now = b.now
	if r := other.run(t, other.takes(1, 4)); r.granted != 0 || r.window != 50*time.Second || r.wait != 100*time.Second {
		t.Errorf("4 would fit when the first leaves, but for the claim: %+v", r)
	}
}

// Contract 10: an extra charge that came after the admission which reports is not in what it reports.
func TestScriptReportsBeforeExtras(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 100))
	r := b.run(t, b.takes(1, 10))
	b.run(t, &batch{ops: [][]string{{opExtra, "1", "15"}}})
	got := b.run(t, &batch{ops: [][]string{{opReport, "1", whole(r.number + 1), whole(r.limits[0].charged + 10), "0", "50", "1"}}})
	if got.limits[0].available != 35 {
		t.Errorf("50 were left before 15 more were charged: %v", got.limits[0].available)
	}
}

// A hold that a process declares to a store which has lost it ends in a ramp like any other.
func TestScriptRampsAfterADeclaredHold(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 100))
	b.epoch = 4711
	out := b.takes(5, 1)
	out.declared = &declaration{levels: []float64{100}, hold: 3 * time.Second}
	if r := b.run(t, out); r.granted != 0 || r.hold != 3*time.Second {
		t.Fatalf("%+v", r)
	}
	b.now += 3_000_000
	if r := b.run(t, b.takes(5, 1)); r.granted != 1 || r.ramp == 0 {
		t.Errorf("%+v", r)
	}
}

// Contract 5: the patience of a waiter begins anew with each admission on the key, and at the end of a hold.
func TestScriptBeginsPatienceAnew(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.Limit{Unit: bucket.Requests, Amount: 1, Per: time.Hour, Burst: 5})
	b.config.MaxWait = 30 * time.Second
	b.speaker = newSpeaker(1, 77, &b.config, b.limits)
	b.run(t, b.takes(5, 1))
	waiting := b.takes(1, 1)
	b.now += 10_000_000
	waiting.age = 40 * time.Second
	if r := b.run(t, waiting); r.granted != 0 || r.wait != 20*time.Second {
		t.Errorf("10 s after an admission: %+v", r)
	}
	b.run(t, &batch{ops: [][]string{{opHold, "40000000"}}})
	b.now += 45_000_000
	waiting.age = 85 * time.Second
	if r := b.run(t, waiting); r.granted != 0 || r.wait != 25*time.Second {
		t.Errorf("5 s after a hold: %+v", r)
	}
	b.now += 25_000_000
	waiting.age += 25 * time.Second
	if r := b.run(t, waiting); r.granted != 1 || r.probe != 1 {
		t.Errorf("30 s after it: %+v", r)
	}
}

// Whose process asks for nobody any more has no claim.
func TestScriptForgetsTheClaimOfWhoHasGone(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 60))
	other := *b
	other.speaker = newSpeaker(2, 99, &b.config, b.limits)
	b.run(t, b.takes(1, 50))
	big := b.takes(1, 60)
	big.age = time.Second
	b.run(t, big)
	if r := other.run(t, other.takes(1, 1)); r.granted != 0 {
		t.Fatalf("%+v", r)
	}
	b.run(t, &batch{})
	if r := other.run(t, other.takes(10, 1)); r.granted != 10 {
		t.Errorf("%+v", r)
	}
}

// Contract 9: the ramp goes on until the level binds.
func TestScriptEndsTheRampWhereTheLevelBinds(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 60))
	b.run(t, b.takes(1, 60))
	b.run(t, &batch{ops: [][]string{{opHold, "1000000"}}})
	b.now += 1_000_000
	r := b.run(t, b.takes(2, 1))
	if r.granted != 1 || r.ramp == 0 {
		t.Fatalf("%+v", r)
	}
	b.now += 1_000_000
	ramp := whole(r.ramp)
	if r := b.run(t, &batch{ops: [][]string{{opServed, ramp}, {opLeft, ramp}}, groups: []group{{2, []int64{1}}}}); r.granted != 1 || r.ramp != 0 {
		t.Fatalf("two might be out, there is one token: %+v", r)
	}
	b.now += 20_000_000
	if r := b.run(t, b.takes(20, 1)); r.granted != 20 || r.ramp != 0 {
		t.Errorf("the ramp goes on: %+v", r)
	}
}

// Contract 13: a clock that steps back takes nothing away either.
func TestScriptClockStepsBackAndTakesNothing(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 60),
		bucket.Limit{Unit: bucket.Requests, Amount: 100, Per: time.Second, Shape: bucket.Window})
	b.run(t, b.takes(1, 10, 10))
	b.now -= time.Hour.Microseconds()
	r := b.run(t, b.takes(60, 1, 1))
	if r.granted != 50 || r.wait <= 0 || r.wait > time.Second+time.Millisecond {
		t.Errorf("%+v", r)
	}
}

// Limits of which one process has the lower rate, another the lower burst: both hold for both.
func TestScriptKeepsTheLowerOfEach(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.Limit{Unit: bucket.Requests, Amount: 10, Per: time.Second, Burst: 100})
	other := *b
	other.limits = limitsOf([]bucket.Limit{{Unit: bucket.Requests, Amount: 20, Per: time.Second, Burst: 50}}, 1)
	other.speaker = newSpeaker(2, 99, &b.config, other.limits)
	b.run(t, b.takes(1, 100))
	other.run(t, other.takes(1, 1))
	b.now += 4_000_000
	if r := b.run(t, &batch{}); r.limits[0].available != 40 || !r.differ {
		t.Errorf("%+v", r)
	}
	b.now += 4_000_000
	if r := b.run(t, b.takes(100, 1)); r.granted != 50 {
		t.Errorf("%d left at once, the lower burst is 50", r.granted)
	}
	other.now = b.now + 1_000_000
	if r := other.run(t, other.takes(100, 1)); r.granted != 10 || !r.differ {
		t.Errorf("%d left after a second, the lower rate is 10", r.granted)
	}
}
