package escalate

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
)

func newRouter(t testing.TB, set Settings, backups ...Route) *Router {
	t.Helper()
	r, err := New(Config{Primary: Route{Name: "P"}, Backups: backups, Settings: set})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// pass is a call that must be let through.
func pass(t testing.TB, r *Router, i int) Permit {
	t.Helper()
	p, err := r.Allow(i)
	if err != nil {
		t.Fatalf("route %d: %v", i, err)
	}
	return p
}

// turnedAway is a call that must not be.
func turnedAway(t testing.TB, r *Router, i int, cause error, rest time.Duration) {
	t.Helper()
	_, err := r.Allow(i)
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, cause) {
		t.Fatalf("route %d: error %v, want *Error matching %v", i, err, cause)
	}
	if e.RetryAfter != rest {
		t.Fatalf("route %d: RetryAfter %v, want %v", i, e.RetryAfter, rest)
	}
}

func wantState(t testing.TB, r *Router, i int, state string) {
	t.Helper()
	if got := r.Snapshot()[i].State; got != state {
		t.Fatalf("route %d is %s, want %s", i, got, state)
	}
}

func hint(v Verdict, d time.Duration) Outcome {
	return Outcome{Verdict: v, RetryAfter: d, HasHint: true}
}

func after(n uint32) func(gobreaker.Counts) bool {
	return func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= n }
}

// Plain 429s open the breaker (coder/coder#24701, lgriffin/ESI.ts#54).
func TestFieldReport_G1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{ReadyToTrip: after(3)}, Route{Name: "P with key 2"})
		for range 10 { // [429{0}, 200]: absorbed, then served
			pass(t, r, 0).Done(Outcome{Verdict: Success})
		}
		for range 10 { // [429, the caller gives up while the ladder waits]
			pass(t, r, 0).Done(Outcome{Verdict: Refused})
		}
		wantState(t, r, 0, "closed")
		if c := r.Snapshot()[0].Counts; c.TotalFailures != 0 {
			t.Fatalf("absorbed refusals were counted as failures: %+v", c)
		}
		for range 3 { // the ladder is exhausted
			pass(t, r, 0).Done(hint(Failure, 7*time.Second))
		}
		turnedAway(t, r, 0, gobreaker.ErrOpenState, 7*time.Second)
		pass(t, r, 1).Done(Outcome{})
	})
}

func TestAbsorbedRefusalsDoNotClearTheFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{ReadyToTrip: after(3)})
		for _, v := range []Verdict{Failure, Refused, Neutral, Failure, Refused, Neutral} {
			pass(t, r, 0).Done(Outcome{Verdict: v})
		}
		wantState(t, r, 0, "closed")
		pass(t, r, 0).Done(Outcome{Verdict: Failure})
		wantState(t, r, 0, "open")
	})
}

