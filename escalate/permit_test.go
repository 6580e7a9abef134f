package escalate

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheZeroPermitDoesNothing(t *testing.T) {
	var p Permit
	if ok, rest := p.Admits(); !ok || rest != 0 || p.Probe() {
		t.Error("the zero permit belongs to a gate")
	}
	if err := errors.Join(p.Done(Outcome{Verdict: Escalated}), p.Late(Server)); err != nil {
		t.Error(err)
	}
}

func TestDoneCountsOnceThoughTicketsAreUsedAgain(t *testing.T) {
	r := newRouter(t, Settings{})
	first := pass(t, r, 0)
	first.Done(Outcome{})
	for range 100 {
		p := pass(t, r, 0)
		first.Done(Outcome{Verdict: Escalated})
		p.Done(Outcome{})
		p.Done(Outcome{Verdict: Escalated})
	}
	wantState(t, r, 0, "closed")
	if c := r.Snapshot()[0].Counts; c.TotalSuccesses != 101 {
		t.Errorf("%+v", c)
	}
}

func TestAProbeThatWaitedMayStillBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{Timeout: 10 * time.Second}, Route{Name: "B"})
		stale := pass(t, r, 0)
		if ok, _ := stale.Admits(); !ok {
			t.Fatal("a closed gate does not admit")
		}
		pass(t, r, 0).Done(Outcome{Verdict: Escalated})
		if ok, rest := stale.Admits(); ok || rest != 10*time.Second {
			t.Fatalf("an open gate admits: %v, %v", ok, rest)
		}
		time.Sleep(10 * time.Second)
		probe := pass(t, r, 0)
		time.Sleep(2 * time.Second) // in the bucket's queue
		if ok, _ := r.Admits(0); ok {
			t.Error("the gate admits a second probe")
		}
		if ok, _ := probe.Admits(); !ok {
			t.Error("the probe is kept out by its own slot")
		}
		if ok, _ := stale.Admits(); ok {
			t.Error("a call from before is let past the probe")
		}
		probe.Done(Outcome{})
		if ok, _ := stale.Admits(); !ok {
			t.Error("a closed gate does not admit")
		}
	})
}
