package retryafter

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// headersOf reads "Name: value" lines.
func headersOf(lines string) http.Header {
	h := http.Header{}
	for line := range strings.Lines(lines) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\n"), ": "); ok {
			h.Add(name, value)
		}
	}
	return h
}

// FuzzWindows reads the limit headers of a success, drafts included.
func FuzzWindows(f *testing.F) {
	for _, v := range loadVectors(f) {
		lines := ""
		for name, value := range v.Headers {
			lines += name + ": " + value + "\n"
		}
		f.Add(v.Host, lines, v.Now.Unix())
	}
	for _, lines := range []string{
		"RateLimit: limit=100, remaining=50, reset=5\nRateLimit-Policy: 100;w=60\n",
		"RateLimit: \"a\\\"b\";r=5;t=1, x;r=2\nRateLimit-Policy: \"a\";q=1;w=2;pk=:AA==:\n",
		"RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 0\nRateLimit-Reset: 48\n",
		"X-RateLimit-Limit: 1e308\nX-RateLimit-Remaining: -1\nX-RateLimit-Reset: 1970-01-01T00:00:00Z\n",
		"X-RateLimit-Limit-Requests: 9,000\nX-RateLimit-Remaining-Requests: 99999999999999999999\nX-RateLimit-Reset-Requests: 6m0s\n",
	} {
		f.Add("api.example.com", lines, int64(1796040000))
	}
	f.Fuzz(func(t *testing.T, host, lines string, unix int64) {
		h, now := headersOf(lines), time.Unix(unix, 0)
		s := Reader{}.For(host)
		ws := s.Windows(nil, h, now)
		checkSignal(t, Signal{Windows: ws})
		if len(ws) > 0 && s.Families(h) == 0 {
			t.Fatalf("%+v of no family", ws)
		}
		if name := s.Illegible(h); name != "" && len(h[name]) == 0 {
			t.Fatalf("%s cannot be read, and is not there", name)
		}
	})
}

// FuzzDetect reads the texts of errors.
func FuzzDetect(f *testing.F) {
	for _, text := range []string{
		"HTTP 429: slow down", "429", "1429", "rate limit exceeded", "Rate Limit", "status 503", "HTTP 529: overloaded", "http 429", "v4.2.9", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sig, ok := Detect(errors.New(text))
		checkSignal(t, sig)
		if again, ok2 := Detect(errors.New(text)); again.Class != sig.Class || ok2 != ok {
			t.Fatalf("%+v, %v and then %+v, %v", sig, ok, again, ok2)
		}
	})
}
