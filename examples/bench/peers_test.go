package bench

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"
)

// pair is what one writes without this library: a limiter for requests, a
// limiter for tokens.
type pair struct{ requests, tokens *rate.Limiter }

func newPair() pair {
	return pair{
		rate.NewLimiter(manyRequests/60, manyRequests),
		rate.NewLimiter(manyTokens/60, manyTokens),
	}
}

// allow asks both limiters, n times.
func (p pair) allow(n int) {
	for range n {
		if !p.requests.Allow() || !p.tokens.AllowN(time.Now(), 750) {
			panic("bench: the limits are not wide enough")
		}
	}
}

// allowAtOneInstant asks both limiters with one reading of the clock, n times.
func (p pair) allowAtOneInstant(n int) {
	for range n {
		now := time.Now()
		if !p.requests.AllowN(now, 1) || !p.tokens.AllowN(now, 750) {
			panic("bench: the limits are not wide enough")
		}
	}
}

// wait waits for both limiters.
func (p pair) wait(ctx context.Context) error {
	if err := p.requests.Wait(ctx); err != nil {
		return err
	}
	return p.tokens.WaitN(ctx, 750)
}

// paced and broken are the two RoundTrippers that a careful engineer writes
// around retryablehttp's sends: every attempt takes its budget, and counts with
// the breaker.
type paced struct {
	base http.RoundTripper
	pair pair
}

func (p *paced) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := p.pair.wait(req.Context()); err != nil {
		req.Body.Close()
		return nil, err
	}
	return p.base.RoundTrip(req)
}

type broken struct {
	base    http.RoundTripper
	breaker *gobreaker.TwoStepCircuitBreaker[*http.Response]
}

func (b *broken) RoundTrip(req *http.Request) (*http.Response, error) {
	done, err := b.breaker.Allow()
	if err != nil {
		req.Body.Close()
		return nil, err
	}
	resp, err := b.base.RoundTrip(req)
	switch {
	case err != nil:
		done(err)
	case resp.StatusCode >= 500:
		done(errServer)
	default:
		done(nil)
	}
	return resp, err
}

type serverError struct{}

func (serverError) Error() string { return "server error" }

var errServer = serverError{}

// newRetryable is the rival: retryablehttp, and around each of its sends two
// limiters and a breaker. It logs nothing, and on giving up it hands the last
// answer back. It has no backup, reads no limit headers, and keeps no figures.
func newRetryable(base http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: &broken{
		base:    &paced{base: base, pair: newPair()},
		breaker: gobreaker.NewTwoStepCircuitBreaker[*http.Response](gobreaker.Settings{Name: "bench"}),
	}}
	c.Logger = nil
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c
}

// newRival is the rival in the place of a transport, where any http.Client, and
// any SDK that takes one, can use it.
func newRival(base http.RoundTripper) http.RoundTripper {
	return &retryablehttp.RoundTripper{Client: newRetryable(base)}
}

// newFailsafe is failsafe-go with three policies, outermost first: retries as its
// HTTP package sets them up, a breaker for failures in a row, and a rate limiter
// that waits. It meters requests alone: its limiter knows no other cost.
func newFailsafe(tb testing.TB, base http.RoundTripper) http.RoundTripper {
	tb.Helper()
	return failsafehttp.NewRoundTripper(base,
		failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(3).Build(),
		circuitbreaker.NewBuilder[*http.Response]().
			HandleIf(func(r *http.Response, err error) bool { return err != nil || r.StatusCode >= 500 }).
			WithFailureThreshold(6).WithDelay(time.Minute).Build(),
		ratelimiter.NewBurstyBuilder[*http.Response](1e9, time.Second).WithMaxWaitTime(30*time.Second).Build(),
	)
}
