// Openai puts a meteredhttp Stack under the OpenAI SDK: calls at once share one
// budget of requests and tokens, a refusal is waited out as the server asks, and
// what is still refused in the end is the SDK's own error.
//
//	go run ./examples/openai
//
// With OPENAI_API_KEY in the environment it calls the real service, a few cents'
// worth at most; without, a provider on loopback that refuses once and fails once.
// The recipe is in client.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/meteredhttp/meteredhttp/retryafter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	model := flag.String("model", openai.ChatModelGPT4_1Mini, "`model` to call")
	requests := flag.Int64("rpm", 500, "`requests` a minute that your account has for it")
	tokens := flag.Int64("tpm", 200_000, "`tokens` a minute that your account has for it")
	flag.Parse()

	live := os.Getenv("OPENAI_API_KEY") != ""
	if err := show(ctx, os.Stdout, live, *model, limits{*requests, *tokens}); err != nil {
		fmt.Fprintln(os.Stderr, "openai:", err)
		os.Exit(1)
	}
}

// show has a conversation and reports what it took.
func show(ctx context.Context, w io.Writer, live bool, model string, l limits) error {
	var reader retryafter.Reader        // knows the real service by its host
	var endpoint []option.RequestOption // the SDK's own: OPENAI_API_KEY, OPENAI_BASE_URL
	if !live {
		server := httptest.NewServer(newProvider(l, refusedOnce, failedOnce))
		defer server.Close()
		fmt.Fprintf(w, "Calling a provider on loopback. Set OPENAI_API_KEY to call the real one.\n\n")
		reader.Hosts = map[string]string{strings.TrimPrefix(server.URL, "http://"): "openai"}
		endpoint = loopback(server.URL)
	}

	stack, err := newStack(l, reader)
	if err != nil {
		return err
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	if err := converse(ctx, w, newClient(stack, base, endpoint...), model); err != nil {
		return err
	}
	report(w, stack.Stats())
	return nil
}

// loopback keeps what the SDK finds in the environment out of calls to a provider
// of ours.
func loopback(url string) []option.RequestOption {
	return []option.RequestOption{option.WithBaseURL(url + "/v1"), option.WithAPIKey("none")}
}
