package metertest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

func Example() {
	p := metertest.New(metertest.Config{Requests: 2, Dialect: metertest.OpenAI})
	client := &http.Client{Transport: p.Transport()}
	for range 3 {
		resp, err := client.Get("https://api.example.com/v1/models")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(resp.StatusCode, resp.Header.Get("X-Ratelimit-Remaining-Requests"), "left")
		resp.Body.Close()
	}
	fmt.Println(p.Hits(), "hits,", p.Served(), "served,", p.Refused(), "refused")
	// Output:
	// 200 1 left
	// 200 0 left
	// 429 0 left
	// 3 hits, 2 served, 1 refused
}

func ExampleNew_server() {
	p := metertest.New(metertest.Config{Requests: 1, Dialect: metertest.Anthropic, Per: time.Hour})
	server := httptest.NewServer(p)
	defer server.Close()
	for range 2 {
		resp, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 200 OK
	// 429 Too Many Requests
}

func ExampleProvider_Script() {
	p := metertest.New(metertest.Config{})
	p.Script(
		metertest.Reply(429, "slow down", "Retry-After", "2"),
		metertest.Answer{Fault: metertest.DialError},
		metertest.Answer{Status: 200, Events: []metertest.Event{
			{Data: metertest.SSE("", "hello")},
			{Data: metertest.SSE("error", "overloaded"), After: 10 * time.Millisecond},
		}},
	)
	client := &http.Client{Transport: p.Transport()}
	for range 4 {
		resp, err := client.Get("https://api.example.com/")
		if err != nil {
			fmt.Println(err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%d %q\n", resp.StatusCode, body)
	}
	// Output:
	// 429 "slow down"
	// Get "https://api.example.com/": dial tcp api.example.com: connect: connection refused
	// 200 "data: hello\n\nevent: error\ndata: overloaded\n\n"
	// 200 "ok"
}

func ExampleProvider_SetStatus() {
	primary := metertest.New(metertest.Config{Dialect: metertest.Anthropic})
	backup := metertest.New(metertest.Config{Dialect: metertest.OpenAI})
	client := &http.Client{Transport: metertest.Hosts{
		"primary.example.com": primary,
		"backup.example.com":  backup,
	}.Transport()}
	primary.SetStatus(529)
	for _, host := range []string{"primary", "backup"} {
		resp, err := client.Get("https://" + host + ".example.com/")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(host, resp.StatusCode)
	}
	// Output:
	// primary 529
	// backup 200
}

func ExampleProvider_Ledger() {
	p := metertest.New(metertest.Config{Tokens: 1000})
	client := &http.Client{Transport: p.Transport()}
	for _, tokens := range []string{"700", "700"} {
		req, _ := http.NewRequest("POST", "https://api.example.com/v1/chat", nil)
		req.Header.Set(metertest.TokensHeader, tokens)
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	for _, e := range p.Ledger() {
		fmt.Println(e.Method, e.Path, e.Tokens, e.Admitted, e.Status)
	}
	// Output:
	// POST /v1/chat 700 true 200
	// POST /v1/chat 700 false 429
}

// layer is the RoundTripper under test.
func layer(base http.RoundTripper) http.RoundTripper { return base }

func ExampleTestRoundTripper() {
	var t *testing.T // the test's own

	metertest.TestRoundTripper(t, func(base http.RoundTripper) http.RoundTripper {
		return layer(base)
	})
}
