package escalate

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
)

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
