package llm

import (
	"bytes"
	"encoding/base64"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

const (
	overloaded = `{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"}}`
	opening    = `{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":17,"output_tokens":1}}}`
	hello      = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`
	finished   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":89}}`
)

// stream is a 200 that sends these events, given as names and data in turn.
func stream(pairs ...string) metertest.Answer {
	a := metertest.Answer{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}}
	for i := 0; i < len(pairs); i += 2 {
		a.Events = append(a.Events, metertest.Event{Data: metertest.SSE(pairs[i], pairs[i+1])})
	}
	return a
}

func wire(a metertest.Answer) (s string) {
	for _, e := range a.Events {
		s += e.Data
	}
	return s
}

// rig is a Stack over a scripted provider, on virtual time.
type rig struct {
	*testing.T
	provider *metertest.Provider
	stack    *middleware.Stack
	client   *http.Client
}

func anthropicReader() retryafter.Reader {
	return retryafter.Reader{Hosts: map[string]string{"api.example.com": "anthropic"}}
}

func virtual(t *testing.T, c middleware.Config, script []metertest.Answer, below middleware.Middleware, f func(r rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{Script: script})
		if c.Ladder == (retryafter.Policy{}) {
			c.Ladder = retryafter.DefaultPolicy()
			c.Ladder.Jitter = 0
		}
		s, err := middleware.New(c)
		if err != nil {
			t.Fatal(err)
		}
		rt := p.Transport()
		if below != nil {
			rt = below(rt)
		}
		f(rig{t, p, s, &http.Client{Transport: s.Transport(rt)}})
		synctest.Wait()
	})
}

const apiURL = "https://api.example.com/v1/messages"

func (r rig) post(body string) *http.Response {
	r.Helper()
	resp, err := r.client.Post(apiURL, "application/json", strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	return resp
}

func (r rig) read(resp *http.Response) string {
	r.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	resp.Body.Close()
	return string(body)
}

// The first event of a 200 is an overload error: the caller sees only the second
// stream.
func TestFieldReport_E4_AnErrorAsTheFirstEventIsARefusal(t *testing.T) {
	for _, tc := range []struct {
		name  string
		first metertest.Answer
		wait  time.Duration
		class retryafter.Class
		host  string // the provider that the host speaks
	}{
		{"anthropic overloaded", stream("error", overloaded), 5 * time.Second, retryafter.Overloaded, "anthropic"},
		{"behind a ping", stream("ping", `{"type": "ping"}`, "error", overloaded), 5 * time.Second, retryafter.Overloaded, "anthropic"},
		{"openai chat", stream("", `{"error":{"message":"Rate limit reached. Please try again in 850ms.","type":"tokens","code":"rate_limit_exceeded"}}`),
			850 * time.Millisecond, retryafter.RateLimited, "openai"},
		{"openai responses, flat", stream("error", `{"type":"error","code":"rate_limit_exceeded","message":"Rate limit reached. Please try again in 2s.","param":null,"sequence_number":0}`),
			2 * time.Second, retryafter.RateLimited, "openai"},
		{"openai responses, failed", stream("response.failed", `{"type":"response.failed","response":{"id":"r","error":{"code":"server_is_overloaded","message":"x"}}}`),
			5 * time.Second, retryafter.Overloaded, "openai"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			second := stream("message_start", opening, "content_block_delta", hello)
			c := middleware.Config{Reader: retryafter.Reader{Hosts: map[string]string{"api.example.com": tc.host}}}
			layer := FirstEvent(FirstEventConfig{Reader: c.Reader})
			virtual(t, c, []metertest.Answer{tc.first, second}, layer, func(r rig) {
				start := time.Now()
				if got := r.read(r.post(`{}`)); got != wire(second) {
					r.Errorf("the caller saw %q", got)
				}
				if hits, took := r.provider.Hits(), time.Since(start); hits != 2 || took != tc.wait {
					r.Errorf("%d hits in %v, want 2 in %v", hits, took, tc.wait)
				}
				if st := r.stack.Stats().Keys[0]; st.Refused[tc.class] != 1 {
					r.Errorf("refused %v, want one %v", st.Refused, tc.class)
				}
			})
		})
	}
}

