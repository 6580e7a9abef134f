package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A Burst is not what a window holds: who has taken a burst and is refused for a second has met a bucket, and
// where a hint shows a window, all of the Amount is to be had of it.
//
// Proved able to fail: hold what was taken against the capacity in whole, the debt of a window against brim.
func TestABurstIsNoWindow(t *testing.T) {
	limit := bucket.Limit{Unit: bucket.Requests, Amount: 1200, Per: time.Minute, Burst: 20}
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(limit))
		grants := taking(local, 21, time.Second)
		serveAll(grants[:20])
		time.Sleep(20 * time.Millisecond)
		grants[20].RefusedHinted(time.Second, time.Second)
		if k := local.Learned()[theKey]; k.Metering != bucket.Buckets {
			t.Errorf("learned %+v", k)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(limit))
		g, _ := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
		g.RefusedHinted(40*time.Second, 40*time.Second)
		time.Sleep(40 * time.Second)
		start, served := time.Now(), 0
		for time.Since(start) < 30*time.Second {
			grants := taking(local, 1, time.Second)
			serveAll(grants)
			if served += len(grants); len(grants) == 0 {
				time.Sleep(time.Second)
			}
		}
		if k := local.Learned()[theKey]; k.Metering != bucket.Windows || served < 590 {
			t.Errorf("%d in half a minute, want 600; learned %+v", served, k)
		}
	})
}

// A window of a minute does not fill the limit of a day again, nor is it laid to that one, of which a bucket might
// ask to wait for long.
//
// Proved able to fail: count and renew the meters of every period; let need regard the meters of every period.
func TestAWindowFillsOnlyLimitsOfItsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 60),
			bucket.Limit{Unit: bucket.Requests, Amount: 100, Per: 24 * time.Hour}))
		g, _ := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
		g.RefusedHinted(40*time.Second, 40*time.Second)
		served := 0
		for start := time.Now(); time.Since(start) < 10*time.Minute; time.Sleep(time.Second) {
			grants := taking(local, 10, 100*time.Millisecond)
			serveAll(grants)
			served += len(grants)
		}
		if k := local.Learned()[theKey]; k.Metering != bucket.Windows || served < 99 || served > 101 {
			t.Errorf("%d in ten minutes, of a hundred a day; learned %+v", served, k)
		}
	})
}

// A wait that is longer than any limit is for teaches nothing.
//
// Proved able to fail: let beyond return false.
func TestAPenaltyTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
		g := taking(local, 1, 0)[0]
		time.Sleep(20 * time.Millisecond)
		g.RefusedHinted(2*time.Hour, 2*time.Hour)
		if k := local.Learned(); len(k) != 0 {
			t.Errorf("learned %+v", k)
		}
		time.Sleep(2*time.Hour + time.Second)
		for start := time.Now(); ; {
			grants := taking(local, 1, time.Second)
			serveAll(grants)
			if len(grants) == 0 || time.Since(start) > time.Second {
				t.Fatal("not a hundred left within a second")
			}
			if s, _ := local.Stats(theKey); s.Levels[0].Own > 100 {
				break
			}
		}
	})
}

// A refusal that does not say how long to wait does not make a bucket of windows that were stated.
//
// Proved able to fail: let flood uncount them.
func TestStatedWindowsStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 60)))
		g := taking(local, 1, 0)[0]
		g.RefusedHinted(40*time.Second, 40*time.Second)
		time.Sleep(41 * time.Second)
		serveAll(taking(local, 1, 0))
		taking(local, 1, time.Second)[0].Refused(time.Second)
		time.Sleep(time.Second)
		serveAll(taking(local, 1, time.Second))
		if k := local.Learned()[theKey]; k.Metering != bucket.Windows || k.Guessed {
			t.Errorf("learned %+v", k)
		}
	})
}

// A wait that is longer than a window is no window's end, though it ends where one does; and one that could be of
// a day's window was something else when a probe is served before. The caller does not wait for as long as asked.
//
// Proved able to fail: let a hint of any length be on the grid; let early return false.
func TestAPenaltyIsOverWhenCallsAreServed(t *testing.T) {
	minute, day := bucket.PerMinute(bucket.Requests, 60), bucket.Limit{Unit: bucket.Requests, Amount: 10_000, Per: 24 * time.Hour}
	for name, limits := range map[string][]bucket.Limit{"on the grid": {minute}, "within a day": {minute, day}} {
		synctest.Test(t, func(t *testing.T) {
			config := adaptive(limits...)
			config.MaxWait = 0
			local := newLocal(t, config)
			take := func() bucket.Grant {
				g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
				if err != nil {
					t.Fatal(err)
				}
				return g
			}
			take().RefusedHinted(40*time.Second, 40*time.Second)
			serveAll([]bucket.Grant{take()})
			time.Sleep(time.Second)
			take().RefusedHinted(time.Minute, 2*time.Hour-time.Second)
			time.Sleep(time.Minute)
			start, served := time.Now(), 0
			for ; time.Since(start) < 10*time.Minute; served++ {
				g := take()
				time.Sleep(20 * time.Millisecond)
				serveAll([]bucket.Grant{g})
			}
			if served < 550 {
				t.Errorf("%s: %d in ten minutes, want 600", name, served)
			}
		})
	}
}

// What a call takes nothing of has not refused it, however short the period.
//
// Proved able to fail: let need be a second at the least for whoever takes nothing.
func TestALimitThatACallTakesNothingOfIsNotBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600),
			bucket.Limit{Unit: bucket.Tokens, Amount: 1000, Per: time.Second}))
		s := small{level: 10, at: time.Now()}
		s.send(t, local, 600)
		if s.refused == 0 || s.refused > 10 {
			t.Errorf("%d of %d were refused", s.refused, s.served+s.refused)
		}
	})
}
