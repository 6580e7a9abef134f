package meteredretryable_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A server that always refuses: retryablehttp retries four times, the ladder
// twice, and the server sees three requests, not fifteen.
func ExampleInstall() {
	provider := metertest.New(metertest.Config{Script: []metertest.Answer{
		{Status: 429, Body: "slow down", Header: map[string][]string{"Retry-After": {"0"}}, Times: -1},
	}})
	server := httptest.NewServer(provider)
	defer server.Close()

	stack, err := middleware.New(middleware.Config{
		Ladder: retryafter.Policy{RespectRetryAfter: true, DefaultDelay: time.Second, MaxDelay: time.Minute, MaxRetries: 2},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := retryablehttp.NewClient() // RetryMax 4
	client.Logger = nil
	if err := meteredretryable.Install(client, stack); err != nil {
		fmt.Println(err)
		return
	}
	defer client.HTTPClient.CloseIdleConnections()

	resp, err := client.Post(server.URL, "application/json", []byte(`{"model":"m"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
	fmt.Println("requests:", provider.Hits())
	// Output:
	// 429 slow down <nil>
	// requests: 3
}