// An error as the third event: something was delivered, so nothing is sent
// again, and bucket and breaker are told.
func TestFieldReport_E4_ALaterErrorPassesThroughAndIsTold(t *testing.T) {
	answer := stream("message_start", opening, "content_block_delta", hello, "error", overloaded)
	for _, first := range []bool{true, false} {
		router, err := escalate.New(escalate.Config{Primary: escalate.Route{Name: "p", Quota: "p"}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := New(Config{Reader: anthropicReader()})
		if err != nil {
			t.Fatal(err)
		}
		c := middleware.Config{Reader: anthropicReader(), Router: router, Pace: middleware.PaceConfig{Charge: e.Charge}}
		var layer middleware.Middleware
		if first {
			layer = FirstEvent(FirstEventConfig{Reader: anthropicReader()})
		}
		virtual(t, c, []metertest.Answer{answer}, layer, func(r rig) {
			if got := r.read(r.post(`{"model":"m","messages":[]}`)); got != wire(answer) {
				r.Errorf("the caller saw %q, want %q", got, wire(answer))
			}
			st := r.stack.Stats()
			if r.provider.Hits() != 1 || st.Routes[0].Late != 1 {
				r.Errorf("%d hits, %d late failures, want one each", r.provider.Hits(), st.Routes[0].Late)
			}
			if st.Keys[0].Refused[retryafter.Overloaded] != 1 || st.Keys[0].Budget.HeldFor != 5*time.Second {
				r.Errorf("refused %v, held %v", st.Keys[0].Refused, st.Keys[0].Budget.HeldFor)
			}
		})
	}
}

func TestFieldReport_E4_WithTheOptionOffTheStreamIsUntouched(t *testing.T) {
	answer := stream("error", overloaded)
	virtual(t, middleware.Config{Reader: anthropicReader()}, []metertest.Answer{answer}, nil, func(r rig) {
		resp := r.post(`{}`)
		if got := r.read(resp); got != wire(answer) || resp.StatusCode != 200 || r.provider.Hits() != 1 {
			r.Errorf("status %d, %q, %d hits", resp.StatusCode, got, r.provider.Hits())
		}
	})
}

// TPM 1000, each call estimated at 400.
func TestFieldReport_I3_StreamedAnswersSettleTheTokenAccount(t *testing.T) {
	openai := func(usage string) metertest.Answer {
		return stream("", `{"choices":[{"index":0,"delta":{"content":"Hi"}}],"usage":null}`, "", `{"choices":[],"usage":`+usage+`}`, "", "[DONE]")
	}
	for _, tc := range []struct {
		name   string
		host   string
		answer metertest.Answer
		close  bool // after the first event
		left   float64
		waits  bool // the next call of 400
	}{
		{"usage 900 in the last chunk", "openai", openai(`{"prompt_tokens":880,"completion_tokens":20,"total_tokens":900}`), false, 100, true},
		{"usage 50", "openai", openai(`{"prompt_tokens":30,"completion_tokens":20,"total_tokens":50}`), false, 950, false},
		{"no usage", "openai", stream("", `{"choices":[{"delta":{"content":"Hi"}}]}`, "", "[DONE]"), false, 600, false},
		{"closed after one event", "openai", openai(`{"prompt_tokens":880,"completion_tokens":20}`), true, 600, false},
		{"anthropic", "anthropic", stream("message_start", opening, "content_block_delta", hello, "message_delta", finished), false, 894, false},
		{"anthropic, closed after one event", "anthropic", stream("message_start", opening, "content_block_delta", hello, "message_delta", finished), true, 783, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reader := retryafter.Reader{Hosts: map[string]string{"api.example.com": tc.host}}
			e, err := New(Config{Reader: reader, PerMessage: -1, PerCall: -1, NoCorrection: true, NoOutputHistory: true})
			if err != nil {
				t.Fatal(err)
			}
			c := middleware.Config{
				Reader: reader,
				Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}, Headroom: 1, MaxInFlight: 1},
				Pace:   middleware.PaceConfig{Charge: e.Charge},
			}
			body := `{"model":"m","max_tokens":200,"messages":[{"role":"user","content":"` + strings.Repeat("ab cdef", 100) + `"}]}`
			virtual(t, c, []metertest.Answer{tc.answer, tc.answer}, nil, func(r rig) {
				start := time.Now()
				resp := r.post(body)
				level := func() float64 { return r.stack.Stats().Keys[0].Budget.Levels[0].Available }
				if got := level(); got != 600 {
					r.Fatalf("%v left, want 400 taken", got)
				}
				if tc.close {
					if _, err := io.ReadFull(resp.Body, make([]byte, len(tc.answer.Events[0].Data))); err != nil {
						r.Fatal(err)
					}
				} else {
					r.read(resp)
				}
				if r.stack.Stats().Keys[0].Budget.InFlight != map[bool]int{true: 1, false: 0}[tc.close] {
					r.Error("the slot is not held until the body ends")
				}
				resp.Body.Close()
				resp.Body.Close()
				if got := level(); got != tc.left {
					r.Errorf("%v left, want %v", got, tc.left)
				}
				r.read(r.post(body))
				if waited := time.Since(start) > 0; waited != tc.waits {
					r.Errorf("the next call waited: %v, want %v", waited, tc.waits)
				}
			})
		})
	}
}

