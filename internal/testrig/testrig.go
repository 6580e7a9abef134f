// Package testrig is what the tests of layers and adapters have in common: a
// provider in memory, a clock that the test owns, and what holds for every client
// that a Stack is installed on.
package testrig

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A Rig is a test on virtual time, with a provider.
type Rig struct {
	*testing.T
	Provider *metertest.Provider
	Start    time.Time
}

// URL is where the provider is called.
const URL = "http://api.example.com/v1/things"

// Run runs f in a bubble, against a provider of this configuration.
func Run(t *testing.T, c metertest.Config, f func(r Rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(Rig{t, metertest.New(c), time.Now()})
		synctest.Wait()
	})
}

// Client is an http.Client of the provider.
func (r Rig) Client() *http.Client { return &http.Client{Transport: r.Provider.Transport()} }

// WantHits checks how many requests the provider has seen.
func (r Rig) WantHits(n int) {
	r.Helper()
	if got := r.Provider.Hits(); got != n {
		r.Fatalf("the provider saw %d requests, want %d", got, n)
	}
}

// WantElapsed checks the virtual time since the start: from lo, to less than hi.
func (r Rig) WantElapsed(lo, hi time.Duration) {
	r.Helper()
	if d := time.Since(r.Start); d < lo || d >= hi {
		r.Fatalf("took %v, want [%v, %v)", d, lo, hi)
	}
}

// WantNothingOpen checks that all answers have been closed.
func (r Rig) WantNothingOpen() {
	r.Helper()
	if n := r.Provider.OpenBodies(); n != 0 {
		r.Errorf("%d answers stay open", n)
	}
}

// WantSameBodies checks that every request whose body was read had the same one,
// of n bytes.
func (r Rig) WantSameBodies(n int) {
	r.Helper()
	var first *metertest.Entry
	for i, e := range r.Provider.Ledger() {
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

// Stack is a Stack of this configuration.
func Stack(t testing.TB, c middleware.Config) *middleware.Stack {
	t.Helper()
	s, err := middleware.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Patient is a stack of so many rate-limit retries, without jitter, and without
// transport retries of its own.
func Patient(maxRetries int) middleware.Config {
	p := retryafter.DefaultPolicy()
	p.Jitter, p.MaxRetries = 0, maxRetries
	return middleware.Config{Ladder: p, Retry: middleware.RetryPolicy{MaxRetries: -1}}
}

// Served is an answer of 200.
func Served() metertest.Answer { return metertest.Reply(200, "ok") }

// Refusal is a 429 with this Retry-After.
func Refusal(retryAfter string) metertest.Answer {
	return metertest.Reply(429, "slow down", "Retry-After", retryAfter)
}

// Fault is no answer, but f.
func Fault(f metertest.Fault) metertest.Answer { return metertest.Answer{Fault: f} }

// Times is a, n times, or for ever if n is negative.
func Times(n int, a metertest.Answer) metertest.Answer {
	a.Times = n
	return a
}

// Opaque is a reader that net/http, and clients over it, know nothing of.
func Opaque(s string) io.Reader { return struct{ io.Reader }{strings.NewReader(s)} }

// RoundTripper is a function as an http.RoundTripper.
type RoundTripper func(*http.Request) (*http.Response, error)

func (f RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