// A probe that ends in an ignored outcome keeps the breaker half-open for ever
// (resilience4j/resilience4j#544, #935).
func TestFieldReport_G2(t *testing.T) {
	opened := func(t *testing.T) *Router {
		r := newRouter(t, Settings{Timeout: 10 * time.Second})
		pass(t, r, 0).Done(Outcome{Verdict: Escalated})
		turnedAway(t, r, 0, gobreaker.ErrOpenState, 10*time.Second)
		time.Sleep(10 * time.Second)
		return r
	}
	served := func(t *testing.T, r *Router) {
		t.Helper()
		pass(t, r, 0).Done(Outcome{Verdict: Success})
		wantState(t, r, 0, "closed")
		a, b := pass(t, r, 0), pass(t, r, 0)
		a.Done(Outcome{})
		b.Done(Outcome{})
	}
	t.Run("cancelled by the caller", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := opened(t)
			a := pass(t, r, 0)
			turnedAway(t, r, 0, gobreaker.ErrTooManyRequests, 10*time.Second)
			a.Done(Outcome{Verdict: Neutral})
			served(t, r)
		})
	})
	t.Run("panicking", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := opened(t)
			func() {
				defer func() { recover() }()
				p := pass(t, r, 0)
				defer p.Done(Outcome{Verdict: Neutral})
				panic("in the transport")
			}()
			served(t, r)
		})
	})
	t.Run("refused with a hint shorter than Timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := opened(t)
			pass(t, r, 0).Done(hint(Refused, 5*time.Second))
			time.Sleep(5*time.Second - 1)
			turnedAway(t, r, 0, gobreaker.ErrOpenState, 1)
			time.Sleep(1)
			served(t, r)
		})
	})
	t.Run("refused with a hint longer than Timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := opened(t)
			pass(t, r, 0).Done(hint(Escalated, time.Minute))
			time.Sleep(10*time.Second + 1)
			turnedAway(t, r, 0, gobreaker.ErrOpenState, 50*time.Second-1)
			time.Sleep(50*time.Second - 1)
			served(t, r)
		})
	})
	t.Run("hung without headers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := opened(t)
			hung := pass(t, r, 0)
			time.Sleep(4 * time.Second)
			turnedAway(t, r, 0, gobreaker.ErrTooManyRequests, 6*time.Second)
			time.Sleep(6 * time.Second)
			if ok, _ := hung.Admits(); ok {
				t.Error("a probe out of time may still be sent")
			}
			served(t, r)
			hung.Done(Outcome{Verdict: Failure}) // too late to matter
			wantState(t, r, 0, "closed")
		})
	})
	t.Run("slower than Timeout, every time", func(t *testing.T) {
		// A model may well take longer than Timeout to its headers. Its answer
		// must close the gate though its slot is long free.
		synctest.Test(t, func(t *testing.T) {
			r := opened(t)
			slow := pass(t, r, 0)
			time.Sleep(15 * time.Second)
			second := pass(t, r, 0)
			slow.Done(Outcome{Verdict: Success})
			wantState(t, r, 0, "closed")
			second.Done(Outcome{Verdict: Failure})
			wantState(t, r, 0, "closed")
		})
	})
	t.Run("served but its body never closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := opened(t)
			pass(t, r, 0).Done(Outcome{Verdict: Success}) // at the headers; nothing after
			wantState(t, r, 0, "closed")
		})
	})
}

// The caller's own cancellations trip the breaker
// (tinfoilsh/confidential-model-router#278, tsouza/cerberus#738).
func TestFieldReport_G3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{ReadyToTrip: after(3)})
		for range 20 {
			p := pass(t, r, 0)
			time.Sleep(5 * time.Millisecond)
			p.Done(Outcome{Verdict: Neutral})
		}
		wantState(t, r, 0, "closed")
		if c := r.Snapshot()[0].Counts; c.TotalFailures != 0 || c.ConsecutiveFailures != 0 {
			t.Fatalf("cancellations were counted: %+v", c)
		}
		for range 3 { // per-try timeouts under a live caller
			pass(t, r, 0).Done(Outcome{Verdict: Failure, Kind: Transport})
		}
		wantState(t, r, 0, "open")
		_, err := r.Allow(0)
		if e := new(Error); !errors.As(err, &e) || e.Kind != Transport {
			t.Fatalf("%v does not say why the gate is open", err)
		}
	})
}

// Backup reached only after long waits (BerriAI/litellm#3274,
// RightNow-AI/openfang#160): the router's half.
func TestFieldReport_H1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{}, Route{Name: "B"})
		pass(t, r, 0).Done(hint(Escalated, 47*time.Second))
		for i := range 10 { // ten more calls within the 47 s, shorter than gobreaker's 60
			time.Sleep(4700*time.Millisecond - 1)
			if ok, rest := r.Admits(0); ok || rest <= 0 {
				t.Fatalf("call %d: the primary admits after %v", i, time.Duration(i+1)*4700*time.Millisecond)
			}
			pass(t, r, 1).Done(Outcome{})
		}
		time.Sleep(10)
		pass(t, r, 0).Done(Outcome{})
		wantState(t, r, 0, "closed")
	})
}

