package meteredretryable_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// The rig of these tests: a provider in memory, a retryablehttp client over it,
// and a clock that the test owns.
type rig struct {
	*testing.T
	provider *metertest.Provider
	start    time.Time
}

const (
	apiURL  = "http://api.example.com/v1/things"
	payload = `{"model":"m","messages":[]}`
)

// virtual runs f in a bubble, against a provider that gives these answers first.
func virtual(t *testing.T, f func(r rig), answers ...metertest.Answer) {
	t.Helper()
	metered(t, metertest.Config{Script: answers}, f)
}

// metered is virtual for a provider of any configuration.
func metered(t *testing.T, c metertest.Config, f func(r rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(rig{t, metertest.New(c), time.Now()})
		synctest.Wait()
	})
}

// bare is a client over the provider, of so many retries, that says nothing.
func (r rig) bare(retries int) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{Transport: r.provider.Transport()}
	client.Logger = nil
	client.RetryMax = retries
	return client
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
func (r rig) install(client *retryablehttp.Client, c middleware.Config) *middleware.Stack {
	r.Helper()
	s := r.stack(c)
	if err := meteredretryable.Install(client, s); err != nil {
		r.Fatal(err)
	}
	return s
}

// client is a client of so many retries of retryablehttp's, with a stack.
func (r rig) client(retries int, c middleware.Config) *retryablehttp.Client {
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

func (r rig) request(method string, body any) *retryablehttp.Request {
	r.Helper()
	req, err := retryablehttp.NewRequestWithContext(r.Context(), method, apiURL, body)
	if err != nil {
		r.Fatal(err)
	}
	return req
}

// do sends req and reads the answer up; a status of 0 is an error.
func (r rig) do(client *retryablehttp.Client, req *retryablehttp.Request) (status int, body string, err error) {
	r.Helper()
	return r.read(client.Do(req))
}

func (r rig) get(client *retryablehttp.Client) (status int, body string, err error) {
	r.Helper()
	return r.do(client, r.request("GET", nil))
}

func (r rig) read(resp *http.Response, err error) (int, string, error) {
	r.Helper()
	if err != nil {
		if resp != nil {
			r.Errorf("an answer %d beside the error %v", resp.StatusCode, err)
		}
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Errorf("reading the answer: %v", err)
	}
	return resp.StatusCode, string(b), nil
}

// want checks the outcome of a call: its status and body.
func (r rig) want(status int, body string) func(int, string, error) {
	r.Helper()
	return func(gotStatus int, gotBody string, err error) {
		r.Helper()
		if err != nil || gotStatus != status || gotBody != body {
			r.Fatalf("got %d %q, %v; want %d %q", gotStatus, gotBody, err, status, body)
		}
	}
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
		if int(e.BodyLen) != n || e.BodySHA256 != first.BodySHA256 || e.ContentLength != first.ContentLength {
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

// opaque is a reader that neither net/http nor retryablehttp knows anything of.
func opaque(s string) io.Reader { return struct{ io.Reader }{strings.NewReader(s)} }

// always and never are retry policies.
func always(context.Context, *http.Response, error) (bool, error) { return true, nil }
func never(context.Context, *http.Response, error) (bool, error)  { return false, nil }

type key struct{}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
