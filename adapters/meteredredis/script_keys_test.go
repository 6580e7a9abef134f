package meteredredis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Contract 12: every key has a time to live of twice its longest window at least, while it means anything.
func TestScriptBoundsTheLifeOfKeys(t *testing.T) {
	c := connect(t)
	for _, l := range []bucket.Limit{
		bucket.PerMinute(bucket.Requests, 10),
		{Unit: bucket.Requests, Amount: 10, Per: time.Hour, Shape: bucket.Window},
	} {
		b := newBench(t, c, t.Name(), l)
		for range 5 {
			b.run(t, b.takes(1, 3))
			if ttl := c.PTTL(context.Background(), b.name).Val(); ttl < 2*l.Per-time.Second || ttl > 100*l.Per {
				t.Errorf("%v: lives for %v", l, ttl)
			}
			b.now += l.Per.Microseconds() / 3
		}
		b.run(t, &batch{ops: [][]string{{opHold, whole((24 * time.Hour).Microseconds())}}})
		if ttl := c.PTTL(context.Background(), b.name).Val(); ttl < 24*time.Hour {
			t.Errorf("held for a day, lives for %v", ttl)
		}
		b.run(t, &batch{ops: [][]string{{opExtra, "1", "1000"}}})
		if ttl := c.PTTL(context.Background(), b.name).Val(); l.Shape == bucket.TokenBucket && ttl < 100*l.Per {
			t.Errorf("in debt for a hundred periods, lives for %v", ttl)
		}
	}
}

// A store that has lost the budget asks first what was known, and starts from the lower.
func TestScriptAsksForWhatItHasLost(t *testing.T) {
	c := connect(t)
	b := newBench(t, c, t.Name(), bucket.PerMinute(bucket.Requests, 100))
	b.run(t, b.takes(1, 70))
	b.speaker = newSpeaker(1, 78, &b.config, b.limits) // as a process does that has learned the epoch
	c.Del(context.Background(), b.name)
	if r := b.run(t, b.takes(1, 10)); !r.declare {
		t.Fatalf("an empty store let somebody go: %+v", r)
	}
	out := b.takes(1, 10)
	out.declared = &declaration{levels: []float64{30.5}, hold: 0}
	if r := b.run(t, out); r.granted != 1 || r.limits[0].available != 20.5 {
		t.Fatalf("%+v", r)
	}
	// Another process that knew less lowers it once.
	other := b.another(2)
	other.epoch = 12345
	if r := other.run(t, other.takes(1, 1)); !r.declare {
		t.Fatal("another process was not asked")
	}
	out = other.takes(1, 1)
	out.declared = &declaration{levels: []float64{5}, hold: 3 * time.Second}
	if r := other.run(t, out); r.granted != 0 || r.hold != 3*time.Second || r.limits[0].available != 5 {
		t.Fatalf("%+v", r)
	}
}

// A clock that steps back mints nothing.
func TestScriptClockStepsBack(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 60))
	b.run(t, b.takes(1, 60))
	for range 100 {
		b.now -= 10_000_000
		b.run(t, &batch{})
		b.now += 10_000_000
		if r := b.run(t, b.takes(1, 1)); r.granted != 0 {
			t.Fatal("a token out of nothing")
		}
	}
}

func TestScriptRefusesAnotherLayout(t *testing.T) {
	needsServer(t)
	c := connect(t)
	b := newBench(t, c, t.Name(), bucket.PerMinute(bucket.Requests, 60))
	b.run(t, b.takes(1, 1))
	head, _ := c.HGet(context.Background(), b.name, "h").Bytes()
	head[6], head[7] = 0x00, 0x40 // the double 2
	c.HSet(context.Background(), b.name, "h", head)
	err := b.client.Eval(context.Background(), b.source, []string{b.name}, b.argumentOf(b.takes(1, 1)), b.now/1e6, b.now%1e6).Err()
	if err == nil || !strings.HasPrefix(err.Error(), "METEREDLAYOUT") || !ofKey(err) {
		t.Errorf("%v", err)
	}
	if errors.Is(err, redis.Nil) {
		t.Error("nil")
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
