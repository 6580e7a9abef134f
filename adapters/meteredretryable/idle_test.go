package meteredretryable_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// pool is a base that counts how often it is told to close idle connections.
type pool struct {
	http.RoundTripper
	closed *int
}

func (p pool) CloseIdleConnections() { *p.closed++ }

func (r rig) pooled(retries int) (*retryablehttp.Client, *int) {
	client, closed := r.bare(retries), new(int)
	client.HTTPClient.Transport = pool{client.HTTPClient.Transport, closed}
	return client, closed
}

// What retryablehttp does after each failure does not reach the pool; what the
// user does, does, wherever he does it.
func TestIdle_FailuresDoNotShedThePool(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		prepare func(*retryablehttp.Client)
		do      func(r rig, client *retryablehttp.Client)
		answer  metertest.Answer
	}{
		"attempts used up": {answer: times(-1, fault(metertest.ResetAfter))},
		"answers used up":  {answer: times(-1, metertest.Reply(500, ""))},
		"a policy's error": {answer: ok200(), prepare: func(c *retryablehttp.Client) {
			c.CheckRetry = func(context.Context, *http.Response, error) (bool, error) { return false, broken }
		}},
		"PrepareRetry's error": {answer: times(-1, metertest.Reply(500, "")), prepare: func(c *retryablehttp.Client) {
			c.PrepareRetry = func(*http.Request) error { return broken }
		}},
		"an ErrorHandler": {answer: times(-1, metertest.Reply(500, "")), prepare: func(c *retryablehttp.Client) {
			c.ErrorHandler = retryablehttp.PassthroughErrorHandler
		}},
		"cancelled between attempts": {answer: times(-1, metertest.Reply(500, "")), do: func(r rig, client *retryablehttp.Client) {
			ctx, cancel := context.WithTimeout(r.Context(), 500*time.Millisecond)
			defer cancel()
			client.Do(r.request("GET", nil).WithContext(ctx))
		}},
		"through StandardClient": {answer: times(-1, fault(metertest.ResetAfter)), do: func(r rig, client *retryablehttp.Client) {
			client.StandardClient().Get(apiURL)
		}},
		"a RoundTripper outside": {answer: times(-1, fault(metertest.ResetAfter)), do: func(r rig, client *retryablehttp.Client) {
			client.HTTPClient.Transport = outside{client.HTTPClient.Transport}
			client.Do(r.request("GET", nil))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				client, closed := r.pooled(1)
				if c.prepare != nil {
					c.prepare(client)
				}
				r.install(client, patient(2))
				if c.do != nil {
					c.do(r, client)
				} else if resp, err := client.Do(r.request("GET", nil)); resp != nil {
					resp.Body.Close()
				} else if err == nil {
					r.Error("no error")
				}
				if *closed != 0 {
					r.Errorf("the pool was shed %d times", *closed)
				}
				client.HTTPClient.CloseIdleConnections()
				if *closed != 1 {
					r.Error("http.Client.CloseIdleConnections does not reach the base")
				}
			}, c.answer)
		})
	}
	t.Run("bare, for comparison", func(t *testing.T) {
		virtual(t, func(r rig) {
			client, closed := r.pooled(1)
			r.get(client)
			if *closed != 1 {
				r.Errorf("%d calls of retryablehttp's", *closed)
			}
		}, times(-1, metertest.Reply(500, "")))
	})
}

// outside is a RoundTripper that passes all on.
type outside struct{ http.RoundTripper }

func (o outside) CloseIdleConnections() {
	o.RoundTripper.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

// Also from within a hook, that is, from below retryablehttp's Do.
func TestIdle_AHookIsNotRetryablehttp(t *testing.T) {
	virtual(t, func(r rig) {
		client, closed := r.pooled(1)
		client.RequestLogHook = func(retryablehttp.Logger, *http.Request, int) { client.HTTPClient.CloseIdleConnections() }
		usual := client.CheckRetry
		client.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
			client.HTTPClient.CloseIdleConnections()
			return usual(ctx, resp, err)
		}
		r.install(client, patient(2))
		r.want(200, "ok")(r.get(client))
		if *closed != 2 {
			r.Errorf("%d of 2 calls reached the base", *closed)
		}
	}, ok200())
}

// A base that has no such method is no reason to fail.
func TestIdle_ABaseWithoutIt(t *testing.T) {
	s, err := middleware.New(middleware.Config{})
	if err != nil {
		t.Fatal(err)
	}
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{Transport: roundTripper(nil)}
	if err := meteredretryable.Install(client, s); err != nil {
		t.Fatal(err)
	}
	client.HTTPClient.CloseIdleConnections()
}
