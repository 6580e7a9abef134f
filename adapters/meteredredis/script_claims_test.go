package meteredredis

import (
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// The head that has waited longest has a claim on what comes back; who came later takes what is left beside it.
func TestScriptKeepsTheOldestHeadsClaim(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 60))
	b.run(t, b.takes(1, 60))
	other := b.another(2)
	big := b.takes(1, 50)
	big.age = 2 * time.Second
	if r := b.run(t, big); r.granted != 0 || r.wait != 50*time.Second {
		t.Fatalf("%+v", r)
	}
	for range 49 { // many small ones would starve it
		b.now += 1_000_000
		other.now = b.now
		small := other.takes(1, 1)
		if r := other.run(t, small); r.granted != 0 {
			t.Fatal("a younger call took what an older one waits for")
		}
	}
	b.now += 1_000_000
	big.age += 50 * time.Second
	if r := b.run(t, big); r.granted != 1 {
		t.Fatalf("%+v", r)
	}
	other.now = b.now + 1_000_001
	if r := other.run(t, other.takes(1, 1)); r.granted != 1 {
		t.Fatal("the claim outlives its call")
	}
}

// Whose process asks for nobody any more has no claim.
func TestScriptForgetsTheClaimOfWhoHasGone(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 60))
	other := b.another(2)
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
