package meteredresty_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// The rig of these tests: a provider in memory, a resty client over it, and a
// clock that the test owns.
type rig struct {
	*testing.T
	provider *metertest.Provider
	start    time.Time
}

const apiURL = "http://api.example.com/v1/things"

// virtual runs f in a bubble, against a provider that gives these answers first.
func virtual(t *testing.T, f func(r rig), answers ...metertest.Answer) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(rig{t, metertest.New(metertest.Config{Script: answers}), time.Now()})
		synctest.Wait()
	})
}

// bare is a resty client over the provider, which retries and says nothing.
func (r rig) bare(retries int) *resty.Client {
	return resty.NewWithClient(&http.Client{Transport: r.provider.Transport()}).
		SetRetryCount(retries).SetLogger(silent{})
}

func (r rig) stack(c middleware.Config) *middleware.Stack {
	r.Helper()
	s, err := middleware.New(c)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// install installs a stack of this configuration on client.
func (r rig) install(client *resty.Client, c middleware.Config) *middleware.Stack {
	r.Helper()
	s := r.stack(c)
	if err := meteredresty.Install(client, s); err != nil {
		r.Fatal(err)
	}
	return s
}

// client is a client of so many retries of resty's, with a stack.
func (r rig) client(retries int, c middleware.Config) *resty.Client {
	r.Helper()
	client := r.bare(retries)
	r.install(client, c)
	return client
}

// patient is a stack of so many rate-limit retries, without jitter, and without
// transport retries of its own.
func patient(maxRetries int) middleware.Config {
	p := retryafter.DefaultPolicy()
	p.Jitter, p.MaxRetries = 0, maxRetries
	return middleware.Config{Ladder: p, Retry: middleware.RetryPolicy{MaxRetries: -1}}
}

func (r rig) wantHits(n int) {
	r.Helper()
	if got := r.provider.Hits(); got != n {
		r.Fatalf("the provider saw %d requests, want %d", got, n)
	}
}

// wantElapsed checks the virtual time since the start: from lo, to less than hi.
func (r rig) wantElapsed(lo, hi time.Duration) {
	r.Helper()
	if d := time.Since(r.start); d < lo || d >= hi {
		r.Fatalf("took %v, want [%v, %v)", d, lo, hi)
	}
}

func (r rig) wantStatus(resp *resty.Response, err error, status int) {
	r.Helper()
	if err != nil || resp.StatusCode() != status {
		r.Fatalf("got %v, %v; want %d", resp.StatusCode(), err, status)
	}
}

func (r rig) wantNothingOpen() {
	r.Helper()
	if n := r.provider.OpenBodies(); n != 0 {
		r.Errorf("%d answers stay open", n)
	}
}

// wantSameBodies checks that every request whose body was read had the same one,
// of n bytes.
func (r rig) wantSameBodies(n int) {
	r.Helper()
	var first *metertest.Entry
	for i, e := range r.provider.Ledger() {
		if e.Fault == metertest.DialError || e.Fault == metertest.ResetBefore {
			continue
		}
		if first == nil {
			first = &e
		}
		if int(e.BodyLen) != n || e.BodySHA256 != first.BodySHA256 {
			r.Errorf("send %d had %d bytes, or other ones; want %d", i+1, e.BodyLen, n)
		}
	}
}

func ok200() metertest.Answer { return metertest.Reply(200, "ok") }

func refusal(retryAfter string) metertest.Answer {
	return metertest.Reply(429, "slow down", "Retry-After", retryAfter)
}

func fault(f metertest.Fault) metertest.Answer { return metertest.Answer{Fault: f} }

func times(n int, a metertest.Answer) metertest.Answer {
	a.Times = n
	return a
}

// opaque is a reader that net/http knows nothing of.
func opaque(s string) io.Reader { return struct{ io.Reader }{strings.NewReader(s)} }

// silent is a logger of resty's.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// always is a retry condition.
func always(*resty.Response, error) bool { return true }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// synctestRig is virtual for a provider of any configuration.
func synctestRig(t *testing.T, c metertest.Config, f func(r rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(rig{t, metertest.New(c), time.Now()})
		synctest.Wait()
	})
}
