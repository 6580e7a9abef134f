package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

func TestRefusalIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, after("2", refusedOnce))
		start := time.Now()
		by, answer, err := ask(t.Context(), r.client, primary, "?")
		if err != nil || by != primary || answer != strings.Join(pieces, "") {
			t.Fatalf("%q answers %q, error %v", by, answer, err)
		}
		between(t, start, 2*time.Second, 4*time.Second)
		r.hits(t, 2, 0)
		ledger := r.provider.Ledger()
		if ledger[0].BodySHA256 != ledger[1].BodySHA256 {
			t.Error("the second send had another body")
		}
	})
}

func TestLostAndFailedCallsAreSentAgain(t *testing.T) {
	for name, fault := range map[string]metertest.Answer{
		"server error":        metertest.Reply(500, `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`),
		"connection refused":  {Fault: metertest.DialError},
		"reset after reading": {Fault: metertest.ResetAfter},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plenty, fault)
				if _, _, err := ask(t.Context(), r.client, primary, "?"); err != nil {
					t.Fatal(err)
				}
				if n := r.provider.Hits(); n != 2 {
					t.Errorf("%d sends, want 2", n)
				}
			})
		})
	}
}

func TestOverloadedModelHasABackup(t *testing.T) {
	for name, tc := range map[string]struct {
		retryAfter  string
		least, most time.Duration
		sends       int
	}{
		"after three waits, without a hint":         {"", 15 * time.Second, 19 * time.Second, 4},
		"at once, where it asks for over a minute":  {"120", 0, time.Second, 1},
		"after three short waits, where it asks so": {"1", 3 * time.Second, 7 * time.Second, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plenty)
				r.provider.ScriptFor(metertest.Match{Model: primary}, times(-1, after(tc.retryAfter, overloaded)))
				start := time.Now()
				by, _, err := ask(t.Context(), r.client, primary, "?")
				if err != nil || by != backup {
					t.Fatalf("%q answers, error %v", by, err)
				}
				between(t, start, tc.least, tc.most)
				r.hits(t, tc.sends, 1)

				// The next call does not ask the primary, which rests.
				if by, _, err = ask(t.Context(), r.client, primary, "?"); err != nil || by != backup {
					t.Fatalf("then %q answers, error %v", by, err)
				}
				r.hits(t, tc.sends, 2)
			})
		})
	}
}

func TestBackupHasTheCallersCredentialAndParameters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty)
		r.provider.ScriptFor(metertest.Match{Model: primary}, overloaded)
		if _, _, err := ask(t.Context(), r.client, primary, "?"); err != nil {
			t.Fatal(err)
		}
		sent := r.provider.Ledger()
		for _, name := range []string{"X-Api-Key", "Anthropic-Version", "Content-Type"} {
			if first, second := sent[0].Header.Get(name), sent[1].Header.Get(name); first == "" || first != second {
				t.Errorf("%s is %q, and %q for the backup", name, first, second)
			}
		}
		if want := sent[0].BodyLen + int64(len(backup)-len(primary)); sent[1].BodyLen != want || sent[1].ContentLength != want {
			t.Errorf("the backup's body has %d bytes, announced %d, want %d", sent[1].BodyLen, sent[1].ContentLength, want)
		}
	})
}

func TestExhaustedLadderIsTheSDKsOwnError(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  metertest.Answer
		status  int
		kind    anthropic.ErrorType
		message string
	}{
		"429": {after("1", refusedOnce), 429, anthropic.ErrorTypeRateLimitError, "This request would exceed your rate limit"},
		"529": {after("", overloaded), 529, anthropic.ErrorTypeOverloadedError, "Overloaded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plenty, times(-1, tc.answer))
				_, _, err := ask(t.Context(), r.client, primary, "?")
				var refused *anthropic.Error
				if !errors.As(err, &refused) {
					t.Fatalf("error is a %T: %v", err, err)
				}
				if refused.StatusCode != tc.status || refused.Type() != tc.kind || !strings.Contains(refused.Error(), tc.message) {
					t.Errorf("status %d, type %q: %v", refused.StatusCode, refused.Type(), refused)
				}
				r.hits(t, 4, 3) // one on each route is free, and 5 retries in all
				r.idle(t)
			})
		})
	}
}

func TestBadRequestIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, metertest.Reply(400, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too large"}}`))
		_, _, err := ask(t.Context(), r.client, primary, "?")
		var bad *anthropic.Error
		if !errors.As(err, &bad) || bad.StatusCode != 400 || bad.Type() != anthropic.ErrorTypeInvalidRequestError {
			t.Fatalf("error is a %T: %v", err, err)
		}
		r.hits(t, 1, 0)
	})
}

func TestCancelledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, after("30", refusedOnce))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(3*time.Second, cancel)
		start := time.Now()
		_, _, err := ask(ctx, r.client, primary, "?")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error is a %T: %v", err, err)
		}
		between(t, start, 3*time.Second, 3*time.Second+1)
		r.hits(t, 1, 0)
		r.idle(t)
	})
}

func TestWaitPastTheDeadlineGoesToTheBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, after("30", refusedOnce))
		start := time.Now()
		message, err := r.client.Messages.New(t.Context(), prompt(primary, "?"), option.WithRequestTimeout(10*time.Second))
		if err != nil || message.Model != backup {
			t.Fatalf("answer %v, error %v", message, err)
		}
		between(t, start, 0, time.Second)
		r.hits(t, 1, 1)
	})
}

// A crowd is paced by the limits, so that nobody is refused, and every call is sent
// once.
func TestCrowdIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits{requests: 60, input: 200_000, output: 80_000})
		start := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if by, _, err := ask(t.Context(), r.client, primary, "?"); err != nil || by != primary {
					t.Errorf("%q answers, error %v", by, err)
				}
			})
		}
		wg.Wait()
		r.hits(t, 100, 0)
		between(t, start, 30*time.Second, 2*time.Minute)
	})
}
