package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A mute is a server that never says how long to wait: of sixty calls in each minute of the clock, or, where
// it refills, of ten at once and a call every two seconds.
type mute struct {
	start   time.Time
	refills bool
	used    float64
	at      time.Time
	refused int
}

func (s *mute) serves() bool {
	now := time.Now()
	if s.refills {
		s.used = max(0, s.used-now.Sub(s.at).Seconds()/2)
	} else if now.Sub(s.start)/time.Minute != s.at.Sub(s.start)/time.Minute {
		s.used = 0
	}
	s.at = now
	most := 60.0
	if s.refills {
		most = 10
	}
	if s.used > most-1 {
		s.refused++
		return false
	}
	s.used++
	return true
}

// send sends calls for a time, as fast as they may leave, and returns how many were served.
func (s *mute) send(t *testing.T, local *bucket.Local, span time.Duration) (served int) {
	t.Helper()
	for start := time.Now(); time.Since(start) < span; {
		g, wait := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
		if wait > 0 {
			time.Sleep(max(wait, time.Millisecond))
			continue
		}
		ok := s.serves()
		time.Sleep(5 * time.Millisecond)
		if ok {
			served++
			serveAll([]bucket.Grant{g})
		} else {
			g.RefusedHinted(200*time.Millisecond, 0)
		}
	}
	return served
}

// Where no answer says how long to wait, nothing served for long and then something all of a sudden is the
// start of a window; what is served soon after a refusal is not.
//
// Proved able to fail: let flood return at once; believe any drought.
func TestADroughtShowsAWindow(t *testing.T) {
	for _, refills := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 60)))
			s := mute{start: time.Now(), at: time.Now(), refills: refills}
			time.Sleep(10 * time.Second)
			served := s.send(t, local, 290*time.Second)
			k := local.Learned()[theKey]
			if refills {
				if k.Metering != bucket.Buckets || served < 120 {
					t.Errorf("a bucket: %d served, of 155; learned %+v", served, k)
				}
				return
			}
			late := k.Boundary.Sub(s.start) % time.Minute
			if k.Metering != bucket.Windows || k.Period != time.Minute || late > 10*time.Second || served < 270 || s.refused > 40 {
				t.Errorf("windows: %d served, of 300, %d refused; %v late; learned %+v", served, s.refused, late, k)
			}
		})
	}
}

// To be told to wait for no time is to be told nothing of a window's end: one that is guessed stays a guess, and
// the release is as gentle as without a hint.
//
// Proved able to fail: let a hint of zero be on the grid; let held end the ramp for it.
func TestAHintOfZeroStatesNoWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 60)))
		start := time.Now()
		refuse := func(at time.Duration) {
			time.Sleep(time.Until(start.Add(at)))
			g := taking(local, 1, time.Second)[0]
			time.Sleep(20 * time.Millisecond)
			g.RefusedHinted(time.Second, 0)
		}
		refuse(0)
		refuse(30 * time.Second)
		time.Sleep(20 * time.Second)
		serveAll(taking(local, 1, time.Second))
		refuse(109 * time.Second) // and the window is guessed to end after 110 s
		if k := local.Learned()[theKey]; k.Metering != bucket.Windows || !k.Guessed {
			t.Errorf("learned %+v", k)
		}
		time.Sleep(2 * time.Second)
		if n := len(taking(local, 5, time.Second)); n != 1 {
			t.Errorf("%d left after the hold, none of them served; want 1", n)
		}
	})
}

// Windows that a server stated once, or that were given back, do not stand for ever against a bucket that never says
// how long to wait.
//
// Proved able to fail: let flood leave alone what was stated.
func TestStatedWindowsFallWhereTheyAreBelied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := adaptive(bucket.PerMinute(bucket.Requests, 60))
		config.Learned = map[string]bucket.Learned{theKey: {Metering: bucket.Windows, Boundary: time.Now(), Period: time.Minute}}
		local := newLocal(t, config)
		s := mute{start: time.Now(), at: time.Now(), refills: true}
		served := s.send(t, local, 290*time.Second)
		if k := local.Learned()[theKey]; k.Metering != bucket.Buckets || served < 120 || s.refused > 60 {
			t.Errorf("%d served, of 155, %d refused; learned %+v", served, s.refused, k)
		}
	})
}

// Where limits are not told either, a window holds what the first one has held.
//
// Proved able to fail: let widen do nothing; take the headroom of what is told off what was inferred.
func TestADroughtShowsHowMuchAWindowHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := adaptive()
		config.Headroom = 0.9
		local := newLocal(t, config)
		s := mute{start: time.Now(), at: time.Now()}
		time.Sleep(10 * time.Second)
		served := s.send(t, local, 290*time.Second)
		k := local.Learned()[theKey]
		if k.Metering != bucket.Windows || !k.Guessed || served < 285 || s.refused > 60 {
			t.Errorf("%d served, of 300, %d refused; learned %+v", served, s.refused, k)
		}
	})
}
