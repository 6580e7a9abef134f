package bucket_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/meteredhttp/meteredhttp/bucket"
)

// A small is a server's bucket that refills ten times a second, and holds ten unless it says otherwise.
type small struct {
	holds, level    float64
	at              time.Time
	served, refused int
}

// send sends n calls, one at a time, none of which waits for its answer.
func (s *small) send(t *testing.T, local *bucket.Local, n int) {
	t.Helper()
	for range n {
		g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.level = min(max(s.holds, 10), s.level+10*time.Since(s.at).Seconds())
		s.at = time.Now()
		if ok := s.level >= 1; ok {
			s.level--
			s.served++
			time.AfterFunc(50*time.Millisecond, func() { g.Served(); g.Settle(bucket.Cost{Requests: 1}) })
		} else {
			s.refused++
			time.AfterFunc(5*time.Millisecond, func() { g.RefusedHinted(time.Second, time.Second) })
		}
	}
	time.Sleep(time.Second)
}

// Who is given back what was learned need not learn it again.
//
// Proved able to fail: forget Burst in restore.
func TestARestartWithWhatWasLearnedWastesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := adaptive(bucket.PerMinute(bucket.Requests, 600))
		s := small{level: 10, at: time.Now()}
		local := newLocal(t, config)
		s.send(t, local, 300)
		first := s.refused
		if first == 0 {
			t.Fatal("nothing was refused: nothing to learn")
		}
		text, err := json.Marshal(local.Learned())
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &config.Learned); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(local.Learned(), config.Learned); diff != "" {
			t.Errorf("another after JSON: %s", diff)
		}
		k := config.Learned[theKey]
		if k.Metering != bucket.Buckets || len(k.Limits) != 1 || k.Limits[0].Burst > 20 {
			t.Errorf("learned %s", text)
		}
		s = small{level: 10, at: time.Now()}
		again := newLocal(t, config)
		s.send(t, again, 300)
		if s.refused > 1 {
			t.Errorf("%d were refused again, %d at first", s.refused, first)
		}
	})
}

// A window's end survives a restart, and so does a meter that the server has stated.
//
// Proved able to fail: take the Boundary for an instant of the new clock; drop End.
func TestWindowsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, adaptive())
		start := time.Now()
		call(local, func() bucket.Meter {
			return bucket.Meter{Unit: bucket.Requests, Limit: 10, Remaining: 9, Reset: 20 * time.Second, Per: time.Minute}
		})
		config := adaptive()
		config.Learned = local.Learned()
		time.Sleep(90 * time.Second) // 10 s of the third window are over
		again := newLocal(t, config)
		n := 0
		for {
			_, wait := again.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
			if wait > time.Second {
				if at := time.Since(start) + wait; at != 140*time.Second {
					t.Errorf("the window ends at %v", at)
				}
				break
			}
			if time.Sleep(wait); wait == 0 {
				n++
			}
		}
		if n != 10 {
			t.Errorf("%d left in a window of 10", n)
		}

		refused := newLocal(t, adaptive(bucket.PerMinute(bucket.Requests, 60)))
		g, _ := refused.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
		g.RefusedHinted(40*time.Second, 40*time.Second)
		k := refused.Learned()[theKey]
		if k.Metering != bucket.Windows || !k.Boundary.Equal(time.Now().Add(40*time.Second)) {
			t.Errorf("learned %+v", k)
		}
	})
}

// Proved able to fail: accept any.
func TestWhatWasLearnedIsValidated(t *testing.T) {
	good := bucket.LearnedLimit{Amount: 1, Per: 1}
	for name, change := range map[string]func(*bucket.Learned){
		"metering": func(k *bucket.Learned) { k.Metering = "hourglass" },
		"Boundary": func(k *bucket.Learned) { k.Metering = bucket.Windows },
		"Amount":   func(k *bucket.Learned) { k.Limits[0].Amount = 0 },
		"Per":      func(k *bucket.Learned) { k.Limits[0].Per = -1 },
		"Burst":    func(k *bucket.Learned) { k.Limits[0].Burst = -1 },
		"Rate":     func(k *bucket.Learned) { k.Limits[0].Rate = math.NaN() },
		"Unit":     func(k *bucket.Learned) { k.Limits[0].Unit = 9 },
	} {
		k := bucket.Learned{Limits: []bucket.LearnedLimit{good}}
		change(&k)
		_, err := bucket.New(bucket.Config{Learned: map[string]bucket.Learned{"a": k}})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.HasPrefix(err.Error(), "bucket: Learned[") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is given back never lets more out than what is configured.
//
// Proved able to fail: add a meter's Burst to the level in restore.
func TestWhatWasLearnedNeverRaisesALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := adaptive(bucket.Limit{Unit: bucket.Requests, Amount: 60, Per: time.Minute, Burst: 10})
		config.Learned = map[string]bucket.Learned{theKey: {Metering: bucket.Buckets, Limits: []bucket.LearnedLimit{
			{Unit: bucket.Requests, Amount: 6000, Per: time.Minute, Burst: 6000, Source: bucket.Stated}}}}
		if n := len(taking(newLocal(t, config), 1000, 900*time.Millisecond)); n > 12 {
			t.Errorf("%d left, the limit holds 10", n)
		}
	})
}

// Windows of a limit that is no longer configured are not believed: all that a server asks for would else be taken
// for the end of one.
//
// Proved able to fail: restore windows of any period.
func TestWindowsOfALimitThatIsNoMoreAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := adaptive(bucket.PerMinute(bucket.Requests, 600))
		config.Learned = map[string]bucket.Learned{theKey: {Metering: bucket.Windows, Boundary: time.Now(), Period: time.Second}}
		s := small{level: 10, at: time.Now()}
		s.send(t, newLocal(t, config), 600)
		if s.refused > 10 {
			t.Errorf("%d of %d were refused", s.refused, s.served+s.refused)
		}
	})
}

// What is inferred from the largest calls there are can be given back.
//
// Proved able to fail: leave an inferred Amount as large as it comes.
func TestTheLargestInferenceCanBeGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := adaptive()
		local := newLocal(t, config)
		for i := range 20 {
			cost := bucket.Cost{Requests: 1, InputTokens: 1<<44 - int64(i)}
			g, wait := local.TakeAt(time.Now(), theKey, cost)
			if wait > 0 {
				t.Fatalf("a wait of %v", wait)
			}
			time.Sleep(20 * time.Millisecond)
			if i == 19 {
				g.RefusedHinted(40*time.Second, 40*time.Second)
				break
			}
			g.Served()
			g.Settle(cost)
		}
		config.Learned = local.Learned()
		if err := config.Validate(); err != nil || len(config.Learned) == 0 {
			t.Errorf("%v: learned %+v", err, config.Learned)
		}
	})
}
