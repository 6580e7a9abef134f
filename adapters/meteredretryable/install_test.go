package meteredretryable_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/internal/testrig"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// The installed transport keeps the RoundTripper contract.
func TestContract(t *testing.T) {
	limits := bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600), bucket.PerMinute(bucket.Tokens, 100_000)}}
	for name, c := range map[string]middleware.Config{
		"zero":        {},
		"limits":      {Bucket: limits},
		"all methods": {Bucket: limits, Retry: middleware.RetryPolicy{AllMethods: true, BaseDelay: time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			metertest.TestRoundTripper(t, func(base http.RoundTripper) http.RoundTripper {
				s, err := middleware.New(c)
				if err != nil {
					panic(err)
				}
				client := retryablehttp.NewClient()
				client.HTTPClient = &http.Client{Transport: base}
				if err := meteredretryable.Install(client, s); err != nil {
					panic(err)
				}
				return client.HTTPClient.Transport
			})
		})
	}
}

func TestInstall_BadInput(t *testing.T) {
	s, other := testrig.Stack(t, middleware.Config{}), testrig.Stack(t, middleware.Config{})
	over := func(rt http.RoundTripper) *retryablehttp.Client {
		client := retryablehttp.NewClient()
		client.HTTPClient = &http.Client{Transport: rt}
		return client
	}
	installed := over(nil)
	if err := meteredretryable.Install(installed, s); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		client  *retryablehttp.Client
		stack   *middleware.Stack
		already bool
	}{
		"nil client":                      {nil, s, false},
		"nil stack":                       {over(nil), nil, false},
		"twice":                           {installed, s, true},
		"another stack":                   {installed, other, true},
		"another stack on a shared one":   {&retryablehttp.Client{HTTPClient: installed.HTTPClient}, other, true},
		"stack as the client's transport": {over(s.Transport(nil)), s, true},
		"layer as the client's transport": {over(middleware.Ladder(retryafter.Policy{})(nil)), s, true},
	} {
		t.Run(name, func(t *testing.T) {
			var before http.RoundTripper
			if c.client != nil {
				before = c.client.HTTPClient.Transport
			}
			err := meteredretryable.Install(c.client, c.stack)
			if err == nil || errors.Is(err, meteredretryable.ErrInstalled) != c.already {
				t.Fatalf("got %v", err)
			}
			if c.client != nil && c.client.HTTPClient.Transport != before {
				t.Error("the client was changed")
			}
		})
	}
}

func mustStack(t *testing.T) *middleware.Stack {
	t.Helper()
	s, err := middleware.New(middleware.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A refused Install, a second one included, leaves waits and sends as they are.
func TestInstall_TwiceIsOneBudget(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.bare(4)
		s := r.install(client, patient(2))
		if err := meteredretryable.Install(client, s); !errors.Is(err, meteredretryable.ErrInstalled) {
			r.Fatalf("got %v", err)
		}
		r.want(429, "slow down")(r.get(client))
		r.WantHits(3)
		r.WantElapsed(20*time.Second, 20*time.Second+1)
	}, times(-1, refusal("10")))
}

// A client without an http.Client or a policy gets those that retryablehttp
// would use.
func TestInstall_WhatIsNilHasItsDefault(t *testing.T) {
	client := &retryablehttp.Client{RetryMax: 1, Backoff: retryablehttp.DefaultBackoff}
	if err := meteredretryable.Install(client, testrig.Stack(t, middleware.Config{})); err != nil {
		t.Fatal(err)
	}
	if client.HTTPClient == nil {
		t.Fatal("no http.Client")
	}
	defer client.HTTPClient.CloseIdleConnections()
	virtual(t, func(r rig) {
		client := r.bare(2)
		client.CheckRetry = nil
		r.install(client, patient(2))
		r.want(200, "ok")(r.get(client))
		r.WantHits(3)
	}, times(2, fault(metertest.ResetAfter)), ok200())
}

// Clients that have one http.Client between them each have an Install.
func TestInstall_SharedHTTPClient(t *testing.T) {
	virtual(t, func(r rig) {
		one, two := r.bare(4), r.bare(4)
		two.HTTPClient = one.HTTPClient
		two.CheckRetry = always
		s := r.install(one, patient(2))
		if err := meteredretryable.Install(two, s); err != nil {
			r.Fatal(err)
		}
		if err := meteredretryable.Install(two, s); !errors.Is(err, meteredretryable.ErrInstalled) {
			r.Fatalf("got %v", err)
		}
		for i, client := range []*retryablehttp.Client{one, two} {
			r.want(429, "slow down")(r.get(client))
			r.WantHits(3 * (i + 1))
		}
	}, times(-1, refusal("0")))
}

