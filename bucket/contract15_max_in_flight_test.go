package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

// A slot is taken by the head of the queue alone, together with its tokens, and given back by the grant's
// ending, not by its headers: the reference's instants, and on the log alone never more than MaxInFlight
// grants open.
//
// Proved able to fail: free the slot at Served; admit one more; give it to a call behind the head.
func TestContract15_TheHeadTakesASlotAndHoldsItToTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bucket.Config{MaxWait: -1, Limits: drawLimits(rt), MaxInFlight: rapid.IntRange(1, 4).Draw(rt, "slots")}
		m := settleMix()
		m.verbs = append(m.verbs, served, served, giveUp)
		steps, r, end := drawSchedule(rt, cfg, m)
		p := play(t, cfg, steps, end)
		faults := differences(r, steps, p)
		ends := map[int]time.Duration{}
		for _, s := range steps {
			if s.verb == settle || s.verb == unsent || s.verb == refused {
				ends[s.call] = s.at
			}
		}
		for _, f := range p.fates {
			open := 0
			for id, o := range p.fates {
				if until, ended := ends[id]; f.what == "granted" && o.what == "granted" && o.at <= f.at && (!ended || until > f.at) {
					open++
				}
			}
			if open > cfg.MaxInFlight {
				faults = append(faults, sprintf("%d grants open at %v", open, f.at))
			}
		}
		tell(rt, cfg, steps, faults)
	})
}

// A small call behind a large one that waits for tokens does not slip into the free slot; a call waiting for
// a slot takes no tokens meanwhile; TakeAt finds no slot either.
//
// Proved able to fail: free the slot at Served; let an arrival that fits pass the line; count a waiter as
// in flight.
func TestContract15_OnlyTheHeadTakesASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxWait: -1, MaxInFlight: 2, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 60)}})
		start := time.Now()
		first, err := local.Acquire(t.Context(), theKey, bucket.Cost{InputTokens: 30})
		if err != nil {
			t.Fatal(err)
		}
		large := arriveInBackground(t, local, bucket.Cost{InputTokens: 50}) // due at 20 s
		small := arriveInBackground(t, local, bucket.Cost{InputTokens: 1})  // due at 21 s, but there are two slots
		time.Sleep(19 * time.Second)
		if _, done := small(); done {
			t.Fatal("the small call slipped by the large one")
		}
		time.Sleep(11 * time.Second)
		if at, done := large(); !done || at.Sub(start) != 20*time.Second {
			t.Errorf("the large call left: %v at %v, want 20s", done, at.Sub(start))
		}
		if _, done := small(); done {
			t.Error("a third call in two slots")
		}
		if s, _ := local.Stats(theKey); s.InFlight != 2 || s.Queued != 1 || s.Levels[0].Available != 10 || s.OldestSlot != 30*time.Second {
			t.Errorf("%+v, want two in flight, one queued, 10 tokens, the oldest slot 30 s old", s)
		}
		if _, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{InputTokens: 1}); wait == 0 {
			t.Error("TakeAt took a third slot of two")
		}
		first.Served() // the body goes on
		synctest.Wait()
		if _, done := small(); done {
			t.Error("the headers freed the slot")
		}
		first.Settle(bucket.Cost{InputTokens: 30})
		synctest.Wait()
		if at, done := small(); !done || at.Sub(start) != 30*time.Second {
			t.Errorf("the small call left: %v at %v, want 30s", done, at.Sub(start))
		}
	})
}
