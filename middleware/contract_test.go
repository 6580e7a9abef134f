package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Every layer alone, and all of them together, keep the RoundTripper contract.
func TestContract(t *testing.T) {
	routes := func(backups ...escalate.Route) *escalate.Router {
		r, err := escalate.New(escalate.Config{Primary: escalate.Route{Name: "primary"}, Backups: backups})
		if err != nil {
			panic(err)
		}
		return r
	}
	limits := bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600), bucket.PerMinute(bucket.Tokens, 100_000)}}
	stack := func(c middleware.Config) middleware.Middleware {
		return func(base http.RoundTripper) http.RoundTripper {
			s, err := middleware.New(c)
			if err != nil {
				panic(err)
			}
			return s.Transport(base)
		}
	}
	for name, wrap := range map[string]middleware.Middleware{
		"Ladder":   middleware.Ladder(retryafter.Policy{}),
		"Retry":    middleware.Retry(middleware.RetryPolicy{}),
		"Pace":     lazyPace(limits),
		"Escalate": func(base http.RoundTripper) http.RoundTripper { return middleware.Escalate(routes())(base) },
		"Stack":    stack(middleware.Config{Bucket: limits}),
		"Stack with a backup": func(base http.RoundTripper) http.RoundTripper {
			return stack(middleware.Config{Bucket: limits, Router: routes(escalate.Route{Name: "backup", Header: http.Header{"X-Route": {"backup"}}})})(base)
		},
		"Stack of stacks": func(base http.RoundTripper) http.RoundTripper {
			return stack(middleware.Config{Bucket: limits})(stack(middleware.Config{Bucket: limits})(base))
		},
		"all methods retried": stack(middleware.Config{Retry: middleware.RetryPolicy{AllMethods: true, BaseDelay: time.Millisecond}}),
	} {
		t.Run(name, func(t *testing.T) { metertest.TestRoundTripper(t, wrap) })
	}
}
