package bench

import (
	"encoding/json"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/sony/gobreaker/v2"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A compared is one row of the comparison. A nil field is what that client has not got.
type compared struct {
	name    string
	modules []string
	// take takes the budget of a call n times; there is room for all of them.
	take func(tb testing.TB) func(n int)
	// call sends one call that is served, in the client's own way.
	call func(tb testing.TB, base http.RoundTripper) func() error
	// byDefault has the retries that it comes with, or that its documentation shows.
	byDefault func(*testing.T, server, http.RoundTripper) doer
	// endless never gives up.
	endless func(*testing.T, server, http.RoundTripper) doer
}

// theCompared are ours and the peers. Ours is last, and has its defaults but for Headroom 1: all are
// told the published limits as they are.
func theCompared() []compared {
	return []compared{
		{
			name: "x/time/rate, two limiters", modules: []string{"golang.org/x/time"},
			take: func(testing.TB) func(int) { return newPair().allow },
			call: asClient(func(_ testing.TB, base http.RoundTripper) http.RoundTripper {
				return &paced{base: base, pair: newPair()}
			}),
			byDefault: twoLimitersAlone,
			endless:   twoLimiters(1, time.Minute),
		},
		{
			name: "failsafe-go", modules: []string{"github.com/failsafe-go/failsafe-go"},
			take: func(tb testing.TB) func(int) {
				l := ratelimiter.NewBurstyBuilder[*http.Response](1e9, time.Second).Build()
				return func(n int) {
					for range n {
						if !l.TryAcquirePermit() {
							tb.Error("failsafe-go: the limit is not wide enough")
						}
					}
				}
			},
			call: asClient(newFailsafe),
			byDefault: func(_ *testing.T, _ server, base http.RoundTripper) doer {
				return failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build()).RoundTrip
			},
			endless: failsafe(ratelimiter.NewBurstyBuilder[*http.Response]),
		},
		{
			name: "go-retryablehttp", modules: []string{"github.com/hashicorp/go-retryablehttp"},
			call: func(tb testing.TB, base http.RoundTripper) func() error {
				return nativeRetryable(tb, newPlainRetryable(base))
			},
			byDefault: retryable(4),
			endless:   retryable(math.MaxInt32),
		},
		{
			name: "resty v2", modules: []string{"github.com/go-resty/resty/v2"},
			call: func(tb testing.TB, base http.RoundTripper) func() error {
				client, header := newResty(base), newCall(tb).req.Header
				return func() error {
					_, err := client.R().SetHeaderMultiValues(header).SetBody(content).Post(endpoint)
					return err
				}
			},
			byDefault: restyWith(3),
			endless:   restyWith(math.MaxInt32),
		},
		{
			name: "rehttp", modules: []string{"github.com/PuerkitoBio/rehttp"},
			call: asClient(func(_ testing.TB, base http.RoundTripper) http.RoundTripper {
				return rehttp.NewTransport(base, rehttp.RetryAll(rehttp.RetryMaxRetries(3), rehttp.RetryStatuses(429)), rehttp.ConstDelay(time.Second))
			}),
			byDefault: rehttpWith(3),
			endless:   rehttpWith(math.MaxInt32),
		},
		{
			name: "heimdall", modules: []string{"github.com/gojek/heimdall/v7"},
			call: func(tb testing.TB, base http.RoundTripper) func() error {
				return asDoer(tb, newHeimdall(base).Do)
			},
			byDefault: func(_ *testing.T, _ server, base http.RoundTripper) doer { return newHeimdall(base).Do },
		},
		{
			name: "gobreaker under retryablehttp, with two limiters", modules: []string{"github.com/sony/gobreaker/v2"},
			take: func(tb testing.TB) func(int) {
				breaker, limits := gobreaker.NewTwoStepCircuitBreaker[*http.Response](gobreaker.Settings{}), newPair()
				return func(n int) {
					for range n {
						limits.allow(1)
						done, err := breaker.Allow()
						if err != nil {
							tb.Error(err)
							return
						}
						done(nil)
					}
				}
			},
			call: func(tb testing.TB, base http.RoundTripper) func() error {
				return nativeRetryable(tb, newRetryable(base))
			},
			byDefault: overBreakerWith(4),
			endless:   overBreaker,
		},
		{
			name: "openai-go", modules: []string{"github.com/openai/openai-go/v3"},
			call: func(tb testing.TB, base http.RoundTripper) func() error {
				client := openai.NewClient(option.WithBaseURL("https://api.example.com/v1/"), option.WithAPIKey("none"),
					option.WithHTTPClient(&http.Client{Transport: base}))
				body, err := json.Marshal(map[string]string{"model": "m", "input": string(content[:990])})
				if err != nil {
					tb.Fatal(err)
				}
				var scratch [2048]byte
				return func() error {
					var resp *http.Response
					if err := client.Post(tb.Context(), "chat/completions", json.RawMessage(body), &resp); err != nil {
						return err
					}
					return drain(resp.Body, scratch[:])
				}
			},
			byDefault: openaiWith(2),
			endless:   openaiWith(math.MaxInt32),
		},
		{
			name: "**meteredhttp**",
			take: func(tb testing.TB) func(int) { return takeAndSettle(tb, newLocal(tb, twoLimits()), origin) },
			call: asClient(func(tb testing.TB, base http.RoundTripper) http.RoundTripper { return newOurs(tb, base) }),
			byDefault: func(t *testing.T, s server, base http.RoundTripper) doer {
				return newOurStack(t, s, func(c *middleware.Config) { c.Ladder = retryafter.Policy{} }).Transport(base).RoundTrip
			},
			endless: ours,
		},
	}
}

