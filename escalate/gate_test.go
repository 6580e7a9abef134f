package escalate

import (
	"errors"
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
			time.Sleep(time.Nanosecond)
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
		time.Sleep(10 * time.Nanosecond)
		pass(t, r, 0).Done(Outcome{})
		wantState(t, r, 0, "closed")
	})
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
