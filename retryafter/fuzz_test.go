package retryafter

import (
	"bytes"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

func FuzzParse(f *testing.F) {
	for _, v := range []string{
		"120", "0", "0.5", "-5", "+5", "1e3", "0x10", "NaN", "soon", "", " 7 ", "3, 9, 5", "5s", "1.2.3",
		"9223372036", "9223372037", "99999999999999999999", "0.0000000000000000000000001",
		"Mon, 30 Nov 2026 12:02:00 GMT", "Monday, 30-Nov-26 12:02:00 GMT", "Mon Nov 30 12:02:00 2026",
		"3, Mon, 30 Nov 2026 12:00:40 GMT, 9", "Mon,", "Fri, 31 Dec 9999 23:59:60 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
	} {
		f.Add(v, v, "", int64(1796040000))
		f.Add("abc", v, "Mon, 30 Nov 2026 11:00:00 GMT", int64(1796040000))
	}
	f.Fuzz(func(t *testing.T, ms, seconds, date string, unix int64) {
		h := header("Retry-After-Ms", ms, "Retry-After", seconds, "Date", date)
		now := time.Unix(unix, 0)
		d, ok := Parse(h, now)
		if d < 0 || !ok && d != 0 {
			t.Fatalf("%v, %v", d, ok)
		}
		if again, ok2 := Parse(h, now); again != d || ok2 != ok {
			t.Fatalf("%v, %v and then %v, %v", d, ok, again, ok2)
		}
		// Another line never makes the wait shorter.
		h.Add("Retry-After", "1")
		if more, ok := Parse(h, now); !ok || more < d {
			t.Fatalf("%v with another line, %v without", more, d)
		}
	})
}

func FuzzHeaderHint(f *testing.F) {
	for format := range uint8(Date) + 1 {
		for _, v := range []string{
			"7000", "1m30s", "1.5", "7000, 9000", "1796040060", "1796040060250", "2026-11-30T12:01:00Z",
			"Mon, 30 Nov 2026 12:02:00 GMT", "Mon, 30 Nov 2026 12:00:40 GMT, 9", "-5", "1e3", "", ",", "99999999999999999999", "retry in 20s",
		} {
			f.Add(format, v, "", "", int64(1796040000))
			f.Add(format, v, "5", "retry in ", int64(1796040000))
		}
	}
	f.Fuzz(func(t *testing.T, format uint8, one, two, after string, unix int64) {
		hint := Hint{Header: "X-Wait", Format: Format(format)}
		if after != "" {
			hint.After = []string{after, ""}
		}
		s := Reader{Providers: []Provider{{Name: "p", Hosts: []string{"p.example"}, Hints: []Hint{hint}}}}.For("p.example")
		now := time.Unix(unix, 0)
		sig := s.Classify(429, header("X-Wait", one), nil, now)
		checkSignal(t, sig)
		// Another line never makes the wait shorter.
		more := s.Classify(429, header("X-Wait", one, "X-Wait", two), nil, now)
		checkSignal(t, more)
		if sig.HasHint && (!more.HasHint || more.RetryAfter < sig.RetryAfter) {
			t.Fatalf("%v with another line, %v without", more.RetryAfter, sig.RetryAfter)
		}
	})
}

func FuzzClassify(f *testing.F) {
	for _, v := range loadVectors(f) {
		lines := ""
		for name, value := range v.Headers {
			lines += name + ": " + value + "\n"
		}
		f.Add(v.Host, v.Status, lines, []byte(v.Body), v.Now.Unix())
	}
	f.Add("api.example.com", 429, "RateLimit: \"a\\\"b\";r=5;t=1, x;r=2\nRateLimit-Policy: \"a\";q=1;w=2\n", []byte(nil), int64(0))
	f.Add("api.openai.com", 429, "Content-Encoding: gzip\n", []byte("\x1f\x8b"), int64(0))
	f.Add("dynamodb.us-east-1.amazonaws.com", 503, "", []byte("<Error><Code>SlowDown</Code"), int64(0))
	f.Add("api.openai.com", 200, "Content-Type: text/event-stream\n", []byte("data: {\"error\":{\"code\":\"slow_down\"}\n\ndata: ["), int64(0))
	f.Fuzz(func(t *testing.T, host string, status int, lines string, body []byte, unix int64) {
		h := http.Header{}
		for line := range strings.Lines(lines) {
			if name, value, ok := strings.Cut(strings.TrimRight(line, "\n"), ": "); ok {
				h.Add(name, value)
			}
		}
		now := time.Unix(unix, 0)
		before, text := h.Clone(), bytes.Clone(body)
		sig := Classify(host, status, h, body, now)
		if !reflect.DeepEqual(h, before) || !bytes.Equal(body, text) {
			t.Fatal("changed what it was given")
		}
		if again := Classify(host, status, h, body, now); !reflect.DeepEqual(sig, again) {
			t.Fatalf("%+v and then %+v", sig, again)
		}
		checkSignal(t, sig)

		// Read says the same of an error, and gives the body back.
		resp := answer(host, status, h, bytes.NewReader(body))
		read := Read(resp, now)
		checkSignal(t, read)
		if status >= 400 && len(body) <= BodyLimit && !reflect.DeepEqual(sig, read) {
			t.Fatalf("Classify: %+v, Read: %+v", sig, read)
		}
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, body) {
			t.Fatalf("body %q, %v", got, err)
		}
	})
}

// checkSignal checks what holds for every Signal.
func checkSignal(t *testing.T, s Signal) {
	t.Helper()
	bad := func(what string) { t.Fatalf("%s: %+v", what, s) }
	if s.Class > Other {
		bad("no class")
	}
	if s.RetryAfter < 0 || s.Floor < 0 || !s.HasHint && s.RetryAfter != 0 {
		bad("a negative or unstated wait")
	}
	if s.Retryable && (s.Class == OK || s.Class == QuotaExhausted) {
		bad("retryable")
	}
	for _, w := range s.Windows {
		if w.Unit == "" || w.Limit < -1 || w.Remaining < -1 || w.Reset < -1 || w.Per < 0 {
			bad("a window out of its range")
		}
	}
	for _, need := range []func(string) int64{nil, func(string) int64 { return 1 << 62 }} {
		if d, ok := s.Wait(need); d < 0 || !ok && d != 0 {
			bad("a negative wait")
		}
	}
}
