package bench

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"
)

// peers are the ways of today, each with retries without end, so that it is measured by its time and
// its waste alone. What their default budgets lose is in the table of defaultBudgets.
func peers() []client {
	return []client{
		{"naive, fixed 1 s", naive},
		{"go-retryablehttp, endless retries", retryable(math.MaxInt32)},
		{"resty v2, 429 condition", restyWith(math.MaxInt32)},
		{"failsafe retry + smooth limiter", failsafe(ratelimiter.NewSmoothBuilder[*http.Response])},
		{"failsafe retry + bursty limiter", failsafe(ratelimiter.NewBurstyBuilder[*http.Response])},
		{"x/time/rate, requests only", oneLimiter},
		{"two x/time limiters, 100 %, minute bursts", twoLimiters(1, time.Minute)},
		{"two x/time limiters, 90 %, minute bursts", twoLimiters(0.9, time.Minute)},
		{"two x/time limiters, 90 %, 1 s bursts", twoLimiters(0.9, time.Second)},
		{"openai-go's own retries, endless", openaiWith(math.MaxInt32)},
		{"retryablehttp over gobreaker, 429s count", overBreaker},
		{"a shared Retry-After gate, no pacing", sharedGate},
	}
}

// defaultBudgets are the libraries' retries as they come; resty has none until it is told, and is told
// the three that its documentation shows.
func defaultBudgets() []client {
	return []client{
		{"go-retryablehttp, 4 retries", retryable(4)},
		{"failsafe-go, 2 retries", func(_ *testing.T, _ server, base http.RoundTripper) doer {
			return failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build()).RoundTrip
		}},
		{"openai-go, 2 retries", openaiWith(2)},
		{"resty v2, 429 condition, 3 retries", restyWith(3)},
	}
}

// naive comes back a second after every refusal.
func naive(_ *testing.T, _ server, base http.RoundTripper) doer {
	return again(base, func(*http.Response) time.Duration { return time.Second })
}

// retryable is go-retryablehttp, which minds Retry-After.
func retryable(retries int) func(*testing.T, server, http.RoundTripper) doer {
	return func(_ *testing.T, _ server, base http.RoundTripper) doer {
		c := retryablehttp.NewClient()
		c.HTTPClient = &http.Client{Transport: base}
		c.RetryMax = retries
		c.Logger = nil
		return func(r *http.Request) (*http.Response, error) {
			req, err := retryablehttp.FromRequest(r)
			if err != nil {
				return nil, err
			}
			return c.Do(req)
		}
	}
}

// restyWith retries on 429 by resty's own backoff, 100 ms to 2 s; it minds no Retry-After.
func restyWith(retries int) func(*testing.T, server, http.RoundTripper) doer {
	return func(_ *testing.T, _ server, base http.RoundTripper) doer {
		c := resty.NewWithClient(&http.Client{Transport: base}).SetLogger(silent{}).SetRetryCount(retries).
			AddRetryCondition(func(r *resty.Response, _ error) bool { return r.StatusCode() == http.StatusTooManyRequests })
		return func(r *http.Request) (*http.Response, error) {
			content, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			resp, err := c.R().SetContext(r.Context()).SetHeaderMultiValues(r.Header).SetBody(content).Post(r.URL.String())
			if err != nil {
				return nil, err
			}
			return resp.RawResponse, nil
		}
	}
}

// failsafe is failsafe-go's retry policy, which minds Retry-After, without end, over one of its rate
// limiters at the published requests. It has none for tokens.
func failsafe(limiter func(uint, time.Duration) ratelimiter.Builder[*http.Response]) func(*testing.T, server, http.RoundTripper) doer {
	return func(_ *testing.T, s server, base http.RoundTripper) doer {
		return failsafehttp.NewRoundTripper(base,
			failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(-1).Build(),
			limiter(uint(s.rpm), time.Minute).WithMaxWaitTime(goodputHorizon).Build(),
		).RoundTrip
	}
}

// oneLimiter is x/time/rate on requests, with a burst of a minute, under the naive loop.
func oneLimiter(_ *testing.T, s server, base http.RoundTripper) doer {
	requests := rate.NewLimiter(rate.Limit(float64(s.rpm)/60), int(s.rpm))
	return again(tripper(func(r *http.Request) (*http.Response, error) {
		if err := requests.Wait(r.Context()); err != nil {
			return nil, err
		}
		return base.RoundTrip(r)
	}), func(*http.Response) time.Duration { return time.Second })
}

// twoLimiters asks two limiters of x/time/rate before each send, and comes back when a refusal says so.
// Their bursts are what comes in within burst; that of tokens holds the largest job.
func twoLimiters(share float64, burst time.Duration) func(*testing.T, server, http.RoundTripper) doer {
	return func(_ *testing.T, s server, base http.RoundTripper) doer {
		limiter := func(perMinute, least int64) *rate.Limiter {
			perSecond := share * float64(perMinute) / 60
			return rate.NewLimiter(rate.Limit(perSecond), max(int(perSecond*burst.Seconds()), int(least)))
		}
		requests, tokens := limiter(s.rpm, 1), limiter(s.tpm, largestJob)
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
}

// openaiWith is openai-go with its own retries, which mind Retry-After.
func openaiWith(retries int) func(*testing.T, server, http.RoundTripper) doer {
	return func(_ *testing.T, _ server, base http.RoundTripper) doer {
		c := openai.NewClient(
			option.WithBaseURL("https://api.example.com/v1/"),
			option.WithAPIKey("none"),
			option.WithHTTPClient(&http.Client{Transport: base}),
			option.WithMaxRetries(retries),
		)
		return func(r *http.Request) (*http.Response, error) {
			content, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			var resp *http.Response
			err = c.Post(r.Context(), "chat/completions", json.RawMessage(content), &resp,
				option.WithHeader(metertest.TokensHeader, r.Header.Get(metertest.TokensHeader)))
			return resp, err
		}
	}
}

var errRefused = errors.New("refused")

// overBreaker is go-retryablehttp, without end, over countRefusals.
func overBreaker(t *testing.T, s server, base http.RoundTripper) doer {
	return retryable(math.MaxInt32)(t, s, countRefusals(base))
}

// countRefusals is a gobreaker as it comes (six failures in a row open it for a minute) for which a 429
// is a failure.
func countRefusals(base http.RoundTripper) http.RoundTripper {
	breaker := gobreaker.NewTwoStepCircuitBreaker[*http.Response](gobreaker.Settings{})
	return tripper(func(r *http.Request) (*http.Response, error) {
		done, err := breaker.Allow()
		if err != nil {
			return nil, err
		}
		resp, err := base.RoundTrip(r)
		if err == nil && resp.StatusCode == http.StatusTooManyRequests {
			done(errRefused)
		} else {
			done(err)
		}
		return resp, err
	})
}

// sharedGate has one refusal stop everybody for as long as its Retry-After says. Then all go at once.
func sharedGate(_ *testing.T, _ server, base http.RoundTripper) doer {
	var mu sync.Mutex
	var shut time.Time
	left := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Until(shut)
	}
	return again(tripper(func(r *http.Request) (*http.Response, error) {
		for wait := left(); wait > 0; wait = left() {
			if err := sleep(r.Context(), wait); err != nil {
				return nil, err
			}
		}
		resp, err := base.RoundTrip(r)
		if err == nil && resp.StatusCode == http.StatusTooManyRequests {
			mu.Lock()
			if until := time.Now().Add(stated(resp)); until.After(shut) {
				shut = until
			}
			mu.Unlock()
		}
		return resp, err
	}), func(*http.Response) time.Duration { return 0 })
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
