package middleware_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A Stack under an http.Client. The provider refuses the first send; the caller does not notice.
func Example() {
	provider := metertest.New(metertest.Config{Script: []metertest.Answer{
		metertest.Reply(429, "too fast", "Retry-After", "0"),
	}})
	atOnce := retryafter.DefaultPolicy()
	atOnce.Jitter = 0 // so that this example does not wait
	stack, err := middleware.New(middleware.Config{
		Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600)}},
		Ladder: atOnce,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: stack.Transport(provider.Transport())}
	resp, err := client.Get("https://api.example.com/v1/models")
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	for _, k := range stack.Stats().Keys {
		fmt.Println(resp.Status, "after", k.Sends, "sends, refused as", k.Refused)
	}
	// Output: 200 OK after 2 sends, refused as map[rate_limited:1]
}

// Layers of this package around one of your own, without a bucket. What stands inside of the Ladder sees sends,
// what stands outside of it sees calls.
func ExampleChain() {
	provider := metertest.New(metertest.Config{Script: []metertest.Answer{
		metertest.Reply(503, "busy", "Retry-After", "0"),
	}})
	logged := func(what string) middleware.Middleware {
		return func(next http.RoundTripper) http.RoundTripper {
			return roundTripFunc(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err == nil {
					fmt.Println(what, resp.StatusCode)
				}
				return resp, err
			})
		}
	}
	atOnce := retryafter.DefaultPolicy()
	atOnce.Jitter = 0
	client := &http.Client{Transport: middleware.Chain(provider.Transport(),
		logged("call:"), // first is outermost
		middleware.Ladder(atOnce),
		logged("send:"),
	)}
	resp, err := client.Get("https://api.example.com/v1/models")
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	// Output:
	// send: 503
	// send: 200
	// call: 200
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A backup with a quota of its own. Waiting does not bring back credit, so the turn moves at once.
func ExampleEscalate() {
	big := metertest.New(metertest.Config{Script: []metertest.Answer{
		metertest.Reply(429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`),
	}})
	small := metertest.New(metertest.Config{})
	network := metertest.Hosts{"api.openai.com": big, "api.backup.example": small}
	router, err := escalate.New(escalate.Config{
		Primary: escalate.Route{Name: "big"},
		Backups: []escalate.Route{{
			Name:   "small",
			URL:    "https://api.backup.example",
			Model:  "small-1",
			Header: http.Header{"Authorization": {"Bearer of the backup"}},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: middleware.Chain(network.Transport(),
		middleware.Escalate(router),
		middleware.Ladder(retryafter.Policy{}), // wholly zero: the default
	)}
	resp, err := client.Post("https://api.openai.com/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"big-1"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Status, "from", resp.Request.URL.Host)
	for _, route := range router.Snapshot() {
		fmt.Println(route.Name, "is", route.State)
	}
	// Output:
	// 200 OK from api.backup.example
	// big is open
	// small is closed
}
