package bucket_test

import (
	"context"
	"math/big"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

// keyOp is one thing that happens to one of many keys.
type keyOp struct {
	key  string
	what string // take, open, owe, hold, wait, queue
	cost int64
	gap  time.Duration
}

// refBucketOf is what the test knows of a key.
type refBucketOf struct {
	meter         *refMeter
	open, waiting bool
	heldUntil     time.Duration
	used          time.Duration // last
}

// pinned says that the key must not be forgotten.
func (b *refBucketOf) pinned(now time.Duration) bool {
	return b.open || b.waiting || now < b.heldUntil || b.meter.levelAt(now).Sign() < 0
}

// idle says that it must be, above MaxKeys. Between the two is the ramp after a hold.
func (b *refBucketOf) idle(now time.Duration) bool {
	return !b.pinned(now) && (b.heldUntil == 0 || now > max(b.heldUntil, b.used)+30*time.Second)
}

// Many keys above a small MaxKeys. Each key's level is its own, as the model has it; a key with waiters,
// debt, a hold or calls in flight is never forgotten; above MaxKeys a forgotten key is at least as full as
// every idle key that stays; and no more than MaxKeys stay but for those that must.
//
// Proved able to fail: forget the emptiest first; forget a key with waiters, debt, a hold or a call in
// flight; forget none.
func TestContract12_AboveMaxKeysTheFullestIdleKeyGoesFirst(t *testing.T) {
	limit := bucket.Limit{Unit: bucket.Requests, Amount: 10, Per: time.Hour}
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"}
	rapid.Check(t, func(rt *rapid.T) {
		maxKeys := rapid.IntRange(1, 8).Draw(rt, "maxKeys")
		var ops []keyOp
		for range rapid.IntRange(1, 60).Draw(rt, "ops") {
			ops = append(ops, keyOp{
				key:  rapid.SampledFrom(names).Draw(rt, "key"),
				what: rapid.SampledFrom([]string{"take", "take", "take", "take", "take", "open", "owe", "hold", "wait", "queue"}).Draw(rt, "what"),
				cost: rapid.Int64Range(1, 4).Draw(rt, "cost"),
				gap:  rapid.SampledFrom([]time.Duration{1, time.Second, time.Minute, 10 * time.Minute}).Draw(rt, "gap"),
			})
		}
		var faults []string
		synctest.Test(t, func(t *testing.T) {
			faults = playKeys(t, bucket.Config{MaxWait: -1, MaxKeys: maxKeys, Limits: []bucket.Limit{limit}}, ops)
		})
		if len(faults) > 0 {
			text := sprintf("MaxKeys %d\n", maxKeys)
			for _, o := range ops {
				text += sprintf("  %+v\n", o)
			}
			for _, f := range faults {
				text += "FAULT " + f + "\n"
			}
			rt.Fatal(text)
		}
	})
}

func playKeys(t *testing.T, cfg bucket.Config, ops []keyOp) (faults []string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	local, start := newLocal(t, cfg), time.Now()
	model := map[string]*refBucketOf{}
	for i, o := range ops {
		time.Sleep(o.gap)
		now := time.Since(start)
		b := model[o.key]
		fresh := b == nil
		if fresh {
			b = &refBucketOf{meter: newRefMeter(cfg.Limits[0], big.NewRat(1, 1))}
		}
		if b.waiting || b.open && b.heldUntil > 0 {
			continue // others stand before a take, or a ramp is full
		}
		fits := b.meter.fits(o.cost, now) && now >= b.heldUntil
		switch o.what {
		case "take", "open", "owe":
			g, wait := local.TakeAt(time.Now(), o.key, bucket.Cost{Requests: o.cost})
			if fits != (wait == 0) {
				faults = append(faults, sprintf("op %d: wait %v, fits: %v, level %v", i, wait, fits, b.meter.levelAt(now).FloatString(3)))
			}
			if wait > 0 {
				break
			}
			b.meter.charge(o.cost, now)
			switch o.what {
			case "open":
				b.open = true
			case "take":
				g.Settle(bucket.Cost{Requests: o.cost})
			case "owe":
				b.meter.charge(12, now)
				g.Settle(bucket.Cost{Requests: o.cost + 12})
			}
		case "hold":
			local.Hold(o.key, time.Now().Add(30*time.Minute))
			b.heldUntil = max(b.heldUntil, now+30*time.Minute)
		case "wait":
			local.Hold(o.key, time.Now().Add(1000*time.Hour))
			b.heldUntil, b.waiting = now+1000*time.Hour, true
			go local.Acquire(ctx, o.key, bucket.Cost{Requests: 1})
		case "queue": // behind a level that is not enough, and in time it leaves and stays in flight
			b.waiting = true
			go local.Acquire(ctx, o.key, bucket.Cost{Requests: 10})
		}
		b.used = now
		model[o.key] = b
		synctest.Wait()
		faults = append(faults, checkKeys(local, cfg, model, o.key, fresh, now, i)...)
	}
	cancel()
	synctest.Wait()
	return faults
}

// checkKeys looks at who is remembered after an operation on the key touched.
func checkKeys(local *bucket.Local, cfg bucket.Config, model map[string]*refBucketOf, touched string, fresh bool, now time.Duration, op int) (faults []string) {
	keys := local.Keys()
	kept := 0
	for key, b := range model {
		if !b.idle(now) {
			kept++
		}
		if slices.Contains(keys, key) {
			s, _ := local.Stats(key)
			want, _ := b.meter.levelAt(now).Float64()
			if !b.waiting && !closeTo([]float64{s.Levels[0].Available}, []float64{want}) {
				faults = append(faults, sprintf("op %d: level of %s is %v, want %v", op, key, s.Levels[0].Available, want))
			}
			continue
		}
		if b.pinned(now) {
			faults = append(faults, sprintf("op %d: %s was forgotten: %+v, level %s", op, key, b, b.meter.levelAt(now).FloatString(3)))
		}
		for other, o := range model {
			if slices.Contains(keys, other) && other != touched && o.idle(now) && o.meter.levelAt(now).Cmp(b.meter.levelAt(now)) > 0 {
				faults = append(faults, sprintf("op %d: %s was forgotten at level %s, %s stays at level %s", op, key,
					b.meter.levelAt(now).FloatString(3), other, o.meter.levelAt(now).FloatString(3)))
			}
		}
		delete(model, key)
	}
	if fresh && len(keys) > max(cfg.MaxKeys, kept+1) { // room is made when a key is added
		faults = append(faults, sprintf("op %d: %d keys remembered, %d are in use, MaxKeys is %d", op, len(keys), kept, cfg.MaxKeys))
	}
	return faults
}

// Keys do not share levels, queues, holds or slots, and LimitsFor overrides Limits for its key.
//
// Proved able to fail: do not ask LimitsFor; take its nil for no limits.
func TestContract12_EachKeyIsABucketOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{
			Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 2)},
			LimitsFor: func(key string) []bucket.Limit {
				switch key {
				case "five":
					return []bucket.Limit{bucket.PerMinute(bucket.Requests, 5)}
				case "none":
					return []bucket.Limit{}
				}
				return nil
			},
		})
		local.Hold("held", time.Now().Add(time.Hour))
		for key, want := range map[string]int{"a": 2, "b": 2, "five": 5, "none": 100, "held": 0} {
			n := 0
			for range 100 {
				if _, wait := local.TakeAt(time.Now(), key, bucket.Cost{Requests: 1}); wait == 0 {
					n++
				}
			}
			if n != want {
				t.Errorf("%d taken of %s, want %d", n, key, want)
			}
		}
	})
}

// Idle full keys are forgotten in time, also below MaxKeys, as new ones come.
//
// Proved able to fail: forget only above MaxKeys.
func TestContract12_IdleFullKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxKeys: 1 << 20, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
		for day := range 5 {
			for i := range 5000 {
				g, _ := local.TakeAt(time.Now(), sprintf("%d of day %d", i, day), bucket.Cost{Requests: 1})
				g.Settle(bucket.Cost{Requests: 1})
			}
			time.Sleep(24 * time.Hour)
		}
		if n := len(local.Keys()); n > 15_000 {
			t.Errorf("%d keys are remembered, 5,000 were in use on each of five days", n)
		}
	})
}
