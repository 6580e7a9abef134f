package escalate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
)

func TestCallbacksRunOutsideLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			r   *Router
			log []string
		)
		inspect := func() { r.Snapshot(); r.Soonest(); r.Watch(0, func() {})() }
		r = newRouter(t, Settings{
			Name:    "stack",
			Timeout: time.Second,
			ReadyToTrip: func(c gobreaker.Counts) bool {
				inspect()
				return c.ConsecutiveFailures >= 2
			},
			OnStateChange: func(name string, from, to gobreaker.State) {
				inspect()
				log = append(log, fmt.Sprintf("%s %v>%v", name, from, to))
				if p, err := r.Allow(0); err == nil { // changes the state from within
					p.Done(Outcome{Verdict: Neutral})
				}
			},
		})
		for range 2 {
			pass(t, r, 0).Done(Outcome{Verdict: Failure})
		}
		time.Sleep(time.Second)
		pass(t, r, 0).Done(Outcome{})
		want := []string{"stack/P closed>open", "stack/P open>half-open", "stack/P half-open>closed"}
		if !slices.Equal(log, want) {
			t.Fatalf("OnStateChange saw %v, want %v", log, want)
		}
	})
}

func TestPanickingCallbacks(t *testing.T) {
	wantPanic := func(t *testing.T, err error, hook string) {
		t.Helper()
		var p *PanicError
		if !errors.As(err, &p) || p.Hook != hook || p.Value != "boom" || len(p.Stack) == 0 || !strings.Contains(err.Error(), "boom") {
			t.Fatalf("error %v, want the panic of %s", err, hook)
		}
	}
	t.Run("ReadyToTrip", func(t *testing.T) {
		r := newRouter(t, Settings{Escalations: 2, ReadyToTrip: func(gobreaker.Counts) bool { panic("boom") }})
		wantPanic(t, pass(t, r, 0).Done(Outcome{Verdict: Failure}), "ReadyToTrip")
		wantPanic(t, pass(t, r, 0).Done(Outcome{Verdict: Escalated}), "ReadyToTrip")
		wantState(t, r, 0, "closed")
		wantPanic(t, pass(t, r, 0).Done(Outcome{Verdict: Escalated}), "ReadyToTrip")
		wantState(t, r, 0, "open")
		wantPanic(t, func() error {
			r := newRouter(t, Settings{ReadyToTrip: func(gobreaker.Counts) bool { panic("boom") }})
			p := pass(t, r, 0)
			p.Done(Outcome{})
			return p.Late(Transport)
		}(), "ReadyToTrip")
	})
	t.Run("OnStateChange", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRouter(t, Settings{Timeout: time.Second,
				OnStateChange: func(string, gobreaker.State, gobreaker.State) { panic("boom") }})
			woken := false
			r.Watch(0, func() { woken = true })
			wantPanic(t, pass(t, r, 0).Done(Outcome{Verdict: Escalated}), "OnStateChange")
			if !woken {
				t.Error("the watch was lost")
			}
			time.Sleep(time.Second)
			_, err := r.Allow(0) // half-open; the panic is this call's error
			wantPanic(t, err, "OnStateChange")
			wantPanic(t, pass(t, r, 0).Done(Outcome{}), "OnStateChange") // its slot was free
			wantState(t, r, 0, "closed")
		})
	})
	t.Run("Watch", func(t *testing.T) {
		r := newRouter(t, Settings{})
		second := false
		r.Watch(0, func() { panic("boom") })
		r.Watch(0, func() { second = true })
		wantPanic(t, pass(t, r, 0).Done(Outcome{Verdict: Escalated}), "Watch")
		if !second {
			t.Error("the second watch was lost")
		}
	})
}
