package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A scene is three servers in memory: one gives tokens, one takes them and is
// metered, and one is that one's backup. It records what a layer of others' does.
type scene struct {
	network             http.RoundTripper
	auth, model, backup *metertest.Provider

	spans   *tracetest.SpanRecorder
	tracing *sdktrace.TracerProvider
	logged  atomic.Int64 // lines
	logger  *slog.Logger

	mu      sync.Mutex
	expires map[string]time.Time // by token
}

const (
	modelURL  = "https://api.example.com/v1/chat/completions"
	tokenURL  = "https://auth.example.com/token"
	backupURL = "https://api.backup.example"
)

// newScene returns a scene whose tokens live as long as stated.
func newScene(life time.Duration) *scene {
	s := &scene{spans: tracetest.NewSpanRecorder(), expires: map[string]time.Time{}}
	s.tracing = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	s.logger = slog.New(slog.NewTextHandler(lineCounter{&s.logged}, nil))
	s.auth = metertest.New(metertest.Config{Name: "auth", Respond: func(*http.Request, []byte) metertest.Answer {
		return metertest.Reply(http.StatusOK, s.issue(life), "Content-Type", "application/json")
	}})
	s.model = metertest.New(metertest.Config{
		Name: "model", Requests: 60, Latency: 50 * time.Millisecond, RefusedLatency: 20 * time.Millisecond,
		Respond: func(r *http.Request, _ []byte) metertest.Answer {
			if !s.accepts(r.Header.Get("Authorization")) {
				return metertest.Reply(http.StatusUnauthorized, `{"error":"invalid_token"}`)
			}
			return metertest.Reply(http.StatusOK, `{"choices":[]}`, "Content-Type", "application/json")
		},
	})
	s.backup = metertest.New(metertest.Config{Name: "backup"})
	s.network = metertest.Hosts{"auth.example.com": s.auth, "api.example.com": s.model, "api.backup.example": s.backup}.Transport()
	return s
}

// issue makes the answer of the token server: token-1, token-2 and so on.
func (s *scene) issue(life time.Duration) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := fmt.Sprintf("token-%d", len(s.expires)+1)
	s.expires[token] = time.Now().Add(life)
	return fmt.Sprintf(`{"access_token":%q,"token_type":"bearer","expires_in":%d}`, token, int(life.Seconds()))
}

func (s *scene) accepts(authorization string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.expires[strings.TrimPrefix(authorization, "Bearer ")]
	return ok && time.Now().Before(until)
}

// tokens is the token source of a client of the scene. Its requests go over the
// network by themselves, not through the Stack: oauth2 takes the client for them
// from the context.
func (s *scene) tokens(early time.Duration) oauth2.TokenSource {
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, &http.Client{Transport: s.network})
	return source(ctx, &clientcredentials.Config{ClientID: "agent", ClientSecret: "secret", TokenURL: tokenURL}, early)
}

// call makes the call that all this is about.
func (s *scene) call(ctx context.Context, client *http.Client) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, modelURL, strings.NewReader(`{"model":"big","messages":[]}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}

// refusal is an answer of 429 that asks for that many seconds.
func refusal(seconds string) metertest.Answer {
	return metertest.Reply(http.StatusTooManyRequests, `{"error":"rate_limit"}`, "Retry-After", seconds)
}

// tokensSeen returns what the model's server was shown, send by send.
func (s *scene) tokensSeen() (tokens []string) {
	for _, e := range s.model.Ledger() {
		tokens = append(tokens, strings.TrimPrefix(e.Header.Get("Authorization"), "Bearer "))
	}
	return tokens
}

// traceparents returns how often each traceparent came to the model's server.
func (s *scene) traceparents() map[string]int {
	m := map[string]int{}
	for _, e := range s.model.Ledger() {
		m[e.Header.Get("Traceparent")]++
	}
	return m
}

// lineCounter counts what a slog handler writes: one Write is one record.
type lineCounter struct{ lines *atomic.Int64 }

func (c lineCounter) Write(p []byte) (int, error) {
	c.lines.Add(1)
	return len(p), nil
}