// The same Stack once more in the chain, out of sight: below a stranger, above
// the client, in a client below the client. One budget of retries, and every
// wait once.
func TestInstall_StackElsewhereInTheChain(t *testing.T) {
	for name, chain := range map[string]func(r rig) func(*http.Request) (*http.Response, error){
		"below a stranger": func(r rig) func(*http.Request) (*http.Response, error) {
			client := r.bare(4)
			s := testrig.Stack(r, patient(2))
			inner := s.Transport(client.HTTPClient.Transport)
			client.HTTPClient.Transport = roundTripper(func(req *http.Request) (*http.Response, error) { return inner.RoundTrip(req) })
			if err := meteredretryable.Install(client, s); err != nil {
				r.Fatal(err)
			}
			return client.StandardClient().Do
		},
		"above the client": func(r rig) func(*http.Request) (*http.Response, error) {
			client := r.bare(4)
			s := r.install(client, patient(2))
			return (&http.Client{Transport: s.Transport(client.StandardClient().Transport)}).Do
		},
		"in a client below": func(r rig) func(*http.Request) (*http.Response, error) {
			inner, outer := r.bare(4), r.bare(4)
			s := r.install(inner, patient(2))
			outer.HTTPClient = inner.StandardClient()
			if err := meteredretryable.Install(outer, s); err != nil {
				r.Fatal(err)
			}
			return outer.StandardClient().Do
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				do := chain(r)
				r.want(429, "slow down")(r.read(do(r.request("GET", nil).Request)))
				r.WantHits(3)
				r.WantElapsed(20*time.Second, 20*time.Second+1)
			}, times(-1, refusal("10")))
		})
	}
}

// A RoundTripper may be put between retryablehttp and the Stack afterwards, also
// one that makes answers and errors of its own of what it gets.
func TestInstall_OtherRoundTrippersOutside(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.bare(4)
		client.CheckRetry = always
		r.install(client, patient(2))
		inner, calls := client.HTTPClient.Transport, 0
		client.HTTPClient.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
			calls++
			resp, err := inner.RoundTrip(req.Clone(req.Context()))
			if err != nil {
				return nil, errors.New("something went wrong")
			}
			return &http.Response{StatusCode: resp.StatusCode, Header: resp.Header, Body: resp.Body, Request: req}, nil
		})
		r.want(429, "slow down")(r.get(client))
		r.WantHits(4)
		if calls != 2 {
			r.Errorf("%d calls of the RoundTripper outside", calls)
		}
	}, fault(metertest.ResetAfter), times(-1, refusal("0")))
}

// What a stranger outside reports as its own error is the policy's to judge: it
// may well not have sent anything.
func TestInstall_AStrangersOwnErrors(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(4, patient(2))
		inner, failed := client.HTTPClient.Transport, false
		client.HTTPClient.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
			if !failed {
				failed = true
				req.Body.Close()
				return nil, errors.New("no token yet")
			}
			return inner.RoundTrip(req)
		})
		r.want(200, "ok")(r.do(client, r.request("POST", payload1())))
		r.WantHits(1)
	}, ok200())
}

// The attempts of a call are told by their answers, also where the base gives an
// answer no Request, or one of its own.
func TestInstall_BasesWithRequestsOfTheirOwn(t *testing.T) {
	for name, request := range map[string]func(*http.Request) *http.Request{
		"none":    func(*http.Request) *http.Request { return nil },
		"another": func(req *http.Request) *http.Request { return req.WithContext(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				client := r.bare(4)
				base := client.HTTPClient.Transport
				client.HTTPClient.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
					resp, err := base.RoundTrip(req)
					if resp != nil {
						resp.Request = request(req)
					}
					return resp, err
				})
				r.install(client, patient(2))
				r.want(429, "slow down")(r.get(client))
				r.WantHits(5)
			}, refusal("0"), metertest.Reply(500, ""), refusal("0"), metertest.Reply(500, ""), times(-1, refusal("0")))
		})
	}
}

// What net/http does with certain answers and errors, it still does.
func TestInstall_WhatNetHTTPLooksFor(t *testing.T) {
	client := func(rt roundTripper) *retryablehttp.Client {
		c := retryablehttp.NewClient()
		c.Logger, c.RetryMax = nil, 0
		c.HTTPClient = &http.Client{Transport: rt}
		if err := meteredretryable.Install(c, testrig.Stack(t, middleware.Config{})); err != nil {
			t.Fatal(err)
		}
		return c
	}
	_, err := client(func(*http.Request) (*http.Response, error) {
		return nil, tls.RecordHeaderError{RecordHeader: [5]byte([]byte("HTTP/"))}
	}).Post("https://api.example.com", "text/plain", nil)
	if !errors.Is(err, http.ErrSchemeMismatch) {
		t.Errorf("HTTP for HTTPS: got %v", err)
	}
	resp, err := client(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 101, Header: http.Header{}, Body: struct{ io.ReadWriteCloser }{}, Request: req}, nil
	}).Post("https://api.example.com", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := resp.Body.(io.Writer); !ok {
		t.Error("the body of a switched protocol has lost its Writer")
	}
}
