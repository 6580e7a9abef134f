package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

func TestRefusalIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, refusedFor("2"))
		start := time.Now()
		answer, err := ask(t.Context(), r.client, model, "?")
		if err != nil || answer != strings.Join(completion, "") {
			t.Fatalf("answer %q, error %v", answer, err)
		}
		between(t, start, 2*time.Second, 4*time.Second)
		if got := r.statuses(); !slices.Equal(got, []int{429, 200}) {
			t.Errorf("answers were %v", got)
		}
		ledger := r.provider.Ledger()
		if ledger[0].BodySHA256 != ledger[1].BodySHA256 {
			t.Error("the second send had another body")
		}
	})
}

func TestExhaustedLadderIsTheSDKsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, times(-1, refusedFor("1")))
		_, err := ask(t.Context(), r.client, model, "?")
		var refused *openai.Error
		if !errors.As(err, &refused) {
			t.Fatalf("error is a %T: %v", err, err)
		}
		if refused.StatusCode != 429 || refused.Code != "rate_limit_exceeded" || refused.Message != "Rate limit reached for requests" {
			t.Errorf("status %d, code %q, message %q", refused.StatusCode, refused.Code, refused.Message)
		}
		r.hits(t, 6) // MaxRetries + 1
	})
}

func TestSpentQuotaIsNotWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, metertest.Reply(429,
			`{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`,
			"Content-Type", "application/json"))
		start := time.Now()
		_, err := ask(t.Context(), r.client, model, "?")
		var refused *openai.Error
		if !errors.As(err, &refused) || refused.StatusCode != 429 || refused.Code != "insufficient_quota" {
			t.Fatalf("error is a %T: %v", err, err)
		}
		between(t, start, 0, time.Second)
		r.hits(t, 1)
	})
}

func TestLostAndFailedCallsAreSentAgain(t *testing.T) {
	for name, fault := range map[string]metertest.Answer{
		"server error":         failedOnce,
		"connection refused":   {Fault: metertest.DialError},
		"reset before reading": {Fault: metertest.ResetBefore},
		"reset after reading":  {Fault: metertest.ResetAfter},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plenty, fault)
				if _, err := ask(t.Context(), r.client, model, "?"); err != nil {
					t.Fatal(err)
				}
				r.hits(t, 2)
			})
		})
	}
}

func TestServerErrorThatLastsIsTheSDKsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, times(-1, failedOnce))
		_, err := ask(t.Context(), r.client, model, "?")
		var failed *openai.Error
		if !errors.As(err, &failed) || failed.StatusCode != 500 || failed.Message != "The server had an error" {
			t.Fatalf("error is a %T: %v", err, err)
		}
		r.hits(t, 4) // RetryPolicy.MaxRetries + 1
	})
}

func TestBadRequestIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, metertest.Reply(400, `{"error":{"message":"no such parameter","type":"invalid_request_error"}}`))
		_, err := ask(t.Context(), r.client, model, "?")
		var bad *openai.Error
		if !errors.As(err, &bad) || bad.StatusCode != 400 {
			t.Fatalf("error is a %T: %v", err, err)
		}
		r.hits(t, 1)
	})
}

func TestCancelledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, refusedFor("30"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(3*time.Second, cancel)
		start := time.Now()
		_, err := ask(ctx, r.client, model, "?")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error is a %T: %v", err, err)
		}
		between(t, start, 3*time.Second, 3*time.Second+1)
		r.hits(t, 1)
		if queued := r.figures(t).Budget.Queued; queued != 0 {
			t.Errorf("%d calls still wait", queued)
		}
	})
}

func TestWaitPastTheDeadlineIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, refusedFor("30"))
		start := time.Now()
		_, err := r.client.Chat.Completions.New(t.Context(), prompt(model, "?"), option.WithRequestTimeout(10*time.Second))
		var refused *openai.Error
		if !errors.As(err, &refused) || refused.StatusCode != 429 {
			t.Fatalf("error is a %T: %v", err, err)
		}
		between(t, start, 0, time.Second)
		r.hits(t, 1)
	})
}

// A crowd is paced by the limits, so that nobody is refused, and every call is sent
// once.
func TestCrowdIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits{requests: 60, tokens: 200_000})
		start := time.Now()
		if errs := r.crowd(t.Context(), 100); len(errs) > 0 {
			t.Fatal(errs)
		}
		r.hits(t, 100)
		between(t, start, 30*time.Second, 2*time.Minute)
	})
}

// A token budget paces too: 100 calls of some 45 tokens, at 2,000 a minute.
func TestTokensPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits{requests: 10_000, tokens: 2_000})
		start := time.Now()
		if errs := r.crowd(t.Context(), 100); len(errs) > 0 {
			t.Fatal(errs)
		}
		r.hits(t, 100)
		if spent := r.provider.Tokens(); spent < 4_000 {
			t.Fatalf("%d tokens are no test of a limit of 2,000 a minute", spent)
		}
		between(t, start, time.Minute, 4*time.Minute)
	})
}

func TestCallIsSettledForItsUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slow, metertest.Reply(200,
			`{"choices":[{"index":0,"message":{"role":"assistant","content":"yes"}}],"usage":{"prompt_tokens":70,"completion_tokens":30,"total_tokens":100}}`,
			"Content-Type", "application/json"))
		if _, err := ask(t.Context(), r.client, model, "?"); err != nil {
			t.Fatal(err)
		}
		r.spent(t, 100)
	})
}

// What the recipe's WithMaxRetries(0) is for.
func TestSDKsOwnRetriesWouldMultiply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, times(-1, refusedFor("1")))
		r.client = openai.NewClient(append(service,
			option.WithHTTPClient(&http.Client{Transport: r.stack.Transport(r.provider.Transport())}))...)
		if _, err := ask(t.Context(), r.client, model, "?"); err == nil {
			t.Fatal("no error")
		}
		r.hits(t, 18) // 2 retries of the SDK, of 6 sends each
	})
}
