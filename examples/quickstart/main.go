// Quickstart is the program of the README: an http.Client that keeps within two
// limits. The API that it calls is a metered provider on loopback.
//
//	go run ./examples/quickstart
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

func main() {
	provider := httptest.NewServer(metertest.New(metertest.Config{
		Requests: 600, Tokens: 400_000,
		Cost: func(*http.Request, []byte) int64 { return 500 },
	}))
	defer provider.Close()

	// README begin
	limits := []bucket.Limit{bucket.PerMinute(bucket.Requests, 600), bucket.PerMinute(bucket.Tokens, 400_000)}
	stack, err := middleware.New(middleware.Config{
		Bucket: bucket.Config{Limits: limits},     // what the provider publishes
		Pace:   middleware.PaceConfig{Cost: cost}, // what it will charge for a request
	})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: stack.Transport(nil)} // its calls wait their turn, and a 429 out
	// README end

	for range 20 {
		resp, err := client.Post(provider.URL, "application/json", strings.NewReader(`{"prompt":"hello"}`))
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	for _, key := range stack.Stats().Keys {
		fmt.Println(key.Sends, "sent,", key.Served, "served, health", key.Health)
	}
}

// cost is an estimate; a client of a model would count the prompt's tokens here.
func cost(*http.Request) (bucket.Cost, error) {
	return bucket.Cost{Requests: 1, InputTokens: 400, OutputTokens: 100}, nil
}
