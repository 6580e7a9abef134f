package middleware_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// memory is a base that answers at once, with as little of its own as can be.
type memory struct{ header http.Header }

func (m memory) RoundTrip(req *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, req.Body)
	req.Body.Close()
	return &http.Response{StatusCode: 200, Header: m.header, Body: io.NopCloser(bytes.NewReader(nil)), Request: req}, nil
}

// BenchmarkLayers is a served POST of 1 KiB through more and more layers; what
// a layer adds is the difference.
func BenchmarkLayers(b *testing.B) {
	limiter, err := bucket.New(bucket.Config{Limits: []bucket.Limit{
		bucket.PerMinute(bucket.Requests, 1e9), bucket.PerMinute(bucket.Tokens, 1e12)}})
	if err != nil {
		b.Fatal(err)
	}
	router, err := escalate.New(escalate.Config{Primary: escalate.Route{Name: "primary"},
		Backups: []escalate.Route{{Name: "backup", URL: "https://backup.example.net"}}})
	if err != nil {
		b.Fatal(err)
	}
	pace := middleware.Pace(limiter, middleware.PaceConfig{})
	ladder, retry := middleware.Ladder(retryafter.Policy{}), middleware.Retry(middleware.RetryPolicy{})
	openai := http.Header{
		"X-Ratelimit-Limit-Requests":     {"1000000000"},
		"X-Ratelimit-Limit-Tokens":       {"1000000000000"},
		"X-Ratelimit-Remaining-Requests": {"999999999"},
		"X-Ratelimit-Remaining-Tokens":   {"999999999999"},
		"X-Ratelimit-Reset-Requests":     {"12ms"},
		"X-Ratelimit-Reset-Tokens":       {"6m0s"},
	}
	for _, c := range []struct {
		name   string
		header http.Header
		layers []middleware.Middleware
	}{
		{"bare", nil, nil},
		{"pace", nil, []middleware.Middleware{pace}},
		{"ladder+pace", nil, []middleware.Middleware{ladder, pace}},
		{"retry+ladder+pace", nil, []middleware.Middleware{retry, ladder, pace}},
		{"all", nil, []middleware.Middleware{middleware.Escalate(router), retry, ladder, pace}},
		{"all, limit headers", openai, []middleware.Middleware{middleware.Escalate(router), retry, ladder, pace}},
	} {
		b.Run(c.name, func(b *testing.B) {
			header := c.header
			if header == nil {
				header = http.Header{}
			}
			for name := range map[string]int{"Content-Type": 0, "Date": 0, "Server": 0} {
				header[name] = []string{"x"}
			}
			rt := middleware.Chain(memory{header}, c.layers...)
			payload := bytes.NewReader(make([]byte, 1<<10))
			req, err := http.NewRequestWithContext(b.Context(), "POST", "https://api.openai.com/v1/chat/completions", payload)
			if err != nil {
				b.Fatal(err)
			}
			for _, name := range []string{"Authorization", "Content-Type", "Accept", "User-Agent", "X-A", "X-B", "X-C", "X-D"} {
				req.Header.Set(name, "value")
			}
			body := req.Body
			b.ReportAllocs()
			for b.Loop() {
				payload.Seek(0, io.SeekStart)
				req.Body = body
				resp, err := rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}
