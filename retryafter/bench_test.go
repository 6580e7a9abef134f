package retryafter

import (
	"net/http"
	"testing"
	"time"
)

// plainHeader is a success's header without any limit.
func plainHeader() http.Header {
	h := http.Header{}
	for _, name := range []string{
		"Content-Type", "Content-Length", "Date", "Server", "Vary", "Cache-Control", "X-Request-Id", "Strict-Transport-Security",
	} {
		h.Set(name, "value")
	}
	h.Set("Date", "Mon, 30 Nov 2026 12:00:00 GMT")
	return h
}

// openAIHeader is plainHeader with OpenAI's six.
func openAIHeader() http.Header {
	h := plainHeader()
	h.Set("x-ratelimit-limit-requests", "5000")
	h.Set("x-ratelimit-limit-tokens", "160000")
	h.Set("x-ratelimit-remaining-requests", "4999")
	h.Set("x-ratelimit-remaining-tokens", "159976")
	h.Set("x-ratelimit-reset-requests", "12ms")
	h.Set("x-ratelimit-reset-tokens", "6m0s")
	return h
}

func anthropicHeader() http.Header {
	h := plainHeader()
	for _, dim := range []string{"requests", "tokens", "input-tokens", "output-tokens"} {
		h.Set("anthropic-ratelimit-"+dim+"-limit", "80000")
		h.Set("anthropic-ratelimit-"+dim+"-remaining", "78000")
		h.Set("anthropic-ratelimit-"+dim+"-reset", "2026-11-30T12:00:40Z")
	}
	return h
}

func BenchmarkWindows(b *testing.B) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, bench := range []struct {
		name, host string
		h          http.Header
	}{
		{"no limit header, unknown host", "api.example.com", plainHeader()},
		{"no limit header, OpenAI", "api.openai.com", plainHeader()},
		{"OpenAI's six", "api.openai.com", openAIHeader()},
		{"OpenAI's six, unknown host", "api.example.com", openAIHeader()},
		{"Anthropic's twelve", "api.anthropic.com", anthropicHeader()},
	} {
		b.Run(bench.name+"/Reader", func(b *testing.B) {
			b.ReportAllocs()
			var room [8]Window
			for b.Loop() {
				Reader{}.Windows(room[:0], bench.host, bench.h, now)
			}
		})
		b.Run(bench.name+"/Source", func(b *testing.B) {
			b.ReportAllocs()
			s := Reader{}.For(bench.host)
			var room [8]Window
			for b.Loop() {
				s.Windows(room[:0], bench.h, now)
			}
		})
	}
}

func BenchmarkFor(b *testing.B) {
	for _, host := range []string{"api.openai.com", "example.openai.azure.com", "api.example.com"} {
		b.Run(host, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Reader{}.For(host)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	h := plainHeader()
	h.Set("Retry-After", "Mon, 30 Nov 2026 12:00:40 GMT")
	b.ReportAllocs()
	for b.Loop() {
		Parse(h, now)
	}
}
