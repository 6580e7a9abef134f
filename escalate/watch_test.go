package escalate

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{Timeout: 10 * time.Second}, Route{Name: "B"})
		var called []string
		watch := func(i int, name string) func() {
			return r.Watch(i, func() {
				if ok, _ := r.Admits(i); ok { // no lock is held, and the gate is open already
					t.Errorf("%s: called while the gate admits", name)
				}
				called = append(called, name)
			})
		}
		watch(0, "a")
		stop := watch(0, "stopped")
		watch(0, "b")
		watch(1, "other route")
		stop()
		stop()
		pass(t, r, 0).Done(hint(Escalated, time.Second))
		watch(0, "while it rests")
		if want := []string{"a", "b", "while it rests"}; !slices.Equal(called, want) {
			t.Fatalf("called %v, want %v", called, want)
		}
		time.Sleep(time.Second)
		probe := pass(t, r, 0)
		watch(0, "during the probe")
		probe.Done(Outcome{Verdict: Refused})
		if want := []string{"a", "b", "while it rests", "during the probe"}; !slices.Equal(called, want) {
			t.Fatalf("called %v, want %v", called, want)
		}
	})
}

func TestAWatchMayStopAnother(t *testing.T) {
	r := newRouter(t, Settings{})
	var stop func()
	calls := 0
	r.Watch(0, func() { calls++; stop() })
	stop = r.Watch(0, func() { calls += 10 })
	pass(t, r, 0).Done(hint(Escalated, 0))
	if calls != 1 {
		t.Errorf("calls = %d, want the first watch alone", calls)
	}
	probe := pass(t, r, 0)
	r.Watch(0, func() { calls += 100 })
	probe.Done(hint(Refused, 0))
	if calls != 101 {
		t.Errorf("calls = %d, want the new watch called", calls)
	}
}
