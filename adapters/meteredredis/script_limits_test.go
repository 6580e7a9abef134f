package meteredredis

import (
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Limits that differ: the lower ones hold, as long as somebody has them.
func TestScriptKeepsTheLowerLimits(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 100))
	low := b.another(2, bucket.PerMinute(bucket.Requests, 40))
	if r := low.run(t, low.takes(1, 40)); r.granted != 1 || r.differ {
		t.Fatalf("%+v", r)
	}
	b.epoch = low.epoch
	b.now += 60_000_000
	if r := b.run(t, b.takes(100, 1)); r.granted != 40 || !r.differ {
		t.Fatalf("%d left under a limit of 40, differ %v", r.granted, r.differ)
	}
	b.now += 300_000_000
	if r := b.run(t, b.takes(200, 1)); r.granted != 40 && r.granted != 100 || r.granted == 100 && r.differ {
		t.Fatalf("%+v", r)
	}
	b.now += 60_000_000
	if r := b.run(t, b.takes(200, 1)); r.granted != 100 || r.differ {
		t.Fatalf("nobody has 40 any more: %d left", r.granted)
	}
}

// Limits of which one process has the lower rate, another the lower burst: both hold for both.
func TestScriptKeepsTheLowerOfEach(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.Limit{Unit: bucket.Requests, Amount: 10, Per: time.Second, Burst: 100})
	other := b.another(2, bucket.Limit{Unit: bucket.Requests, Amount: 20, Per: time.Second, Burst: 50})
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
