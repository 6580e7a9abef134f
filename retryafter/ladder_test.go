package retryafter

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const second = time.Second

func hinted(d time.Duration) Signal {
	return Signal{Class: RateLimited, Retryable: true, RetryAfter: d, HasHint: true}
}

var unhinted = Signal{Class: RateLimited, Retryable: true}

func with(change func(*Policy)) Policy {
	p := DefaultPolicy()
	change(&p)
	return p
}

func TestStep(t *testing.T) {
	p := DefaultPolicy()
	stop := with(func(p *Policy) { p.OverCap = Stop })
	deaf := with(func(p *Policy) { p.RespectRetryAfter = false })
	fixed := Signal{Class: RateLimited, Retryable: true, Windows: []Window{{Unit: "requests", Limit: 60, Reset: 40 * second}}}
	for _, test := range []struct {
		name   string
		p      Policy
		r      Refusal
		action Action
		wait   time.Duration
	}{
		{"a hint is waited out", p, Refusal{Signal: hinted(2 * second), Total: 1, OnRoute: 1}, Wait, 2 * second},
		{"the third refusal still waits", p, Refusal{Signal: hinted(2 * second), Total: 3, OnRoute: 3, Route: true}, Wait, 2 * second},
		{"the fourth escalates where a route exists", p, Refusal{Signal: hinted(2 * second), Total: 4, OnRoute: 4, Route: true}, Escalate, 2 * second},
		{"the fourth climbs on where none does", p, Refusal{Signal: hinted(2 * second), Total: 4, OnRoute: 4}, Wait, 2 * second},
		{"the fifth climbs on", p, Refusal{Signal: hinted(2 * second), Total: 5, OnRoute: 5}, Wait, 2 * second},
		{"the sixth is the hard stop", p, Refusal{Signal: hinted(2 * second), Total: 6, OnRoute: 6}, Return, 2 * second},
		{"the hard stop counts all routes", p, Refusal{Signal: hinted(2 * second), Total: 6, OnRoute: 2, Route: true}, Return, 2 * second},
		{"the first send on a route is no retry", p, Refusal{Signal: hinted(2 * second), Total: 6, OnRoute: 2, Routes: 2}, Wait, 2 * second},
		{"and then the hard stop comes one later", p, Refusal{Signal: hinted(2 * second), Total: 7, OnRoute: 3, Routes: 2}, Return, 2 * second},
		{"without a hint five seconds", p, Refusal{Signal: unhinted, Total: 1, OnRoute: 1}, Wait, 5 * second},
		{"flat until the rung", p, Refusal{Signal: unhinted, Total: 3, OnRoute: 3}, Wait, 5 * second},
		{"doubling after", p, Refusal{Signal: unhinted, Total: 4, OnRoute: 4}, Wait, 10 * second},
		{"and again", p, Refusal{Signal: unhinted, Total: 5, OnRoute: 5}, Wait, 20 * second},
		{"flat again on the next route", p, Refusal{Signal: unhinted, Total: 5, OnRoute: 1, Routes: 2}, Wait, 5 * second},
		{"doubling ends at the cap", with(func(p *Policy) { p.MaxRetries = 1000 }), Refusal{Signal: unhinted, Total: 1000, OnRoute: 1000}, Wait, 60 * second},
		{"doubling never wraps", with(func(p *Policy) { p.MaxRetries, p.MaxDelay = 1000, math.MaxInt64 }), Refusal{Signal: unhinted, Total: 1000, OnRoute: 1000}, Wait, math.MaxInt64},
		{"an exhausted window is a hint", p, Refusal{Signal: fixed, Total: 1, OnRoute: 1}, Wait, 40 * second},
		{"a documented minimum raises the default", p, Refusal{Signal: Signal{Class: RateLimited, Retryable: true, Floor: 20 * second}, Total: 1, OnRoute: 1}, Wait, 20 * second},
		{"and grows with it", p, Refusal{Signal: Signal{Class: RateLimited, Retryable: true, Floor: 20 * second}, Total: 4, OnRoute: 4}, Wait, 40 * second},
		{"a documented minimum is no hint to escalate on", with(func(p *Policy) { p.EscalateOver = second }), Refusal{Signal: Signal{Class: RateLimited, Retryable: true, Floor: 20 * second}, Total: 1, OnRoute: 1, Route: true}, Wait, 20 * second},
		{"hints may be ignored", deaf, Refusal{Signal: hinted(2 * second), Total: 1, OnRoute: 1}, Wait, 5 * second},
		{"windows may be ignored", deaf, Refusal{Signal: fixed, Total: 1, OnRoute: 1}, Wait, 5 * second},
		{"ignored hints neither escalate nor stop", deaf, Refusal{Signal: hinted(time.Hour), Total: 1, OnRoute: 1, Route: true}, Wait, 5 * second},
		{"a long hint is clamped", p, Refusal{Signal: hinted(time.Hour), Total: 1, OnRoute: 1}, Wait, 60 * second},
		{"a long hint stops under Stop", stop, Refusal{Signal: hinted(time.Hour), Total: 1, OnRoute: 1}, Return, time.Hour},
		{"a long hint escalates where a route exists", p, Refusal{Signal: hinted(time.Hour), Total: 1, OnRoute: 1, Route: true}, Escalate, time.Hour},
		{"EscalateOver may be shorter", with(func(p *Policy) { p.EscalateOver = 2 * second }), Refusal{Signal: hinted(47 * second), Total: 1, OnRoute: 1, Route: true}, Escalate, 47 * second},
		{"EscalateOver includes itself", with(func(p *Policy) { p.EscalateOver = 2 * second }), Refusal{Signal: hinted(2 * second), Total: 1, OnRoute: 1, Route: true}, Wait, 2 * second},
		{"EscalateOver without a route waits", with(func(p *Policy) { p.EscalateOver = 2 * second }), Refusal{Signal: hinted(47 * second), Total: 1, OnRoute: 1}, Wait, 47 * second},
		{"EscalateOver may be longer than the cap", with(func(p *Policy) { p.EscalateOver = time.Hour }), Refusal{Signal: hinted(time.Minute * 5), Total: 1, OnRoute: 1, Route: true}, Wait, 60 * second},
		{"but under Stop the other route is better than the answer", with(func(p *Policy) { p.EscalateOver, p.OverCap = time.Hour, Stop }), Refusal{Signal: hinted(time.Minute * 5), Total: 1, OnRoute: 1, Route: true}, Escalate, 5 * time.Minute},
		{"a wait past the deadline is not begun", p, Refusal{Signal: hinted(6 * second), Total: 1, OnRoute: 1, HasDeadline: true, Left: 5 * second}, Return, 6 * second},
		{"it escalates where a route exists", p, Refusal{Signal: hinted(6 * second), Total: 1, OnRoute: 1, HasDeadline: true, Left: 5 * second, Route: true}, Escalate, 6 * second},
		{"a wait up to the deadline is", p, Refusal{Signal: hinted(5 * second), Total: 1, OnRoute: 1, HasDeadline: true, Left: 5 * second}, Wait, 5 * second},
		{"a clamped wait counts as clamped", p, Refusal{Signal: hinted(time.Hour), Total: 1, OnRoute: 1, HasDeadline: true, Left: 61 * second}, Wait, 60 * second},
		{"a time left means nothing without a deadline", p, Refusal{Signal: hinted(6 * second), Total: 1, OnRoute: 1}, Wait, 6 * second},
		{"overload climbs the same ladder", p, Refusal{Signal: Signal{Class: Overloaded, Retryable: true}, Total: 1, OnRoute: 1}, Wait, 5 * second},
		{"a refusal that is not retryable comes back", p, Refusal{Signal: Signal{Class: RateLimited, HasHint: true, RetryAfter: second}, Total: 1, OnRoute: 1, Route: true}, Return, second},
		{"a spent quota escalates at once", p, Refusal{Signal: Signal{Class: QuotaExhausted}, Total: 1, OnRoute: 1, Route: true}, Escalate, 0},
		{"a spent quota says how long", p, Refusal{Signal: Signal{Class: QuotaExhausted, HasHint: true, RetryAfter: time.Hour}, Total: 1, OnRoute: 1, Route: true}, Escalate, time.Hour},
		{"a spent quota without a route comes back", p, Refusal{Signal: Signal{Class: QuotaExhausted}, Total: 1, OnRoute: 1}, Return, 0},
		{"a spent quota escalates after the hard stop too", p, Refusal{Signal: Signal{Class: QuotaExhausted}, Total: 9, OnRoute: 1, Route: true}, Escalate, 0},
		{"a server's failure is not this ladder's", p, Refusal{Signal: Signal{Class: ServerError, Retryable: true}, Total: 1, OnRoute: 1, Route: true}, Return, 0},
		{"nor is another error", p, Refusal{Signal: Signal{Class: Other, Retryable: true}, Total: 1, OnRoute: 1, Route: true}, Return, 0},
		{"nor a success", p, Refusal{Route: true}, Return, 0},
		{"the wholly zero policy is the default", Policy{}, Refusal{Signal: unhinted, Total: 1, OnRoute: 1}, Wait, 5 * second},
		{"the hard stop comes before a later rung", with(func(p *Policy) { p.FallbackAfterRetries = 9 }), Refusal{Signal: unhinted, Total: 6, OnRoute: 6, Route: true}, Return, 5 * second},
		{"a rung of zero escalates at the first refusal", with(func(p *Policy) { p.FallbackAfterRetries = 0 }), Refusal{Signal: unhinted, Total: 1, OnRoute: 1, Route: true}, Escalate, 10 * second},
	} {
		t.Run(test.name, func(t *testing.T) {
			if action, wait := test.p.Step(test.r); action != test.action || wait != test.wait {
				t.Errorf("%v %v, want %v %v", action, wait, test.action, test.wait)
			}
		})
	}
}

