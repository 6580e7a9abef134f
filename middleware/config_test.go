package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

func newRequest(r rig, url string) (*http.Request, error) {
	return http.NewRequestWithContext(r.Context(), "GET", url, nil)
}

func TestInvalidConfigsAreRefusedWithTheReason(t *testing.T) {
	for want, c := range map[string]middleware.Config{
		"Amount":          {Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, -1)}}},
		"Per":             {Bucket: bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 1}}}},
		"Headroom":        {Bucket: bucket.Config{Headroom: 1.5}},
		"MaxDelay":        {Ladder: retryafter.Policy{DefaultDelay: time.Minute, MaxDelay: time.Second, MaxRetries: 1}},
		"BaseDelay":       {Retry: middleware.RetryPolicy{BaseDelay: time.Minute, MaxDelay: time.Second}},
		"negative":        {Retry: middleware.RetryPolicy{MaxDelay: -1}},
		"both set":        {Limiter: new(bucket.Local), Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}}},
		"Config.Observer": {Pace: middleware.PaceConfig{Observer: middleware.NewSlogObserver(nil)}},
	} {
		if s, err := middleware.New(c); err == nil || s != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want it to name %s", c, err, want)
		}
	}
}

func TestTooManyRoutesAreRefused(t *testing.T) {
	c := escalate.Config{Primary: escalate.Route{Name: "primary"}}
	for i := range 64 {
		c.Backups = append(c.Backups, escalate.Route{Name: fmt.Sprint("backup ", i)})
	}
	router, err := escalate.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := middleware.New(middleware.Config{Router: router}); err == nil || !strings.Contains(err.Error(), "65 routes") {
		t.Errorf("got %v", err)
	}
	if _, err := middleware.Escalate(router)(nil).RoundTrip(httptest.NewRequest("GET", "http://x/", nil)); err == nil {
		t.Error("a layer sends on one of 65 routes")
	}
}

func TestALayerBuiltFromAnInvalidConfigSaysSoOnEveryRequest(t *testing.T) {
	for name, layer := range map[string]middleware.Middleware{
		"Ladder":   middleware.Ladder(retryafter.Policy{MaxRetries: 1}),
		"Retry":    middleware.Retry(middleware.RetryPolicy{MaxDelay: -1}),
		"Pace":     middleware.Pace(nil, middleware.PaceConfig{}),
		"Escalate": middleware.Escalate(nil),
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				c := r.chain(layer)
				for range 2 {
					body := text("{}")
					if _, _, err := r.do(c, r.request("POST", body)); err == nil || body.closed != 1 {
						r.Errorf("got %v, body closed %d times", err, body.closed)
					}
				}
				r.WantHits(0)
			})
		})
	}
}

func TestChainPutsTheFirstLayerOutermost(t *testing.T) {
	var order []string
	layer := func(name string) middleware.Middleware {
		return func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				order = append(order, name)
				return next.RoundTrip(req)
			})
		}
	}
	virtual(t, metertest.Config{}, func(r rig) {
		r.wantServed(r.chain(layer("a"), layer("b"), layer("c")), r.request("GET", nil))
	})
	if got := strings.Join(order, ""); got != "abc" {
		t.Errorf("got %s", got)
	}
	if middleware.Chain(nil) != http.DefaultTransport {
		t.Error("a nil base is not http.DefaultTransport")
	}
}
