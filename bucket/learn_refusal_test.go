package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Nobody tells a limit: what is refused does, and few are refused for it. Without Adaptive nothing is
// learned.
//
// Proved able to fail: let the level of an inferred meter start full; infer at the first refusal.
func TestRefusalsTeachTheLimitThatNobodyTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive())
		s := small{level: 10, at: time.Now()}
		start := time.Now()
		s.send(t, local, 600)
		if rate := float64(s.served) / time.Since(start).Seconds(); rate < 8 || s.refused > 20 {
			t.Errorf("%d of 600 were refused, %.1f a second served, the server refills 10", s.refused, rate)
		}
		k := local.Learned()[theKey]
		if len(k.Limits) != 1 || k.Limits[0].Source != bucket.Inferred || k.Limits[0].Burst > 20 {
			t.Errorf("learned %+v", k)
		}
		config := adaptive()
		config.Learned = map[string]bucket.Learned{theKey: k}
		s = small{level: 10, at: time.Now()}
		s.send(t, newLocal(t, config), 100)
		if s.refused > 2 {
			t.Errorf("%d of 100 were refused after a restart", s.refused)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		off := newLocal(t, bucket.Config{})
		s := small{level: 10, at: time.Now()}
		s.send(t, off, 50)
		if k := off.Learned(); len(k) != 0 {
			t.Errorf("without Adaptive %+v was learned", k)
		}
	})
}

// What refusals have taught neither grows nor shrinks from start to start, and spares refusals.
//
// Proved able to fail: give nothing back; round a burst down when it is saved (not each time).
func TestWhatRefusalsTaughtDoesNotDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := adaptive()
		first, last := 0, 0
		for start := range 20 {
			s := small{level: 10, at: time.Now()}
			local := newLocal(t, config)
			s.send(t, local, 600)
			if last = s.refused; start == 0 {
				first = last
			}
			config.Learned = local.Learned()
		}
		if l := config.Learned[theKey].Limits[0]; l.Amount > 1200 || l.Burst < 4 || last >= first {
			t.Errorf("after twenty starts %d are refused, %d at first; learned %+v", last, first, l)
		}
	})
}
