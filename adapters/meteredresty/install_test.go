package meteredresty_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/internal/testrig"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// The installed transport keeps the RoundTripper contract, alone and within a
// call of resty's.
func TestContract(t *testing.T) {
	install := func(base http.RoundTripper, c middleware.Config) *resty.Client {
		s, err := middleware.New(c)
		if err != nil {
			panic(err)
		}
		client := resty.NewWithClient(&http.Client{Transport: base}).SetLogger(silent{})
		if err := meteredresty.Install(client, s); err != nil {
			panic(err)
		}
		return client
	}
	limits := bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600), bucket.PerMinute(bucket.Tokens, 100_000)}}
	for name, c := range map[string]middleware.Config{
		"zero":        {},
		"limits":      {Bucket: limits},
		"all methods": {Bucket: limits, Retry: middleware.RetryPolicy{AllMethods: true, BaseDelay: time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			metertest.TestRoundTripper(t, func(base http.RoundTripper) http.RoundTripper {
				return install(base, c).GetClient().Transport
			})
		})
		t.Run(name+", within a call", func(t *testing.T) {
			metertest.TestRoundTripper(t, func(base http.RoundTripper) http.RoundTripper {
				return meteredresty.WithinCalls(install(base, c).SetRetryCount(3))
			})
		})
	}
}

func TestInstall_BadInput(t *testing.T) {
	s, other := testrig.Stack(t, middleware.Config{}), testrig.Stack(t, middleware.Config{})
	installed := resty.New()
	if err := meteredresty.Install(installed, s); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		client  *resty.Client
		stack   *middleware.Stack
		already bool
	}{
		"nil client":                      {nil, s, false},
		"nil stack":                       {resty.New(), nil, false},
		"client without constructor":      {&resty.Client{}, s, false},
		"twice":                           {installed, s, true},
		"another stack":                   {installed, other, true},
		"another stack on a clone":        {installed.Clone(), other, true},
		"stack as the client's transport": {resty.New().SetTransport(s.Transport(nil)), s, true},
		"layer as the client's transport": {resty.New().SetTransport(middleware.Ladder(retryafter.Policy{})(nil)), s, true},
	} {
		t.Run(name, func(t *testing.T) {
			var before http.RoundTripper
			if c.client != nil && c.client.GetClient() != nil {
				before = c.client.GetClient().Transport
			}
			err := meteredresty.Install(c.client, c.stack)
			if err == nil || errors.Is(err, meteredresty.ErrInstalled) != c.already {
				t.Fatalf("got %v", err)
			}
			if before != nil && c.client.GetClient().Transport != before {
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

// Clones share their parent's transport. Made after Install they need nothing,
// made before it an Install of their own; one too many does no harm.
func TestInstall_Clones(t *testing.T) {
	for name, clone := range map[string]func(r rig) *resty.Client{
		"made after": func(r rig) *resty.Client { return r.client(3, patient(2)).Clone() },
		"made before": func(r rig) *resty.Client {
			parent := r.bare(3)
			c := parent.Clone()
			s := r.install(parent, patient(2))
			if err := meteredresty.Install(c, s); err != nil {
				r.Fatal(err)
			}
			return c
		},
		"made after, installed again": func(r rig) *resty.Client {
			parent := r.bare(3)
			s := r.install(parent, patient(2))
			c := parent.Clone()
			if err := meteredresty.Install(c, s); err != nil {
				r.Fatal(err)
			}
			return c
		},
		"parent, installed on the clone": func(r rig) *resty.Client {
			parent := r.bare(3)
			s := r.install(parent.Clone(), patient(2))
			if err := meteredresty.Install(parent, s); err != nil {
				r.Fatal(err)
			}
			return parent
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				client := clone(r).AddRetryCondition(always)
				resp, err := client.R().SetBody(opaque("{}")).Put(apiURL)
				r.wantStatus(resp, err, 429)
				r.WantHits(2 + 3)
				r.WantSameBodies(2)
			}, fault(metertest.ResetAfter), fault(metertest.ResetAfter), times(-1, refusal("0")))
		})
	}
}

// What SetTransport gets after Install may wrap the Stack, between resty and it.
func TestInstall_OtherRoundTrippersOutside(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(3, patient(2)).AddRetryCondition(always)
		inner, calls := client.GetClient().Transport, 0
		client.SetTransport(roundTripper(func(req *http.Request) (*http.Response, error) {
			calls++
			req = req.Clone(context.WithValue(req.Context(), key{}, 1))
			return inner.RoundTrip(req)
		}))
		resp, err := client.R().Get(apiURL)
		r.wantStatus(resp, err, 429)
		r.WantHits(3)
		if calls != 1 {
			r.Errorf("%d calls of the RoundTripper outside", calls)
		}
	}, times(-1, refusal("0")))
}

// The same Stack once more, out of sight below a stranger: one budget of retries.
func TestInstall_StackBelowAStranger(t *testing.T) {
	virtual(t, func(r rig) {
		s := testrig.Stack(r, patient(2))
		client := r.bare(3).AddRetryCondition(always)
		inner := s.Transport(client.GetClient().Transport)
		client.SetTransport(roundTripper(func(req *http.Request) (*http.Response, error) { return inner.RoundTrip(req) }))
		if err := meteredresty.Install(client, s); err != nil {
			r.Fatal(err)
		}
		resp, err := client.R().Get(apiURL)
		r.wantStatus(resp, err, 429)
		r.WantHits(3)
		r.WantElapsed(20*time.Second, 20*time.Second+1)
	}, times(-1, refusal("10")))
}

// Redirects stay within the call's turn.
func TestTurn_Redirects(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(3, patient(2))
		resp, err := client.R().SetBody(opaque("{}")).Put(apiURL)
		r.wantStatus(resp, err, 200)
		r.WantHits(5)
		r.WantSameBodies(2)
	}, metertest.Reply(307, "", "Location", "/elsewhere"), refusal("0"), fault(metertest.ResetAfter),
		metertest.Reply(307, "", "Location", "/elsewhere"), ok200())
}

func TestInstall_IdleConnectionsAreClosed(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(0, patient(2))
		closed := false
		base := idle{client.GetClient().Transport, &closed}
		client = resty.NewWithClient(&http.Client{Transport: base})
		r.install(client, patient(2))
		client.GetClient().CloseIdleConnections()
		if !closed {
			r.Error("CloseIdleConnections does not reach the base")
		}
	})
}

type idle struct {
	http.RoundTripper
	closed *bool
}

func (i idle) CloseIdleConnections() { *i.closed = true }