// asClient makes the call by an http.Client over what wrap returns.
func asClient(wrap func(testing.TB, http.RoundTripper) http.RoundTripper) func(testing.TB, http.RoundTripper) func() error {
	return func(tb testing.TB, base http.RoundTripper) func() error {
		return asDoer(tb, (&http.Client{Transport: wrap(tb, base)}).Do)
	}
}

// asDoer makes the call by do.
func asDoer(tb testing.TB, do doer) func() error {
	c := newCall(tb)
	return func() error {
		c.reader.Reset(content)
		c.req.Body = c.body
		resp, err := do(c.req)
		if err != nil {
			return err
		}
		return drain(resp.Body, c.scratch[:])
	}
}

// nativeRetryable is the quickest way to use go-retryablehttp: its own Do, with the body as a []byte.
func nativeRetryable(tb testing.TB, client *retryablehttp.Client) func() error {
	c := newCall(tb)
	return func() error {
		native := &retryablehttp.Request{Request: c.req}
		if err := native.SetBody(content); err != nil {
			return err
		}
		resp, err := client.Do(native)
		if err != nil {
			return err
		}
		return drain(resp.Body, c.scratch[:])
	}
}

// twoLimitersAlone asks two limiters before the send, and has no idea of retrying.
func twoLimitersAlone(t *testing.T, s server, base http.RoundTripper) doer {
	var once http.RoundTripper = tripper(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests {
			return resp, err
		}
		return resp, errOnce{resp}
	})
	do := twoLimiters(1, time.Minute)(t, s, once)
	return func(r *http.Request) (*http.Response, error) {
		resp, err := do(r)
		if refused, ok := err.(errOnce); ok {
			return refused.resp, nil
		}
		return resp, err
	}
}

// errOnce carries a refused answer past a loop that would send again.
type errOnce struct{ resp *http.Response }

func (errOnce) Error() string { return "refused" }

// rehttpWith waits a second between retries, as rehttp's documentation shows.
func rehttpWith(retries int) func(*testing.T, server, http.RoundTripper) doer {
	return func(_ *testing.T, _ server, base http.RoundTripper) doer {
		return rehttp.NewTransport(base,
			rehttp.RetryAll(rehttp.RetryMaxRetries(retries), rehttp.RetryStatuses(http.StatusTooManyRequests)),
			rehttp.ConstDelay(time.Second)).RoundTrip
	}
}

// newHeimdall is the retrying client that heimdall's documentation shows. It retries errors and 5xx;
// a 429 is an answer like any other to it.
func newHeimdall(base http.RoundTripper) *httpclient.Client {
	return httpclient.NewClient(
		httpclient.WithHTTPClient(&http.Client{Transport: base}),
		httpclient.WithRetrier(heimdall.NewRetrier(heimdall.NewExponentialBackoff(2*time.Millisecond, 9*time.Millisecond, 2, 2*time.Millisecond))),
		httpclient.WithRetryCount(4),
	)
}

// overBreakerWith is overBreaker with so many retries.
func overBreakerWith(retries int) func(*testing.T, server, http.RoundTripper) doer {
	return func(t *testing.T, s server, base http.RoundTripper) doer {
		return retryable(retries)(t, s, countRefusals(base))
	}
}
