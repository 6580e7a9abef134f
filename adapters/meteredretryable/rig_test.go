package meteredretryable_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/internal/testrig"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// The rig of these tests: a provider in memory, a retryablehttp client over it,
// and a clock that the test owns.
type rig struct{ testrig.Rig }

const (
	apiURL  = testrig.URL
	payload = `{"model":"m","messages":[]}`
)

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

// host is retryablehttp, which retries whatever fails, with a stack.
var host testrig.Host = func(t testing.TB, hc *http.Client, s *middleware.Stack, retries int) testrig.Send {
	client := retryablehttp.NewClient()
	client.HTTPClient, client.RetryMax, client.Logger = hc, retries, nil
	if err := meteredretryable.Install(client, s); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, method, url string, body any) (*http.Response, string, error) {
		req, err := retryablehttp.NewRequestWithContext(ctx, method, url, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		_, answer, err := read(t, resp, err)
		return resp, answer, err
	}
}

// bare is a client over the provider, of so many retries, that says nothing.
func (r rig) bare(retries int) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.HTTPClient = r.Client()
	client.Logger = nil
	client.RetryMax = retries
	return client
}

// install installs a stack of this configuration on client.
func (r rig) install(client *retryablehttp.Client, c middleware.Config) *middleware.Stack {
	r.Helper()
	s := testrig.Stack(r, c)
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

func (r rig) request(method string, body any) *retryablehttp.Request {
	r.Helper()
	req, err := retryablehttp.NewRequestWithContext(r.Context(), method, apiURL, body)
	if err != nil {
		r.Fatal(err)
	}
	return req
}

// do sends req and reads the answer up.
func (r rig) do(client *retryablehttp.Client, req *retryablehttp.Request) (status int, body string, err error) {
	r.Helper()
	return r.read(client.Do(req))
}

func (r rig) get(client *retryablehttp.Client) (status int, body string, err error) {
	r.Helper()
	return r.do(client, r.request("GET", nil))
}

func (r rig) read(resp *http.Response, err error) (status int, body string, _ error) {
	r.Helper()
	return read(r, resp, err)
}

// read reads the answer up; a status of 0 is an error.
func read(t testing.TB, resp *http.Response, err error) (status int, body string, _ error) {
	t.Helper()
	if err != nil {
		if resp != nil {
			t.Errorf("an answer %d beside the error %v", resp.StatusCode, err)
		}
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("reading the answer: %v", err)
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

// always and never are retry policies.
func always(context.Context, *http.Response, error) (bool, error) { return true, nil }
func never(context.Context, *http.Response, error) (bool, error)  { return false, nil }

type key struct{}
