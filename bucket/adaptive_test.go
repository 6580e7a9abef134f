package bucket_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

func adaptive(limits ...bucket.Limit) bucket.Config {
	return bucket.Config{Adaptive: bucket.AdaptiveOn, Limits: limits, MaxWait: -1}
}

// taking takes one request after another for as long as it need not wait longer than patience, and
// returns the grants.
func taking(local *bucket.Local, most int, patience time.Duration) (grants []bucket.Grant) {
	for len(grants) < most {
		g, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
		switch {
		case wait == 0:
			grants = append(grants, g)
		case wait > patience, wait == 1: // a nanosecond: a slot of the ramp is missing
			return grants
		default:
			time.Sleep(wait)
		}
	}
	return grants
}

func serveAll(grants []bucket.Grant) {
	for _, g := range grants {
		g.Served()
		g.Settle(bucket.Cost{Requests: 1})
	}
}

// Proved able to fail: make AdaptiveOn the default of New.
func TestAdaptiveIsOffUnlessAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600)}})
		if n := len(taking(local, 1000, 0)); n != 600 {
			t.Errorf("%d left at once, want 600", n)
		}
	})
}

// A crowd that nobody has answered is let out a gap apart after the first five; whoever states the shape
// of the limits is believed; who has an answer to all calls need not wait.
//
// Proved able to fail: drop the gap; mind it also when a Burst is stated; mind it when nothing is in flight.
func TestAdaptiveLetsACrowdOutSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
		if n := len(taking(local, 1000, 0)); n != 5 {
			t.Errorf("%d left at once, want 5", n)
		}
		start := time.Now()
		if n := len(taking(local, 10, time.Second)); n != 10 || time.Since(start) < 200*time.Millisecond {
			t.Errorf("%d more in %v", n, time.Since(start))
		}
		stated := newLocal(t, adaptive(bucket.Limit{Unit: bucket.Requests, Amount: 600, Per: time.Minute, Burst: 100}))
		if n := len(taking(stated, 1000, 0)); n != 100 {
			t.Errorf("of a stated burst %d left at once, want 100", n)
		}
		serial := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
		for range 600 {
			g, wait := serial.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
			if wait > 0 {
				t.Fatalf("a caller of one call at a time waits %v", wait)
			}
			serveAll([]bucket.Grant{g})
		}
	})
}

// What was taken before the first refusal is the burst: afterwards no more is taken at once, and no less
// over time.
//
// Proved able to fail: leave the burst as it was; drop the refill.
func TestAdaptiveLearnsTheBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
		first := taking(local, 11, time.Second)
		serveAll(first[:10])
		time.Sleep(20 * time.Millisecond)
		first[10].RefusedHinted(time.Second, time.Second)
		time.Sleep(20 * time.Second) // full again, whatever it holds
		start := time.Now()
		grants := taking(local, 50, time.Second)
		serveAll(grants)
		if took := time.Since(start); len(grants) != 50 || took < 4*time.Second || took > 4500*time.Millisecond {
			t.Errorf("%d in %v, want 50 in 4 s and a little: a burst of some 10, and 10 a second", len(grants), took)
		}
	})
}

// A hint longer than any bucket explains is the end of a window, where all is there again; without a hint
// nothing is concluded from a hold.
//
// Proved able to fail: take the hold for a hint; leave the limit as it is at the boundary.
func TestAdaptiveLearnsAWindow(t *testing.T) {
	for _, hinted := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 60)))
			first := taking(local, 60, time.Second)
			serveAll(first[:59])
			if len(first) != 60 {
				t.Fatalf("%d", len(first))
			}
			left := 20 * time.Second
			if hinted {
				first[59].RefusedHinted(left, left)
			} else {
				first[59].Refused(left)
			}
			time.Sleep(left)
			start := time.Now()
			for time.Since(start) < 10*time.Second {
				grants := taking(local, 60, 0)
				serveAll(grants)
				first = append(first, grants...)
				time.Sleep(50 * time.Millisecond)
			}
			n := len(first) - 60
			if hinted && n < 60 || !hinted && n > 40 {
				t.Errorf("hinted %v: %d in the 10 s after the hold", hinted, n)
			}
		})
	}
}

// However it goes, no window admits more than the limits say, as long as no window of the server's was
// shown; and recovery is bounded: five minutes after the last refusal the published rate is in use.
//
// Proved able to fail: renew the limit at every hold's end; let a learned rate stand.
func TestAdaptiveNeverAdmitsMoreThanTheLimitsAndRecovers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rpm := rapid.Int64Range(30, 600).Draw(rt, "rpm")
		limit := bucket.PerMinute(bucket.Requests, rpm)
		seconds := rapid.SliceOfN(rapid.IntRange(0, 3), 5, 40).Draw(rt, "pauses")
		fate := rapid.SliceOfN(rapid.IntRange(0, 3), 40, 40).Draw(rt, "fates")
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, adaptive(limit))
			start := time.Now()
			var at []time.Duration
			for i, s := range seconds {
				grants := taking(local, 30, 500*time.Millisecond)
				for range grants {
					at = append(at, time.Since(start))
				}
				for k, g := range grants {
					switch f := fate[(i+k)%len(fate)]; {
					case f == 0:
						g.RefusedHinted(1500*time.Millisecond, time.Second)
					case f == 1 && k == 0:
						g.Refused(time.Duration(i) * time.Second)
					default:
						serveAll([]bucket.Grant{g})
					}
				}
				time.Sleep(time.Duration(s) * time.Second)
			}
			// The instants noted are those of the last of each lot, so widen the window by a lot's time.
			for i := range at {
				for j := i; j < len(at); j++ {
					w := at[j] - at[i] + 20*time.Second
					if n := int64(j - i + 1); n > limit.WorstWindow(w) {
						rt.Fatalf("%d in %v, at most %d", n, w, limit.WorstWindow(w))
					}
				}
			}
			time.Sleep(5 * time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			served := 0
			for begin := time.Now(); time.Since(begin) < time.Minute; served++ {
				g, err := local.Acquire(ctx, theKey, bucket.Cost{Requests: 1})
				if err != nil {
					rt.Fatal(err)
				}
				serveAll([]bucket.Grant{g})
			}
			if int64(served) < rpm*9/10 {
				rt.Fatalf("%d in the minute after recovery, published %d", served, rpm)
			}
		})
	})
}

// A call to which somebody else leaves no room is asked for less and less often; once it is served all goes
// on as before.
//
// Proved able to fail: let yield return 0; leave vain as it is when a call is served.
func TestAdaptiveYieldsWhereItIsRefusedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
		start, refused := time.Now(), 0
		refuse := func(g bucket.Grant) {
			time.Sleep(20 * time.Millisecond)
			g.RefusedHinted(time.Second, time.Second)
			refused++
		}
		for time.Since(start) < time.Minute {
			for _, g := range taking(local, 1, 10*time.Second) {
				refuse(g)
			}
		}
		if refused < 8 || refused > 16 {
			t.Errorf("%d refusals in a minute; want some 12, of 60 that were asked for", refused)
		}
		serveAll(taking(local, 1, 10*time.Second))
		refuse(taking(local, 1, 10*time.Second)[0])
		_, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
		time.Sleep(wait)
		if _, more := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1}); wait+more > 2*time.Second {
			t.Errorf("the wait after one refusal is %v", wait+more)
		}
	})
}