func TestFieldReport_H1_AnAnnouncedDelayGoesToTheBackupAtOnce(t *testing.T) {
	p := with(func(p *Policy) { p.EscalateOver = 2 * second })
	r := Refusal{Signal: hinted(47 * second), Total: 1, OnRoute: 1, Route: true}
	if action, rest := p.Step(r); action != Escalate || rest != 47*second {
		t.Errorf("%v %v, want the backup now and 47 s of rest", action, rest)
	}
	// The context's deadline has the same effect as the threshold.
	r.HasDeadline, r.Left = true, 10*second
	if action, rest := DefaultPolicy().Step(r); action != Escalate || rest != 47*second {
		t.Errorf("with a deadline: %v %v", action, rest)
	}
}

func TestStepAsksWhatTheCallNeeds(t *testing.T) {
	sig := Signal{Class: RateLimited, Retryable: true, Windows: []Window{{Unit: "tokens", Limit: 1000, Remaining: 100, Reset: 45 * second, Refills: true}}}
	r := Refusal{Signal: sig, Total: 1, OnRoute: 1, Need: func(string) int64 { return 500 }}
	if action, wait := DefaultPolicy().Step(r); action != Wait || wait != 20*second {
		t.Errorf("%v %v, want the 20 s in which 400 come back", action, wait)
	}
}

