// Anthropic puts a meteredhttp Stack under the Anthropic SDK: calls at once share
// one budget of requests and tokens, a refusal is waited out as the server asks, a
// model that is given up is replaced by its backup for the rest of the call, and
// what is still refused in the end is the SDK's own error.
//
//	go run ./examples/anthropic
//
// With ANTHROPIC_API_KEY in the environment it calls the real service, a few cents'
// worth at most; without, a provider on loopback that refuses once and whose first
// model is overloaded when it should stream. The recipe is in client.go.
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

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/meteredhttp/meteredhttp/retryafter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var m models
	flag.StringVar(&m.primary, "model", anthropic.ModelClaudeSonnet4_6, "`model` to call")
	flag.StringVar(&m.backup, "backup", anthropic.ModelClaudeHaiku4_5, "`model` to call when that one is given up")
	var l limits
	flag.Int64Var(&l.requests, "rpm", 50, "`requests` a minute that your account has for each model")
	flag.Int64Var(&l.input, "itpm", 30_000, "input `tokens` a minute that your account has for each")
	flag.Int64Var(&l.output, "otpm", 8_000, "output `tokens` a minute that your account has for each")
	flag.Parse()

	live := os.Getenv("ANTHROPIC_API_KEY") != ""
	if err := show(ctx, os.Stdout, live, m, l); err != nil {
		fmt.Fprintln(os.Stderr, "anthropic:", err)
		os.Exit(1)
	}
}

// show has a conversation and reports what it took.
func show(ctx context.Context, w io.Writer, live bool, m models, l limits) error {
	var reader retryafter.Reader        // knows the real service by its host
	var endpoint []option.RequestOption // the SDK's own: ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL
	if !live {
		server := httptest.NewServer(newProvider(l, m.primary, refusedOnce))
		defer server.Close()
		fmt.Fprintf(w, "Calling a provider on loopback. Set ANTHROPIC_API_KEY to call the real one.\n\n")
		reader.Hosts = map[string]string{strings.TrimPrefix(server.URL, "http://"): "anthropic"}
		endpoint = loopback(server.URL)
	}

	stack, err := newStack(m, l, reader)
	if err != nil {
		return err
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	if err := converse(ctx, w, newClient(stack, base, reader, endpoint...), m.primary); err != nil {
		return err
	}
	report(w, stack.Stats())
	return nil
}

// loopback keeps what the SDK finds in the environment out of calls to a provider
// of ours.
func loopback(url string) []option.RequestOption {
	return []option.RequestOption{option.WithBaseURL(url), option.WithAPIKey("none"), option.WithHeaderDel("Authorization")}
}
