package meteredretryable_test

import (
	"errors"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// However a call is given up, its body goes with it: at once where somebody says
// so, and by itself where nobody does.
func TestTimeout_NoBodyOutlivesItsCall(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*retryablehttp.Client)
		failure metertest.Fault
		kept    time.Duration // at most
	}{
		"no retries": {func(c *retryablehttp.Client) { c.RetryMax = 0 }, metertest.Hang, 0},
		"retries":    {func(c *retryablehttp.Client) {}, metertest.Hang, 0},
		"policy":     {func(c *retryablehttp.Client) { c.CheckRetry = never }, metertest.Hang, 0},
		"PrepareRetry": {func(c *retryablehttp.Client) {
			c.PrepareRetry = func(*http.Request) error { return errors.New("no") }
		}, metertest.ResetAfter, 5 * time.Minute},
		"PrepareRetry after a timeout": {func(c *retryablehttp.Client) {
			c.PrepareRetry = func(*http.Request) error { return errors.New("no") }
		}, metertest.Hang, 5 * time.Minute},
		"another goroutine": {func(c *retryablehttp.Client) { c.RetryMax = 0 }, metertest.Hang, 5 * time.Second},
	} {
		for _, method := range []string{"PUT", "POST"} {
			t.Run(name+"/"+method, func(t *testing.T) {
				virtual(t, func(r rig) {
					client := r.bare(2)
					c.prepare(client)
					r.install(client, patient(2))
					client.HTTPClient.Timeout = time.Second
					if name == "another goroutine" {
						client.HTTPClient.Transport = elsewhere(client.HTTPClient.Transport)
					}
					body := func() weak.Pointer[[1 << 20]byte] {
						body := new([1 << 20]byte)
						if _, _, err := r.do(client, r.request(method, body[:])); err == nil {
							r.Error("no error")
						}
						return weak.Make(body)
					}()
					time.Sleep(c.kept)
					synctest.Wait()
					runtime.GC()
					runtime.GC()
					if body.Value() != nil {
						r.Error("the body is still there")
					}
					runtime.KeepAlive(client)
				}, times(-1, fault(c.failure)))
			})
		}
	}
}

// elsewhere sends from a goroutine of its own.
func elsewhere(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (resp *http.Response, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			resp, err = next.RoundTrip(req)
		}()
		<-done
		return resp, err
	})
}

// A Request that is used again, at once, after a timeout that ended its call is
// another call, whoever said that it had ended.
func TestTimeout_AReusedRequestIsAnotherTurn(t *testing.T) {
	for name, prepare := range map[string]func(*retryablehttp.Client){
		"no retries": func(c *retryablehttp.Client) { c.RetryMax = 0 },
		"policy":     func(c *retryablehttp.Client) { c.CheckRetry = never },
		"elsewhere":  func(c *retryablehttp.Client) { c.RetryMax = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				client := r.bare(2)
				prepare(client)
				r.install(client, patient(2))
				if name == "elsewhere" {
					client.HTTPClient.Transport = elsewhere(client.HTTPClient.Transport)
				}
				client.HTTPClient.Timeout = time.Second
				req := r.request("GET", nil)
				if _, _, err := r.do(client, req); err == nil {
					r.Fatal("no error")
				}
				r.WantHits(2)
				r.want(429, "slow down")(r.do(client, req))
				r.WantHits(2 + 3)
			}, refusal("0"), fault(metertest.Hang), times(-1, refusal("0")))
		})
	}
}

// An Idempotency-Key allows another attempt after a timeout too.
func TestTimeout_AnIdempotencyKeyIsSeen(t *testing.T) {
	for key, hits := range map[string]int{"": 1, "k": 2} {
		virtual(t, func(r rig) {
			c := patient(2)
			c.Retry = middleware.RetryPolicy{MaxRetries: -1}
			client := r.client(2, c)
			client.HTTPClient.Timeout = time.Second
			req := r.request("POST", payload1())
			if key != "" {
				req.Header.Set("Idempotency-Key", key)
			}
			r.do(client, req)
			r.WantHits(hits)
		}, fault(metertest.Hang), ok200())
	}
}
