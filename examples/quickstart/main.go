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
		Requests: 600, Tokens: 200_000,
		Cost: func(*http.Request, []byte) int64 { return 500 },
	}))
	defer provider.Close()
	url := provider.URL

	// README begin
	stack, err := middleware.New(middleware.Config{
		Bucket: bucket.Config{Limits: []bucket.Limit{
			bucket.PerMinute(bucket.Requests, 600),
			bucket.PerMinute(bucket.Tokens, 200_000),
		}},
		Pace: middleware.PaceConfig{Cost: func(*http.Request) (bucket.Cost, error) {
			return bucket.Cost{Requests: 1, InputTokens: 500}, nil // your estimate of the call
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: stack.Transport(nil)}

	for range 20 {
		resp, err := client.Post(url, "application/json", strings.NewReader(`{"prompt":"hello"}`))
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	for _, key := range stack.Stats().Keys {
		fmt.Println(key.Sends, "sent,", key.Served, "served, health", key.Health)
	}
	// README end
}
