package meteredresty_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
	"github.com/meteredhttp/meteredhttp/internal/testrig"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// The rig of these tests: a provider in memory, a resty client over it, and a
// clock that the test owns.
type rig struct{ testrig.Rig }

const apiURL = testrig.URL

// Short names for what the scripts of these tests are full of.
var (
	ok200   = testrig.Served
	refusal = testrig.Refusal
	fault   = testrig.Fault
	times   = testrig.Times
	opaque  = testrig.Opaque
	patient = testrig.Patient
)

type roundTripper = testrig.RoundTripper

// virtual runs f in a bubble, against a provider that gives these answers first.
func virtual(t *testing.T, f func(r rig), answers ...metertest.Answer) {
	t.Helper()
	testrig.Run(t, metertest.Config{Script: answers}, func(r testrig.Rig) { f(rig{r}) })
}

// host is resty, told to retry whatever fails, with a stack.
var host testrig.Host = func(t testing.TB, hc *http.Client, s *middleware.Stack, retries int) testrig.Send {
	client := resty.NewWithClient(hc).SetRetryCount(retries).AddRetryCondition(onFailure).SetLogger(silent{})
	if err := meteredresty.Install(client, s); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, method, url string, body any) (*http.Response, string, error) {
		resp, err := client.R().SetContext(ctx).SetBody(body).Execute(method, url)
		if err != nil {
			return nil, "", err
		}
		return resp.RawResponse, resp.String(), nil
	}
}

// bare is a resty client over the provider, which retries and says nothing.
func (r rig) bare(retries int) *resty.Client {
	return resty.NewWithClient(r.Client()).
		SetRetryCount(retries).SetLogger(silent{})
}

// install installs a stack of this configuration on client.
func (r rig) install(client *resty.Client, c middleware.Config) *middleware.Stack {
	r.Helper()
	s := testrig.Stack(r, c)
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

func (r rig) wantStatus(resp *resty.Response, err error, status int) {
	r.Helper()
	if err != nil || resp.StatusCode() != status {
		r.Fatalf("got %v, %v; want %d", resp.StatusCode(), err, status)
	}
}

// silent is a logger of resty's.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// always is a retry condition.
func always(*resty.Response, error) bool { return true }
