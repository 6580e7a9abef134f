package meteredresty_test

import (
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A server that always refuses: resty is told to retry three times, the ladder
// twice, and the server sees three requests, not twelve.
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
	client := resty.New().
		SetRetryCount(3).
		AddRetryCondition(func(r *resty.Response, err error) bool { return err != nil || r.IsError() })
	if err := meteredresty.Install(client, stack); err != nil {
		fmt.Println(err)
		return
	}
	defer client.GetClient().CloseIdleConnections()

	resp, err := client.R().SetBody(`{"model":"m"}`).Post(server.URL)
	fmt.Println(resp.StatusCode(), resp, err)
	fmt.Println("requests:", provider.Hits())
	// Output:
	// 429 slow down <nil>
	// requests: 3
}
