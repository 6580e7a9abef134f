package bench

import (
	"context"
	"io"
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
	"golang.org/x/time/rate"
)

// A client is one way of sending the jobs. Each is told what s publishes.
type client struct {
	name string
	make func(t *testing.T, s server, base http.RoundTripper) doer
}

// A doer sends one call and comes back with its last answer.
type doer func(*http.Request) (*http.Response, error)

// ours is what middleware.New builds, with Headroom 1 and the published limits. The batch wants
// none of its jobs lost, so that the ladder may climb for as long as it takes; that is the one
// thing that is not a default.
func ours(t *testing.T, s server, base http.RoundTripper) doer {
	return newOurStack(t, s, func(*middleware.Config) {}).Transport(base).RoundTrip
}

func newOurStack(t *testing.T, s server, change func(*middleware.Config)) *middleware.Stack {
	patient := retryafter.DefaultPolicy()
	patient.MaxRetries = math.MaxInt32
	c := middleware.Config{
		Bucket: bucket.Config{
			Limits:   []bucket.Limit{bucket.PerMinute(bucket.Requests, s.rpm), bucket.PerMinute(bucket.Tokens, s.tpm)},
			Headroom: 1,
		},
		Pace:   middleware.PaceConfig{Cost: statedCost},
		Ladder: patient,
	}
	change(&c)
	stack, err := middleware.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return stack
}

func statedCost(r *http.Request) (bucket.Cost, error) {
	return bucket.Cost{Requests: 1, InputTokens: statedTokens(r)}, nil
}

func statedTokens(r *http.Request) int64 {
	n, _ := strconv.ParseInt(r.Header.Get(metertest.TokensHeader), 10, 64)
	return n
}

// naive comes back a second after every refusal.
func naive(_ *testing.T, _ server, base http.RoundTripper) doer {
	return again(base, func(*http.Response) time.Duration { return time.Second })
}

// twoLimiters asks two limiters of x/time/rate, with bursts of a minute, before each send, and
// comes back when a refusal says so.
func twoLimiters(_ *testing.T, s server, base http.RoundTripper) doer {
	requests := rate.NewLimiter(rate.Limit(float64(s.rpm)/60), int(s.rpm))
	tokens := rate.NewLimiter(rate.Limit(float64(s.tpm)/60), int(s.tpm))
	return again(tripper(func(r *http.Request) (*http.Response, error) {
		if err := requests.Wait(r.Context()); err != nil {
			return nil, err
		}
		if err := tokens.WaitN(r.Context(), int(statedTokens(r))); err != nil {
			return nil, err
		}
		return base.RoundTrip(r)
	}), stated)
}

// retryable is go-retryablehttp with retries without end; it minds Retry-After.
func retryable(_ *testing.T, _ server, base http.RoundTripper) doer {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: base}
	c.RetryMax = math.MaxInt32
	c.Logger = nil
	return func(r *http.Request) (*http.Response, error) {
		req, err := retryablehttp.FromRequest(r)
		if err != nil {
			return nil, err
		}
		return c.Do(req)
	}
}

var peers = []client{
	{"naive, fixed 1 s", naive},
	{"go-retryablehttp, endless retries", retryable},
	{"two x/time limiters, 100 %, minute bursts", twoLimiters},
}

// again sends until the answer is no 429.
func again(base http.RoundTripper, wait func(*http.Response) time.Duration) doer {
	return func(r *http.Request) (*http.Response, error) {
		for {
			resp, err := base.RoundTrip(r)
			if err != nil || resp.StatusCode != http.StatusTooManyRequests {
				return resp, err
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err := sleep(r.Context(), wait(resp)); err != nil {
				return nil, err
			}
			r = r.Clone(r.Context())
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// stated is the wait of a Retry-After in whole seconds.
func stated(resp *http.Response) time.Duration {
	n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil {
		n = 1
	}
	return time.Duration(n) * time.Second
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
