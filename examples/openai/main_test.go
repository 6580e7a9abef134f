package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
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
	if err := show(soon(t), &out, false, model, plenty); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Calling a provider on loopback", strings.Join(completion, ""),
		"6 sent, 5 served, 0 without an answer", "1 refused: rate_limited",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
}

// With a key in the environment the SDK's own settings rule, and the key goes to
// the service alone.
func TestKeyIsUsedAndNotPrinted(t *testing.T) {
	const secret = "sk-proj-do-not-print"
	provider := newProvider(plenty)
	server := httptest.NewServer(provider)
	defer server.Close()
	t.Setenv("OPENAI_API_KEY", secret)
	t.Setenv("OPENAI_BASE_URL", server.URL+"/v1")
	var out strings.Builder
	if err := show(soon(t), &out, true, model, plenty); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), secret) {
		t.Errorf("the output has the key in it:\n%s", out.String())
	}
	for _, e := range provider.Ledger() {
		if got := e.Header.Get("Authorization"); got != "Bearer "+secret {
			t.Errorf("a request came with other credentials")
		}
	}
	if n := provider.Hits(); n != len(questions)+1 {
		t.Errorf("%d sends, want %d", n, len(questions)+1)
	}
}

func TestLoopbackIsSentNoCredential(t *testing.T) {
	provider := newProvider(plenty)
	server := httptest.NewServer(provider)
	defer server.Close()
	t.Setenv("OPENAI_API_KEY", "do-not-send")
	t.Setenv("OPENAI_ADMIN_KEY", "do-not-send")
	client := openai.NewClient(loopback(server.URL)...)
	if _, err := ask(t.Context(), client, model, "?"); err != nil {
		t.Fatal(err)
	}
	for name, values := range provider.Ledger()[0].Header {
		if strings.Contains(strings.Join(values, " "), "do-not-send") {
			t.Errorf("%s has a key of the environment", name)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
