package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is a context for the real clock: a wait that would pass it is not begun.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestShowOnLoopback(t *testing.T) {
	var out strings.Builder
	if err := show(soon(t), &out, false, models{primary, backup}, plenty); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Calling a provider on loopback",
		"  " + primary + ": " + strings.Join(pieces, ""),
		"  " + backup + ": " + strings.Join(pieces, ""),
		"1 refused: rate_limited", "1 refused: overloaded",
		"route " + primary + ": open for 2m0s, because it was overloaded", "route " + backup + ": closed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
}

// With a key in the environment the SDK's own settings rule, and the key goes to
// the service alone.
func TestKeyIsUsedAndNotPrinted(t *testing.T) {
	const secret = "sk-ant-do-not-print"
	provider := newProvider(plenty, primary)
	server := httptest.NewServer(provider)
	defer server.Close()
	t.Setenv("ANTHROPIC_API_KEY", secret)
	t.Setenv("ANTHROPIC_BASE_URL", server.URL)
	var out strings.Builder
	if err := show(soon(t), &out, true, models{primary, backup}, plenty); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), secret) {
		t.Errorf("the output has the key in it:\n%s", out.String())
	}
	for _, e := range provider.Ledger() {
		if e.Header.Get("X-Api-Key") != secret {
			t.Errorf("a request came with other credentials")
		}
	}
	if n := provider.Hits(); n != len(questions)+2 {
		t.Errorf("%d sends, want %d", n, len(questions)+2)
	}
}

func TestLoopbackIsSentNoCredential(t *testing.T) {
	provider := newProvider(plenty, "")
	server := httptest.NewServer(provider)
	defer server.Close()
	t.Setenv("ANTHROPIC_API_KEY", "") // with one the others are not asked
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "do-not-send")
	client := anthropic.NewClient(loopback(server.URL)...)
	if _, _, err := ask(t.Context(), client, primary, "?"); err != nil {
		t.Fatal(err)
	}
	for name, values := range provider.Ledger()[0].Header {
		if strings.Contains(strings.Join(values, " "), "do-not-send") {
			t.Errorf("%s has the token of the environment", name)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
