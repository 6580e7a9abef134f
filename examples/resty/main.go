// Resty is the recipe for a resty client with retries of its own: one Install, and
// each of its calls is one turn of the Stack, however many loops are about to send
// it again. The API that it calls is a metered provider on loopback.
//
//	go run ./examples/resty
package main

import (
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
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
	client := resty.New().SetRetryCount(3).AddRetryCondition(func(r *resty.Response, err error) bool {
		return err != nil || r.StatusCode() == 429 || r.StatusCode() >= 500 // for 500s alone from now on
	})
	if err := meteredresty.Install(client, stack); err != nil { // last: after proxy, TLS and transport
		log.Fatal(err)
	}
	// README end
	defer client.GetClient().CloseIdleConnections()

	for _, c := range calls {
		provider.ClearScript()
		provider.Script(c.script)
		sent := provider.Hits()
		resp, err := client.R().Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-20s%s, %d sent\n", c.title, resp.Status(), provider.Hits()-sent)
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