func TestFieldReport_I4_PicturesAreNotEstimatedAsText(t *testing.T) {
	data := make([]byte, 1536<<10)
	rng := rand.NewChaCha8([32]byte{})
	rng.Read(data)
	b64 := base64.StdEncoding.EncodeToString(data) // 2 MB
	words := strings.Repeat("word ", 20)
	for _, tc := range []struct {
		name, provider, path, picture, text string
	}{
		{"openai chat", "openai", "/v1/chat/completions",
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"` + words + `"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + b64 + `"}}]}]}`,
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"` + words + `"},{"type":"text","text":"` + b64 + `"}]}]}`},
		{"openai responses", "openai", "/v1/responses",
			`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"` + words + `"},{"type":"input_image","image_url":"data:image/png;base64,` + b64 + `"}]}],"max_output_tokens":9}`,
			`{"model":"m","input":"` + words + b64 + `","max_output_tokens":9}`},
		{"openai audio and file", "openai", "/v1/chat/completions",
			`{"messages":[{"content":[{"type":"input_audio","input_audio":{"data":"` + b64 + `","format":"wav"}},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,` + b64 + `"}}]}],"max_tokens":9}`, ""},
		{"anthropic", "anthropic", "/v1/messages",
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + b64 + `"}},{"type":"text","text":"` + words + `"}]}]}`,
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":{"data":"` + b64 + `","type":"text","media_type":"text/plain"}}]}]}`},
		{"gemini", "gemini", "/v1beta/models/g:generateContent",
			`{"contents":[{"parts":[{"text":"` + words + `"},{"inlineData":{"mimeType":"image/png","data":"` + b64 + `"}}]}]}`,
			`{"contents":[{"parts":[{"text":"` + b64 + `"}]}]}`},
		{"gemini, snake case", "gemini", "/v1beta/models/g:generateContent",
			`{"contents":[{"parts":[{"inline_data":{"data":"` + b64 + `","mime_type":"image/png"}}]}]}`, ""},
		{"bedrock", "bedrock", "/model/m/converse",
			`{"messages":[{"role":"user","content":[{"image":{"format":"png","source":{"bytes":"` + b64 + `"}}},{"text":"` + words + `"}]}],"inferenceConfig":{"maxTokens":9}}`,
			`{"messages":[{"role":"user","content":[{"text":"` + b64 + `"}]}],"inferenceConfig":{"maxTokens":9}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := post(t, tc.provider, tc.path, tc.picture)
			cost, _ := Cost(req)
			if sum := cost.InputTokens + cost.OutputTokens; sum >= 5000 || sum < 1000 {
				t.Errorf("a picture is estimated at %d", sum)
			}
			if wire, _ := io.ReadAll(req.Body); !bytes.Equal(wire, []byte(tc.picture)) {
				t.Error("the body is not what it was")
			}
			if tc.text == "" {
				return
			}
			cost, _ = Cost(post(t, tc.provider, tc.path, tc.text))
			if cost.InputTokens <= 300_000 {
				t.Errorf("2 MB of text are estimated at %d", cost.InputTokens)
			}
		})
	}
}

// Out of credit is told by the body, also where it comes as the first event.
func TestFieldReport_F6_OutOfCreditIsNotRetried(t *testing.T) {
	const quota = `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`
	reader := retryafter.Reader{Hosts: map[string]string{"api.example.com": "openai", "b.example.com": "openai"}}
	for _, tc := range []struct {
		name   string
		answer metertest.Answer
	}{
		{"as a 429", metertest.Reply(429, quota, "Content-Type", "application/json")},
		{"as the first event", stream("", quota)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			layer := FirstEvent(FirstEventConfig{Reader: reader})
			virtual(t, middleware.Config{Reader: reader}, []metertest.Answer{tc.answer, metertest.Reply(200, "ok")}, layer, func(r rig) {
				start := time.Now()
				resp := r.post(`{}`)
				if got := r.read(resp); got != quota || resp.StatusCode != 429 {
					r.Errorf("status %d, %q", resp.StatusCode, got)
				}
				if r.provider.Hits() != 1 || time.Since(start) != 0 {
					r.Errorf("%d hits in %v", r.provider.Hits(), time.Since(start))
				}
			})
			router, err := escalate.New(escalate.Config{
				Primary: escalate.Route{Name: "p", Quota: "p"},
				Backups: []escalate.Route{{Name: "b", Quota: "b", URL: "https://b.example.com"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			virtual(t, middleware.Config{Reader: reader, Router: router}, []metertest.Answer{tc.answer, metertest.Reply(200, "backup")}, layer, func(r rig) {
				if got := r.read(r.post(`{}`)); got != "backup" {
					r.Errorf("the caller saw %q", got)
				}
				if ledger := r.provider.Ledger(); len(ledger) != 2 {
					r.Errorf("%d sends, want one to each", len(ledger))
				}
			})
		})
	}
}
