package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// What answers have less left than our own calls explain was taken by others.
//
// Proved able to fail: count our own as foreign; count what a small bucket cannot hold as foreign.
func TestForeignUseIsSeen(t *testing.T) {
	for _, headroom := range []float64{1, 0.9} {
		synctest.Test(t, func(t *testing.T) {
			config := adaptive(bucket.PerMinute(bucket.Requests, 600))
			config.Headroom = headroom
			local := newLocal(t, config)
			s := refilling{limit: 600, brim: 600, rate: 10, level: 500, at: time.Now()}
			for range 20 {
				call(local, func() bucket.Meter { s.level--; return s.state() })
				time.Sleep(time.Second / 5)
			}
			if l := onlyLevel(t, local); l.Own != 20 || l.Foreign > 1 {
				t.Errorf("headroom %v: own %d, foreign %d, want 20 and none", headroom, l.Own, l.Foreign)
			}
			for range 20 {
				s.level -= 5 // somebody else
				call(local, func() bucket.Meter { s.level--; return s.state() })
				time.Sleep(time.Second / 5)
			}
			if l := onlyLevel(t, local); l.Own != 40 || l.Foreign < 98 || l.Foreign > 102 {
				t.Errorf("headroom %v: own %d, foreign %d, want 40 and about 100", headroom, l.Own, l.Foreign)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
		s := refilling{limit: 600, brim: 10, rate: 10, level: 10, at: time.Now()}
		for range 20 {
			call(local, func() bucket.Meter { s.level--; return s.state() })
			time.Sleep(3 * time.Second)
		}
		if l := onlyLevel(t, local); l.Foreign > 1 {
			t.Errorf("foreign %d of a small bucket that nobody else uses", l.Foreign)
		}
	})
}

// Proved able to fail: lay all refusals to one.
func TestRefusalsAreLaidToWhoeverSpent(t *testing.T) {
	one := bucket.Cost{Requests: 1}
	by := func(t *testing.T, local *bucket.Local) bucket.Refusals {
		s, _ := local.Stats(theKey)
		return s.Refusals
	}
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 2)}})
		g, _ := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 3})
		g.Refused(0)
		if got := by(t, local); got != (bucket.Refusals{Own: 1}) {
			t.Errorf("above capacity: %+v", got)
		}
		g, err := local.Acquire(t.Context(), theKey, one)
		if err != nil || !g.Overdue() {
			t.Fatal(err, "not overdue")
		}
		g.Refused(0)
		if got := by(t, local); got != (bucket.Refusals{Own: 2}) {
			t.Errorf("overdue: %+v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
		g, _ := local.TakeAt(time.Now(), theKey, one)
		g.Refused(0)
		if got := by(t, local); got != (bucket.Refusals{Unknown: 1}) {
			t.Errorf("nothing shows: %+v", got)
		}
		local = newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
		s := refilling{limit: 600, brim: 600, rate: 10, level: 500, at: time.Now()}
		call(local, s.state)
		s.level = 0
		g, _ = local.TakeAt(time.Now(), theKey, one)
		g.Report(s.state())
		g.Refused(0)
		if got := by(t, local); got != (bucket.Refusals{Foreign: 1}) {
			t.Errorf("somebody took all: %+v", got)
		}
	})
}

// What no call is charged for is not known to be another's.
//
// Proved able to fail: compare all the same.
func TestWhatNobodyCountsIsNotForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Tokens, 1000)))
		for left := int64(1000); left > 0; left -= 100 {
			call(local, func() bucket.Meter {
				return bucket.Meter{Unit: bucket.Tokens, Limit: 1000, Remaining: left, Per: time.Minute}
			})
		}
		s, _ := local.Stats(theKey)
		if s.Levels[0].Foreign != 0 {
			t.Errorf("%d tokens are foreign; this key's calls are not charged for any", s.Levels[0].Foreign)
		}
	})
}

// Parts of a unit that refill between two answers add up.
//
// Proved able to fail: forget what is not whole yet.
func TestForeignUseIsCountedInSmallSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 120)))
		s := refilling{limit: 120, brim: 120, rate: 2, level: 100, at: time.Now()}
		for i := range 120 {
			if i%4 == 0 {
				s.level-- // somebody else
			}
			call(local, func() bucket.Meter { s.level--; return s.state() })
			time.Sleep(time.Second / 4)
		}
		if l := onlyLevel(t, local); l.Foreign < 28 || l.Foreign > 32 {
			t.Errorf("foreign %d, want about 30", l.Foreign)
		}
	})
}

// What rounding explains lays no refusal to others.
//
// Proved able to fail: let a unit be enough in others; let no amount be.
func TestARoundedAnswerBlamesNobody(t *testing.T) {
	for left, foreign := range map[int64]int64{49: 0, 48: 1} {
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
			state := func(left int64) bucket.Meter {
				return bucket.Meter{Unit: bucket.Requests, Limit: 600, Remaining: left, Per: time.Minute, Refills: true}
			}
			call(local, func() bucket.Meter { return state(50) })
			g := taking(local, 1, 0)[0]
			g.Report(state(left)) // one is of g itself, which is refused and was not charged
			g.RefusedHinted(time.Second, time.Second)
			if s, _ := local.Stats(theKey); s.Refusals.Foreign != foreign {
				t.Errorf("%d left: refusals %+v, want %d foreign", left, s.Refusals, foreign)
			}
		})
	}
}