func drawPolicy(t *rapid.T) Policy {
	p := Policy{
		RespectRetryAfter:    rapid.Bool().Draw(t, "respect"),
		DefaultDelay:         time.Duration(rapid.Int64Range(1, 1e11).Draw(t, "default")),
		FallbackAfterRetries: rapid.IntRange(0, 8).Draw(t, "fallback"),
		MaxRetries:           rapid.IntRange(1, 8).Draw(t, "retries"),
		Jitter:               time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "jitter")),
		OverCap:              rapid.SampledFrom([]OverCap{Clamp, Stop}).Draw(t, "overcap"),
		EscalateOver:         time.Duration(rapid.SampledFrom([]int64{0, 1e9, 1e12}).Draw(t, "over")),
	}
	p.MaxDelay = p.DefaultDelay + time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "max"))
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

func drawSignal(t *rapid.T) Signal {
	s := Signal{
		Class:     rapid.SampledFrom([]Class{RateLimited, Overloaded, QuotaExhausted, ServerError, Other, OK}).Draw(t, "class"),
		HasHint:   rapid.Bool().Draw(t, "hinted"),
		Retryable: rapid.Bool().Draw(t, "retryable"),
		Floor:     time.Duration(rapid.SampledFrom([]int64{0, 6e10, math.MaxInt64}).Draw(t, "floor")),
	}
	if s.HasHint {
		s.RetryAfter = time.Duration(rapid.SampledFrom([]int64{0, 1, 1e9, 6e10, 1e12, math.MaxInt64}).Draw(t, "hint"))
	}
	return s
}

func TestStepKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		r := Refusal{
			Signal:      drawSignal(t),
			OnRoute:     rapid.IntRange(1, 10).Draw(t, "onroute"),
			Route:       rapid.Bool().Draw(t, "route"),
			Left:        time.Duration(rapid.Int64Range(-1, 1e12).Draw(t, "left")),
			HasDeadline: rapid.Bool().Draw(t, "deadline"),
		}
		r.Total = r.OnRoute + rapid.IntRange(0, 5).Draw(t, "elsewhere")
		action, wait := p.Step(r)
		class := r.Signal.Class
		climbs := (class == RateLimited || class == Overloaded) && r.Signal.Retryable
		if wait < 0 {
			t.Fatalf("a negative wait: %v", wait)
		}
		switch action {
		case Wait:
			switch {
			case !climbs:
				t.Fatalf("waits for %v, retryable %v", class, r.Signal.Retryable)
			case wait > p.MaxDelay:
				t.Fatalf("waits %v, longer than MaxDelay", wait)
			case r.HasDeadline && wait > r.Left:
				t.Fatalf("waits %v with %v left", wait, r.Left)
			case r.Total > p.MaxRetries:
				t.Fatalf("waits after %d refusals", r.Total)
			case r.Route && r.OnRoute > p.FallbackAfterRetries:
				t.Fatalf("waits on after %d refusals though a route exists", r.OnRoute)
			case p.RespectRetryAfter && r.Signal.HasHint && wait < min(r.Signal.RetryAfter, p.MaxDelay):
				t.Fatalf("comes back early: %v", wait)
			case p.RespectRetryAfter && r.Signal.HasHint && wait != p.Backoff(r.Signal.RetryAfter, true):
				t.Fatalf("waits %v, Backoff says %v", wait, p.Backoff(r.Signal.RetryAfter, true))
			}
		case Escalate:
			if !r.Route {
				t.Fatal("escalates without a route")
			}
			if !climbs && class != QuotaExhausted {
				t.Fatalf("escalates %v", class)
			}
		case Return:
			if r.Route && class == QuotaExhausted {
				t.Fatal("returns a spent quota though a route exists")
			}
		}
		again, wait2 := p.Step(r)
		if again != action || wait2 != wait {
			t.Fatal("does not say the same twice")
		}
	})
}

func TestATurnEndsWithinItsBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		routes := rapid.IntRange(1, 4).Draw(t, "routes")
		sends, on, onRoute := 0, 1, 0
		for {
			sends++
			onRoute++
			if limit := routes + p.MaxRetries; sends > limit {
				t.Fatalf("%d sends, at most %d are allowed", sends, limit)
			}
			action, _ := p.Step(Refusal{Signal: drawSignal(t), Total: sends, OnRoute: onRoute, Routes: on, Route: on < routes})
			switch action {
			case Return:
				return
			case Escalate:
				on, onRoute = on+1, 0
			}
		}
	})
}

