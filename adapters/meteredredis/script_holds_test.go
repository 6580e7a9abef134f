package meteredredis

import (
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Contract 9: nobody before the hold ends, the later of two wins; one leaves, then the number in flight doubles.
func TestScriptHoldsAndRamps(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 6000))
	b.run(t, &batch{ops: [][]string{{opHold, "5000000"}}})
	b.run(t, &batch{ops: [][]string{{opHold, "2000000"}}})
	if r := b.run(t, b.takes(3, 1)); r.granted != 0 || r.wait != 5*time.Second || r.hold != 5*time.Second {
		t.Fatalf("during the hold: %+v", r)
	}
	b.now += 5_000_000
	r := b.run(t, b.takes(10, 1))
	if r.granted != 1 || r.ramp == 0 || r.wait <= 0 {
		t.Fatalf("after the hold: %+v", r)
	}
	if r := b.run(t, b.takes(10, 1)); r.granted != 0 {
		t.Fatalf("a second one beside the first: %+v", r)
	}
	flying := 1
	for round := 1; round <= 4; round++ {
		ramp := whole(r.ramp)
		var ops [][]string
		for range flying {
			ops = append(ops, []string{opServed, ramp}, []string{opLeft, ramp})
		}
		got := b.run(t, &batch{ops: ops, groups: []group{{1000, []int64{1}}}})
		if got.granted != 2*flying {
			t.Fatalf("round %d: %d left, want %d", round, got.granted, 2*flying)
		}
		flying = got.granted
	}
	// Whoever has no answer is not waited for for ever.
	b.now += b.config.answerTime().Microseconds()
	if r := b.run(t, b.takes(10, 1)); r.granted != 1 {
		t.Fatalf("after the answer time %d left, want 1", r.granted)
	}
}

// Contract 5: nothing was admitted for MaxWait on the whole key: one probe at a time, on debt.
func TestScriptLetsOverdueOut(t *testing.T) {
	b := exhausted(t)
	overdue := b.takes(3, 1)
	b.now += 30_000_000
	overdue.age = 29 * time.Second
	if r := b.run(t, overdue); r.granted != 0 || r.wait != time.Second {
		t.Fatalf("a second early: %+v", r)
	}
	b.now += 1_000_000
	overdue.age = 30 * time.Second
	r := b.run(t, overdue)
	if r.granted != 1 || r.probe != 1 {
		t.Fatalf("overdue: %+v", r)
	}
	if r := b.run(t, overdue); r.granted != 0 {
		t.Fatalf("a second probe beside the first: %+v", r)
	}
	if r := b.run(t, &batch{ops: [][]string{{opProbed}}, age: overdue.age, groups: overdue.groups}); r.granted != 1 || r.probe != 1 {
		t.Fatalf("when the first is answered: %+v", r)
	}
	for range 10 {
		b.run(t, &batch{ops: [][]string{{opProbed}}, age: overdue.age, groups: overdue.groups})
	}
	if r := b.run(t, &batch{}); r.limits[0].available < -5 {
		t.Fatalf("probes have made a debt of %v, more than the burst", -r.limits[0].available)
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
	b := exhausted(t)
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