// A locally made refusal gives no hint when to come back (BerriAI/litellm#27823,
// mishk0/slack-bot-api#103).
func TestFieldReport_H3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{}, Route{Name: "B"})
		pass(t, r, 0).Done(hint(Escalated, 12200*time.Millisecond))
		if got := r.Soonest(); got != 0 {
			t.Fatalf("Soonest = %v while the backup admits", got)
		}
		pass(t, r, 1).Done(Outcome{Verdict: QuotaOut, RetryAfter: 90 * time.Second, HasHint: true})
		_, first := r.Allow(0)
		_, second := r.Allow(1)
		err := fmt.Errorf("wrapped: %w", r.Exhausted(first, second))
		var e *Error
		if !errors.As(err, &e) || e.RetryAfter != 12200*time.Millisecond {
			t.Fatalf("%v: want RetryAfter 12.2s", err)
		}
		if e.Kind != RateLimit || e.Key != "P" {
			t.Errorf("Key %q, Kind %v, want those of the first route", e.Key, e.Kind)
		}
		for _, cause := range []error{first, second, gobreaker.ErrOpenState} {
			if !errors.Is(err, cause) {
				t.Errorf("%v is not reachable", cause)
			}
		}
	})
}

func TestExhaustedStatesTheShortestHintWhenNoGateRests(t *testing.T) {
	r := newRouter(t, Settings{Escalations: 9}, Route{Name: "B"})
	e := r.Exhausted(errors.New("local"), &Error{Key: "B", Kind: Overloaded, Attempts: 4, RetryAfter: 9 * time.Second},
		&Error{Key: "P", Attempts: 2, RetryAfter: 3 * time.Second})
	if e.RetryAfter != 3*time.Second || e.Attempts != 6 || e.Kind != Overloaded || e.Key != "B" {
		t.Fatalf("%+v", e)
	}
	if e := r.Exhausted(); e.Key != "P" || e.Err != nil {
		t.Fatalf("%+v", e)
	}
}

func TestOneEscalationOpens(t *testing.T) {
	for name, tc := range map[string]struct {
		o    Outcome
		rest time.Duration
		kind Kind
	}{
		"for the hint":                       {hint(Escalated, 5*time.Second), 5 * time.Second, RateLimit},
		"for a hint beyond Timeout":          {hint(Escalated, 5*time.Minute), 5 * time.Minute, RateLimit},
		"for Timeout without a hint":         {Outcome{Verdict: Escalated, RetryAfter: 3, Kind: Overloaded}, time.Minute, Overloaded},
		"for no longer than MaxRest":         {hint(Escalated, 1<<63-1), 24 * time.Hour, RateLimit},
		"not at all for a hint of zero":      {hint(Escalated, 0), 0, RateLimit},
		"not at all for a hint in the past":  {hint(Escalated, -1<<63), 0, RateLimit},
		"for a spent quota, without a hint":  {Outcome{Verdict: QuotaOut}, time.Minute, Quota},
		"for a spent quota's hint, uncapped": {hint(QuotaOut, 23*time.Hour), 23 * time.Hour, Quota},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRouter(t, Settings{})
				pass(t, r, 0).Done(tc.o)
				if s := r.Snapshot()[0]; s.Rest != tc.rest || s.Kind != tc.kind || s.Openings != 1 {
					t.Fatalf("%+v, want rest %v, kind %v", s, tc.rest, tc.kind)
				}
				time.Sleep(tc.rest)
				p := pass(t, r, 0)
				if !p.Probe() {
					t.Error("the first call after the rest is no probe")
				}
				p.Done(Outcome{})
				wantState(t, r, 0, "closed")
			})
		})
	}
}

func TestEscalationsInARow(t *testing.T) {
	r := newRouter(t, Settings{Escalations: 3})
	for _, v := range []Verdict{Escalated, Escalated, Success, Escalated, Neutral, Escalated} {
		pass(t, r, 0).Done(Outcome{Verdict: v})
		wantState(t, r, 0, "closed")
	}
	pass(t, r, 0).Done(Outcome{Verdict: Escalated})
	wantState(t, r, 0, "open")
}