func TestWaitsWithoutAHintNeverShrink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		last := time.Duration(0)
		for n := 1; ; n++ {
			action, wait := p.Step(Refusal{Signal: unhinted, Total: n, OnRoute: n})
			if action != Wait {
				if n != p.MaxRetries+1 {
					t.Fatalf("ends at refusal %d, want %d", n, p.MaxRetries+1)
				}
				return
			}
			if wait < last || n <= p.FallbackAfterRetries && wait != p.DefaultDelay {
				t.Fatalf("refusal %d waits %v after %v", n, wait, last)
			}
			last = wait
		}
	})
}

func TestBackoffIsThePureRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		hint := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "hint"))
		ok := rapid.Bool().Draw(t, "ok")
		want := min(p.DefaultDelay, p.MaxDelay)
		if ok && p.RespectRetryAfter {
			want = min(hint, p.MaxDelay)
		}
		if got := p.Backoff(hint, ok); got != want {
			t.Fatalf("Backoff(%v, %v) = %v, want %v", hint, ok, got, want)
		}
	})
}

func TestBackoff(t *testing.T) {
	for _, test := range []struct {
		name string
		p    Policy
		hint time.Duration
		ok   bool
		want time.Duration
	}{
		{"a hint is obeyed", DefaultPolicy(), 7 * second, true, 7 * second},
		{"a hint of zero is obeyed", DefaultPolicy(), 0, true, 0},
		{"a long hint is capped", DefaultPolicy(), time.Hour, true, 60 * second},
		{"a negative hint is zero", DefaultPolicy(), -second, true, 0},
		{"no hint is the default", DefaultPolicy(), time.Hour, false, 5 * second},
		{"an ignored hint is the default", with(func(p *Policy) { p.RespectRetryAfter = false }), 7 * second, true, 5 * second},
		{"a default above the cap is capped", Policy{DefaultDelay: 9 * second, MaxDelay: second}, 0, false, second},
		{"the wholly zero policy is the default", Policy{}, 7 * second, true, 7 * second},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.p.Backoff(test.hint, test.ok); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestJitterIsOnlyEverAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		got := p.Jittered(d)
		if got < d || p.Jitter > 0 && got-d >= p.Jitter || p.Jitter == 0 && got != d {
			t.Fatalf("Jittered(%v) = %v with up to %v", d, got, p.Jitter)
		}
	})
	if got := DefaultPolicy().Jittered(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("does not saturate: %v", got)
	}
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[Policy{}.Jittered(0)] = true
	}
	if len(seen) < 90 {
		t.Errorf("%d values of 100 draws", len(seen))
	}
}

func TestValidateNamesTheFirstBrokenConstraint(t *testing.T) {
	for _, test := range []struct {
		name, want string
		p          Policy
	}{
		{"the wholly zero policy is valid", "", Policy{}},
		{"the default is valid", "", DefaultPolicy()},
		{"the least there can be is valid", "", Policy{DefaultDelay: 1, MaxDelay: 1, MaxRetries: 1}},
		{"a rung above the hard stop is valid", "", with(func(p *Policy) { p.FallbackAfterRetries = 99 })},
		{"no default delay", "DefaultDelay must not be zero", Policy{RespectRetryAfter: true}},
		{"no cap", "MaxDelay must not be zero", Policy{DefaultDelay: 1}},
		{"a cap below the default", "MaxDelay must be at least DefaultDelay", Policy{DefaultDelay: 2, MaxDelay: 1}},
		{"no retries", "MaxRetries", Policy{DefaultDelay: 1, MaxDelay: 1}},
		{"negative retries", "MaxRetries", with(func(p *Policy) { p.MaxRetries = -1 })},
		{"a negative default delay", "DefaultDelay must not be negative", with(func(p *Policy) { p.DefaultDelay = -1 })},
		{"a negative rung", "FallbackAfterRetries", with(func(p *Policy) { p.FallbackAfterRetries = -1 })},
		{"negative jitter", "Jitter", with(func(p *Policy) { p.Jitter = -1 })},
		{"a negative threshold", "EscalateOver", with(func(p *Policy) { p.EscalateOver = -1 })},
		{"an unknown way to stop", "OverCap", with(func(p *Policy) { p.OverCap = 9 })},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.p.Validate()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
