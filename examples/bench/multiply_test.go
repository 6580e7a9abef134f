package bench

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// What one call becomes at a server that refuses everything, and asks for a second
// each time: how often it is sent, and how long it takes until the caller knows.
// Retries of two loops multiply, and each has its own idea of waiting; a host with
// its adapter is one loop.
//
//	go test ./bench -run Multiply -v
func TestMultiply(t *testing.T) {
	sends := retryafter.DefaultPolicy().MaxRetries + 1 // of the ladder, that is of one turn without routes
	rivals := 5                                        // retryablehttp's RetryMax is 4
	type want struct{ alone, limited, byHand, ours int }
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "sends of one refused call\talone\tover a hand-wired limiter\tover a Stack, by hand\tours")
	for _, h := range []struct {
		name string
		call func(t *testing.T, under string, base http.RoundTripper)
		want want
	}{
		{"resty, SetRetryCount(3)", callResty, want{4, 4 * rivals, 4 * sends, sends}},
		{"retryablehttp", callRetryable, want{5, 5 * rivals, 5 * sends, sends}},
		{"openai-go", callOpenAI, want{3, 3 * rivals, 3 * sends, sends}},
	} {
		fmt.Fprint(w, h.name)
		for _, c := range []struct {
			under string
			want  int
		}{{"alone", h.want.alone}, {"limited", h.want.limited}, {"by hand", h.want.byHand}, {"ours", h.want.ours}} {
			synctest.Test(t, func(t *testing.T) {
				p := metertest.New(metertest.Config{Script: []metertest.Answer{
					{Status: http.StatusTooManyRequests, Body: `{"error":{"message":"no"}}`, Header: http.Header{"Retry-After": {"1"}}, Times: -1},
				}})
				began := time.Now()
				h.call(t, c.under, p.Transport())
				fmt.Fprintf(w, "\t%d in %.0f s", p.Hits(), time.Since(began).Seconds())
				if p.Hits() != c.want {
					t.Errorf("%s, %s: %d sends, want %d", h.name, c.under, p.Hits(), c.want)
				}
				if p.OpenBodies() != 0 {
					t.Errorf("%s, %s: %d answers are open", h.name, c.under, p.OpenBodies())
				}
			})
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	t.Logf("\n%s", &table)
}

// below is what stands under a host: nothing, the rival (limiters, a breaker and
// retries of its own), or a Stack that the host knows nothing of.
func below(t *testing.T, under string, base http.RoundTripper) http.RoundTripper {
	switch under {
	case "limited":
		return newRival(base)
	case "by hand":
		return newStack(t).Transport(base)
	}
	return base
}

func callResty(t *testing.T, under string, base http.RoundTripper) {
	client := newResty(below(t, under, base))
	if under == "ours" {
		installResty(t, client, newStack(t))
	}
	resp, err := client.R().SetBody(content).Post(endpoint)
	if err != nil || resp.StatusCode() != http.StatusTooManyRequests {
		t.Errorf("resty, %s: %v, %v", under, resp.Status(), err)
	}
}

func callRetryable(t *testing.T, under string, base http.RoundTripper) {
	client := newPlainRetryable(below(t, under, base))
	if under == "ours" {
		installRetryable(t, client, newStack(t))
	}
	resp, err := client.Post(endpoint, "application/json", content)
	if err != nil {
		t.Errorf("retryablehttp, %s: %v", under, err)
		return
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("retryablehttp, %s: %s", under, resp.Status)
	}
}

// The SDK has no adapter: its own retries are set to zero.
func callOpenAI(t *testing.T, under string, base http.RoundTripper) {
	options := []option.RequestOption{
		option.WithBaseURL("https://api.example.com/v1"),
		option.WithAPIKey("none"),
		option.WithHTTPClient(&http.Client{Transport: below(t, under, base)}),
	}
	if under == "ours" {
		stack, err := middleware.New(middleware.Config{Retry: middleware.RetryPolicy{AllMethods: true}})
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, option.WithMaxRetries(0), option.WithHTTPClient(&http.Client{Transport: stack.Transport(base)}))
	}
	client := openai.NewClient(options...)
	_, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model:    "big",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
	})
	if err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("openai-go, %s: %v, want its own error with the status", under, err)
	}
}
