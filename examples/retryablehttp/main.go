// Retryablehttp is the recipe for a go-retryablehttp client: one Install, and each
// of its calls is one turn of the Stack, however many loops are about to send it
// again. The API that it calls is a metered provider on loopback.
//
//	go run ./examples/retryablehttp
package main

import (
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

func main() {
	provider := metertest.New(metertest.Config{Requests: 600})
	server := httptest.NewServer(provider)
	defer server.Close()

	// README begin
	stack, err := middleware.New(middleware.Config{
		Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	client := retryablehttp.NewClient() // its RetryMax of 4 is for 500s and lost connections from now on
	client.Logger = nil
	if err := meteredretryable.Install(client, stack); err != nil { // after HTTPClient and CheckRetry
		log.Fatal(err)
	}
	// README end
	defer client.HTTPClient.CloseIdleConnections()

	for _, c := range calls {
		provider.ClearScript()
		provider.Script(c.script)
		sent := provider.Hits()
		resp, err := client.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Printf("%-20s%s, %d sent\n", c.title, resp.Status, provider.Hits()-sent)
	}
}

// What the provider does to each call, and for how long.
var calls = []struct {
	title  string
	script metertest.Answer
}{
	{"served", metertest.Answer{}},
	{"refused once", metertest.Reply(429, "slow down", "Retry-After", "0")},
	{"connection lost", metertest.Answer{Fault: metertest.ResetAfter}},
	{"refused for ever", metertest.Answer{Status: 429, Header: map[string][]string{"Retry-After": {"0"}}, Times: -1}},
}
