package middleware_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/internal/testrig"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// The rig of these tests: a scripted or metered provider in memory, layers of
// ours over it, and a clock that the test owns.
type rig struct{ testrig.Rig }

const apiURL = testrig.URL

// Short names for what the scripts of these tests are full of.
var (
	ok200 = testrig.Served
	times = testrig.Times
)

type roundTripper = testrig.RoundTripper

// virtual runs f in a bubble, against a provider of this configuration.
func virtual(t *testing.T, c metertest.Config, f func(r rig)) {
	t.Helper()
	testrig.Run(t, c, func(r testrig.Rig) { f(rig{r}) })
}

// scripted is a provider that gives these answers in order.
func scripted(answers ...metertest.Answer) metertest.Config {
	return metertest.Config{Script: answers}
}

func (r rig) elapsed() time.Duration { return time.Since(r.Start) }

func (r rig) chain(layers ...middleware.Middleware) *http.Client {
	return &http.Client{Transport: middleware.Chain(r.Provider.Transport(), layers...)}
}

func (r rig) stack(c middleware.Config) (*http.Client, *middleware.Stack) {
	r.Helper()
	s := testrig.Stack(r, c)
	return &http.Client{Transport: s.Transport(r.Provider.Transport())}, s
}

// ways are the two ways to wait: the ladder by itself, and with Pace below.
func ways(t *testing.T, p retryafter.Policy, f func(t *testing.T, layers ...middleware.Middleware)) {
	t.Run("ladder alone", func(t *testing.T) { f(t, middleware.Ladder(p)) })
	t.Run("ladder over pace", func(t *testing.T) {
		f(t, middleware.Ladder(p), lazyPace(bucket.Config{}))
	})
}

// lazyPace is Pace over a limiter that is made on first use, inside the bubble.
func lazyPace(c bucket.Config) middleware.Middleware {
	return func(next http.RoundTripper) http.RoundTripper {
		l, err := bucket.New(c)
		if err != nil {
			panic(err)
		}
		return middleware.Pace(l, middleware.PaceConfig{})(next)
	}
}

// policy is the default ladder without jitter, changed by f.
func policy(f func(*retryafter.Policy)) retryafter.Policy {
	p := retryafter.DefaultPolicy()
	p.Jitter = 0
	if f != nil {
		f(&p)
	}
	return p
}

func (r rig) get(c *http.Client) (int, string, error) { return r.do(c, r.request("GET", nil)) }

func (r rig) request(method string, body io.Reader) *http.Request {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, apiURL, body)
	if err != nil {
		r.Fatal(err)
	}
	return req
}

func (r rig) do(c *http.Client, req *http.Request) (int, string, error) {
	r.Helper()
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Errorf("reading the answer: %v", err)
	}
	return resp.StatusCode, string(b), nil
}

func (r rig) wantServed(c *http.Client, req *http.Request) {
	r.Helper()
	if status, body, err := r.do(c, req); err != nil || status != 200 {
		r.Fatalf("got %d %q, %v; want 200", status, body, err)
	}
}

func refusal(retryAfter string) metertest.Answer {
	return metertest.Reply(429, "x", "Retry-After", retryAfter)
}

// opaque is a body that http.NewRequest knows no GetBody for.
type opaque struct {
	io.Reader
	closed int
}

func (o *opaque) Close() error { o.closed++; return nil }

func text(s string) *opaque { return &opaque{Reader: strings.NewReader(s)} }

func mustLimiter(t *testing.T, c bucket.Config) *bucket.Local {
	t.Helper()
	l, err := bucket.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
