package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A bucket that somebody else had drained, or one's own last run, looks small. Once there was time for it to
// fill, its whole content is found again: in the same process, and after a restart with what was learned,
// whether the limit is told or not.
//
// Proved able to fail: never try; give a Doubtful burst back as it is; make an inferred burst a limit; let find
// only prove.
func TestABurstLearnedTooSmallIsFoundAgain(t *testing.T) {
	for name, limits := range map[string][]bucket.Limit{"told": {bucket.PerMinute(bucket.Requests, 600)}, "not told": nil} {
		for _, restart := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				config := adaptive(limits...)
				local := newLocal(t, config)
				s := small{holds: 600, at: time.Now()}
				s.send(t, local, 100)
				if s.refused == 0 {
					t.Fatal("nothing was refused: nothing to learn")
				}
				time.Sleep(65 * time.Second)
				if restart {
					config.Learned = local.Learned()
					local = newLocal(t, config)
				}
				before, start := s.refused, time.Now()
				s.send(t, local, 100)
				if took := time.Since(start) - time.Second; took > 5*time.Second || s.refused > before {
					t.Errorf("limits %s, restart %v: 100 calls took %v, %d refused", name, restart, took, s.refused-before)
				}
				if b := local.Learned()[theKey].Limits[0].Burst; limits != nil && b > 0 && b < 50 {
					t.Errorf("restart %v: learned a burst of %d", restart, b)
				}
			})
		}
	}
}

// A bucket that is small is tried in vain less and less often.
//
// Proved able to fail: leave vain as it is; let tire leave all as it is.
func TestASmallBucketIsTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 600)))
		s := small{level: 10, at: time.Now()}
		for range 240 { // eight hours
			start := time.Now()
			s.send(t, local, 30)
			if took := time.Since(start) - time.Second; took > 5*time.Second {
				t.Fatalf("30 calls took %v", took)
			}
			time.Sleep(2 * time.Minute)
		}
		if s.refused < 2 || s.refused > 20 {
			t.Errorf("%d of %d were refused", s.refused, s.refused+s.served)
		}
	})
}
