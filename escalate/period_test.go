package escalate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
)

// A call that outlives the window it began in must still count, or a route that
// fails slowly never trips.
func TestFailuresLongerThanInterval(t *testing.T) {
	for name, set := range map[string]Settings{
		"fixed window":   {Interval: 10 * time.Second},
		"rolling window": {Interval: 10 * time.Second, BucketPeriod: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set.ReadyToTrip = after(3)
				r := newRouter(t, set)
				calls := []Permit{pass(t, r, 0), pass(t, r, 0), pass(t, r, 0)}
				time.Sleep(25 * time.Second)
				for _, p := range calls {
					wantState(t, r, 0, "closed")
					p.Done(Outcome{Verdict: Failure})
				}
				wantState(t, r, 0, "open")
			})
		})
	}
}

func TestCallsOfOneBucketAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, set := range []Settings{
			{Interval: 5 * time.Second, BucketPeriod: 10 * time.Second}, // one bucket: a fixed window
			{Interval: 10 * time.Second, BucketPeriod: 2 * time.Second},
		} {
			r := newRouter(t, set)
			for range 3 {
				p := pass(t, r, 0)
				time.Sleep(time.Second)
				p.Done(Outcome{Verdict: Failure})
			}
			if c := r.Snapshot()[0].Counts; c.Requests != 3 || c.TotalFailures != 3 || c.TotalExclusions != 0 {
				t.Errorf("%+v", c)
			}
		}
	})
}

func TestIntervalClearsTheCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{Interval: 10 * time.Second, ReadyToTrip: after(3)})
		for range 10 {
			pass(t, r, 0).Done(Outcome{Verdict: Failure})
			time.Sleep(6 * time.Second)
		}
		wantState(t, r, 0, "closed")
	})
}

func TestLateFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{ReadyToTrip: func(c gobreaker.Counts) bool { return c.TotalFailures >= 2 }})
		old, p := pass(t, r, 0), pass(t, r, 0)
		old.Done(Outcome{})
		p.Done(Outcome{})
		p.Late(Transport)
		if s := r.Snapshot()[0]; s.Late != 1 || s.Counts.TotalFailures != 1 || s.Counts.TotalSuccesses != 2 {
			t.Fatalf("%+v", s)
		}
		p.Late(Transport)
		wantState(t, r, 0, "open")
		time.Sleep(time.Minute)
		probe := pass(t, r, 0)
		probe.Done(Outcome{})
		old.Late(Transport) // from before the gate opened
		if s := r.Snapshot()[0]; s.Late != 3 || s.Counts.TotalFailures != 0 {
			t.Fatalf("%+v", s)
		}
		probe.Late(Transport) // of the answer that closed it
		if s := r.Snapshot()[0]; s.Counts.TotalFailures != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestReadyToTripIsNotAskedAboutCallsFromBeforeTheGateOpened(t *testing.T) {
	asked := 0
	r := newRouter(t, Settings{ReadyToTrip: func(gobreaker.Counts) bool { asked++; return false }})
	old := pass(t, r, 0)
	pass(t, r, 0).Done(Outcome{Verdict: QuotaOut})
	old.Done(Outcome{Verdict: Failure})
	if asked != 0 {
		t.Errorf("asked %d times", asked)
	}
}