func TestASpentQuotaOpensWithoutCounting(t *testing.T) {
	asked := false
	r := newRouter(t, Settings{ReadyToTrip: func(gobreaker.Counts) bool { asked = true; return true }})
	pass(t, r, 0).Done(Outcome{Verdict: QuotaOut})
	wantState(t, r, 0, "open")
	if asked {
		t.Error("ReadyToTrip was asked about a spent quota")
	}
}

func TestALaterHintProlongsTheRestAndAShorterOneDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{})
		a, b, c, d, e := pass(t, r, 0), pass(t, r, 0), pass(t, r, 0), pass(t, r, 0), pass(t, r, 0)
		rest := func(want time.Duration) {
			t.Helper()
			if _, got := r.Admits(0); got != want {
				t.Fatalf("rest %v, want %v", got, want)
			}
		}
		a.Done(hint(Escalated, 10*time.Second))
		b.Done(hint(Escalated, 5*time.Second))
		rest(10 * time.Second)
		c.Done(Outcome{Verdict: Escalated})
		rest(10 * time.Second)
		d.Done(hint(Escalated, 30*time.Second))
		rest(30 * time.Second)
		e.Done(Outcome{Verdict: Success}) // let through before: says nothing about after
		rest(30 * time.Second)
		if n := r.Snapshot()[0].Openings; n != 1 {
			t.Errorf("%d openings", n)
		}
	})
}

func TestSeveralProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{MaxRequests: 3, Timeout: 10 * time.Second})
		pass(t, r, 0).Done(Outcome{Verdict: Escalated})
		time.Sleep(10 * time.Second)
		a := pass(t, r, 0)
		time.Sleep(time.Second)
		b, c := pass(t, r, 0), pass(t, r, 0)
		turnedAway(t, r, 0, gobreaker.ErrTooManyRequests, 9*time.Second)
		a.Done(Outcome{})
		b.Done(Outcome{})
		wantState(t, r, 0, "half-open")
		turnedAway(t, r, 0, gobreaker.ErrTooManyRequests, 10*time.Second)
		c.Done(Outcome{})
		wantState(t, r, 0, "closed")
	})
}

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

func TestAnIndexOutOfRangeIsNeverLetThrough(t *testing.T) {
	r := newRouter(t, Settings{})
	for _, i := range []int{-1, 1, 1 << 40} {
		if _, err := r.Allow(i); !errors.Is(err, ErrNoRoute) {
			t.Errorf("Allow(%d): %v", i, err)
		}
		if ok, _ := r.Admits(i); ok || r.Plain(i) || r.Quota(i) != "" || r.Route(i) != nil {
			t.Errorf("route %d exists", i)
		}
		if err := r.Rewrite(i, nil); !errors.Is(err, ErrNoRoute) {
			t.Errorf("Rewrite(%d): %v", i, err)
		}
		r.Watch(i, func() { t.Error("called") })()
	}
}

func TestErrorsAreReachableThroughWrapping(t *testing.T) {
	cause := context.DeadlineExceeded
	err := error(&url.Error{Op: "Post", URL: "https://p", Err: &Error{Key: "p", Kind: Overloaded, Attempts: 4,
		RetryAfter: 1500 * time.Millisecond, Err: errors.Join(gobreaker.ErrTooManyRequests, cause)}})
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, gobreaker.ErrTooManyRequests) || !errors.Is(err, cause) {
		t.Fatal("not reachable")
	}
	want := "escalate: p: overloaded after 4 attempts, retry after 1.5s: too many requests\ncontext deadline exceeded"
	if e.Error() != want {
		t.Errorf("%q, want %q", e.Error(), want)
	}
	if got := (&Error{Attempts: 1}).Error(); got != "escalate: rate_limit after 1 attempt" {
		t.Errorf("%q", got)
	}
}

func TestNames(t *testing.T) {
	var got []string
	for k := RateLimit; k <= Transport+1; k++ {
		got = append(got, k.String())
	}
	for v := Success; v <= Refused+1; v++ {
		got = append(got, v.String())
	}
	want := []string{"rate_limit", "overloaded", "quota", "server", "transport", "kind(5)",
		"success", "neutral", "failure", "escalated", "quota_out", "refused", "verdict(?)"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}
