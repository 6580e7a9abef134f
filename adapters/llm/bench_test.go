package llm

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

const prose = "The quick brown fox jumps over the lazy dog, and nobody knows why it should.\nThen \"again\", who asks? "

// chat is the body of a chat of about n bytes, with escapes in it as they come.
func chat(n int) string {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var ms []message
	for size, i := 0, 0; size < n; i++ {
		m := message{"user", strings.Repeat(prose, 1+i%30)}
		size += len(m.Content) + 40
		ms = append(ms, m)
	}
	body, _ := json.Marshal(map[string]any{"model": "gpt-4o", "max_tokens": 500, "messages": ms})
	return string(body)
}

func BenchmarkEstimate(b *testing.B) {
	picture := `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.Repeat("iVBORw0KGgoAAAANSUhEUg", 20<<20/22) + `"}}]}]}`
	for _, bm := range []struct{ name, body string }{
		{"1KB", chat(1 << 10)},
		{"chat100KB", chat(100 << 10)},
		{"base64text100KB", `{"model":"m","input":"` + strings.Repeat("iVBORw0KGgoAAAANSUhEUg", 100<<10/22) + `"}`},
		{"picture20MB", picture},
	} {
		b.Run(bm.name, func(b *testing.B) {
			e, err := New(Config{})
			if err != nil {
				b.Fatal(err)
			}
			req := post(b, "openai", "/v1/chat/completions", bm.body)
			b.SetBytes(int64(len(bm.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Charge(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkKey(b *testing.B) {
	req := post(b, "openai", "/v1/chat/completions", chat(100<<10))
	b.ReportAllocs()
	for b.Loop() {
		Key(req)
	}
}

// A stream of n events of each dialect.
var streams = map[string]func(n int) []string{
	"openai": func(n int) (events []string) {
		for i := range n {
			events = append(events, fmt.Sprintf(`data: {"id":"chatcmpl-A652BBBfoo","object":"chat.completion.chunk","created":1754000000,"model":"gpt-4o-2024-08-06","service_tier":"default","system_fingerprint":"fp_07871e2ad8","choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,"finish_reason":null}],"usage":null}`, i)+"\n\n")
		}
		return append(events, `data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}`+"\n\n", "data: [DONE]\n\n")
	},
	"anthropic": func(n int) []string {
		events := []string{"event: message_start\n" + `data: {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":472,"output_tokens":2}}}` + "\n\n"}
		for i := range n {
			events = append(events, fmt.Sprintf("event: content_block_delta\n"+`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word%d"}}`+"\n\n", i))
		}
		return append(events, "event: message_delta\n"+`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":89}}`+"\n\n")
	},
	"gemini": func(n int) (events []string) {
		for i := range n {
			events = append(events, fmt.Sprintf(`data: {"candidates": [{"content": {"parts": [{"text": "%s %d"}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 12,"candidatesTokenCount": %d,"totalTokenCount": %d,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 12}]},"modelVersion": "gemini-2.5-flash"}`, prose[:60], i, i, i+12)+"\r\n\r\n")
		}
		return events
	},
}

// BenchmarkTap reads the same stream with and without a tap, in turns, from a
// server that flushes each event, and prints what the tap costs as a share of
// the reading.
func BenchmarkTap(b *testing.B) {
	for _, provider := range []string{"openai", "anthropic", "gemini"} {
		b.Run(provider+"/paced", func(b *testing.B) { benchmarkTap(b, provider, true) })
		b.Run(provider+"/burst", func(b *testing.B) { benchmarkTap(b, provider, false) })
	}
}

// paced is how models stream: each event comes by itself, and is read before
// the next. In a burst the server sends them as fast as it can.
func benchmarkTap(b *testing.B, provider string, paced bool) {
	events := streams[provider](1000)
	next := make(chan struct{}, len(events))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			if paced {
				<-next
			}
			io.WriteString(w, e)
			w.(http.Flusher).Flush()
		}
	}))
	defer srv.Close()
	// read returns how long it took to read the stream, and how much of that
	// was the tap's.
	read := func(tp middleware.Tap) (time.Duration, int) {
		next <- struct{}{}
		resp, err := http.Get(srv.URL)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		if tp != nil && !tp.Answered(resp) {
			b.Fatal("not heard")
		}
		reads := 0
		start := time.Now()
		for buf := make([]byte, 4<<10); ; reads++ {
			n, err := resp.Body.Read(buf)
			if tp != nil {
				tp.Heard(buf[:n])
			}
			if err != nil {
				break
			}
			if paced {
				next <- struct{}{}
			}
		}
		took := time.Since(start)
		for len(next) > 0 {
			<-next
		}
		return took, reads
	}
	var without, with time.Duration
	var reads int
	for b.Loop() {
		d, n := read(nil)
		without += d
		reads += n
		var e Estimator
		d, _ = read(newTap(b, &e, provider, bucket.Cost{}))
		with += d
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(with)/float64(without), "with/without")
	b.ReportMetric(float64(without)/float64(b.N*len(events)), "read-ns/event")
	b.ReportMetric(float64(reads)/float64(b.N*len(events)), "reads/event")

	// Where the difference is smaller than its noise: the tap by itself, for the
	// same events one by one, over the time of reading them.
	var e Estimator
	tp := newTap(b, &e, provider, bucket.Cost{})
	tp.Answered(answer(200, "text/event-stream"))
	pieces := make([][]byte, len(events))
	for i, e := range events {
		pieces[i] = []byte(e)
	}
	own := time.Duration(1 << 62)
	for range 50 {
		start := time.Now()
		for _, p := range pieces {
			tp.Heard(p)
		}
		own = min(own, time.Since(start))
	}
	b.ReportMetric(float64(own)/float64(len(pieces)), "tap-ns/event")
	b.ReportMetric(float64(own)/(float64(without)/float64(b.N)), "tap/reading")
}
