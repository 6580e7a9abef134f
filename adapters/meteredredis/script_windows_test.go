package meteredredis

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Contract 2: a window never has more than Amount in any span of Per, refunds act at the admission's time, and
// a call leaves at most a slice later than exact books would let it.
func TestScriptKeepsWindows(t *testing.T) {
	c := connect(t)
	rapid.Check(t, func(rt *rapid.T) {
		l := bucket.Limit{Unit: bucket.Requests, Shape: bucket.Window,
			Amount: rapid.Int64Range(1, 60).Draw(rt, "amount"),
			Per:    time.Duration(rapid.Int64Range(1, 60).Draw(rt, "seconds")) * time.Second}
		per := l.Per.Microseconds()
		b := newBench(t, c, t.Name(), l)
		type charge struct{ at, cost int64 }
		var log []charge
		used := func(from, to int64) (n int64) { // in (from, to]
			for _, c := range log {
				if c.at > from && c.at <= to {
					n += c.cost
				}
			}
			return n
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			b.now += rapid.Int64Range(0, per/3).Draw(rt, "later")
			if len(log) > 0 && rapid.IntRange(0, 4).Draw(rt, "refund") == 0 {
				i := rapid.IntRange(0, len(log)-1).Draw(rt, "of")
				back := log[i].cost
				b.run(rt, &batch{ops: [][]string{{opRefund, "1", whole(back), whole(log[i].at)}}})
				log[i].cost = 0
				continue
			}
			cost := rapid.Int64Range(1, l.Amount).Draw(rt, "cost")
			r := b.run(rt, b.takes(1, cost))
			if r.granted == 1 {
				log = append(log, charge{b.now, cost})
				if n := used(b.now-per, b.now); n > l.Amount {
					rt.Fatalf("%d in a window of %d", n, l.Amount)
				}
				continue
			}
			// What counts no more in a slice's time does not count in exact books; then it must fit.
			slice := per/256 + 1
			if used(b.now-per+slice, b.now)+cost <= l.Amount && used(b.now-per-slice, b.now)+cost <= l.Amount {
				rt.Fatalf("refused %d, though %d of %d are used", cost, used(b.now-per-slice, b.now), l.Amount)
			}
			if r.wait <= 0 {
				rt.Fatal("refused without a wait")
			}
			if r.wait > l.Per+time.Millisecond {
				rt.Fatalf("to wait %v of %v", r.wait, l.Per)
			}
		}
	})
}

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
	other := b.another(2)
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
