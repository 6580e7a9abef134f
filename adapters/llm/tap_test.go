package llm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

var estimated = bucket.Cost{Requests: 1, InputTokens: 100, OutputTokens: 500}

// hear has the tap of a call at a provider hear body, cut by cut.
func hear(t testing.TB, provider, kind, body string, cut func(left int) int) (middleware.Outcome, usage, uint64) {
	t.Helper()
	var e Estimator
	tp := newTap(t, &e, provider, estimated)
	if !tp.Answered(answer(200, kind)) {
		return middleware.Outcome{}, usage{}, 0
	}
	for len(body) > 0 {
		n := len(body)
		if cut != nil {
			n = max(1, min(cut(n), n))
		}
		tp.Heard([]byte(body[:n]))
		body = body[n:]
	}
	out := tp.End(io.EOF)
	return out, tp.usage, e.Ignored()
}

func TestWhatAnswersSettleFor(t *testing.T) {
	cost := func(in, out int64) middleware.Outcome {
		return middleware.Outcome{Known: true, Cost: bucket.Cost{Requests: 1, InputTokens: in, OutputTokens: out}}
	}
	const sse, js = "text/event-stream", "application/json"
	for _, tc := range []struct {
		name, provider, kind, body string
		want                       middleware.Outcome
		ignored                    uint64
	}{
		{"cache reads are free at Anthropic", "anthropic", js, `{"usage":{"input_tokens":50,"cache_creation_input_tokens":248,"cache_read_input_tokens":100000,"output_tokens":503}}`, cost(298, 503), 0},
		{"and at Groq", "groq", js, `{"usage":{"prompt_tokens":100,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":60}}}`, cost(40, 5), 0},
		{"but not at OpenAI", "openai", js, `{"usage":{"prompt_tokens":100,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":60}}}`, cost(100, 5), 0},
		{"Azure keeps what it reserved", "azure-openai", js, `{"usage":{"prompt_tokens":90,"completion_tokens":5}}`, cost(90, 500), 0},
		{"Gemini counts no output", "gemini", js, `{"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":7,"thoughtsTokenCount":5,"toolUsePromptTokenCount":3}}`, cost(15, 0), 0},
		{"Gemini's list", "gemini", js, "[{\"usageMetadata\":{\"promptTokenCount\":12}}\n,\r\n{\"usageMetadata\":{\"promptTokenCount\":13,\"candidatesTokenCount\":7}}]", cost(13, 0), 0},
		{"Groq's older streams", "groq", sse, "data: {\"x_groq\":{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}}\n\n", cost(3, 4), 0},
		{"an embedding", "openai", js, `{"data":[{"embedding":[0.1,-2e-5]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`, cost(8, 0), 0},
		{"only the sum", "openai", js, `{"usage":{"total_tokens":130}}`, cost(100, 30), 0},
		{"Cohere's stream", "cohere", sse, "data: {\"type\":\"message-end\",\"delta\":{\"usage\":{\"billed_units\":{\"input_tokens\":1,\"output_tokens\":2},\"tokens\":{\"input_tokens\":71,\"output_tokens\":4}}}}\n\n", cost(71, 4), 0},
		{"JSON by the line", "cohere", "application/x-ndjson", "{\"a\":1}\n{\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\n", cost(3, 4), 0},
		{"pings, comments and other fields between", "anthropic", sse, ": hello\r\nid: 7\r\nretry: 5\r\nevent: message_delta\r\ndata:{\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\r\n\r\n", cost(3, 4), 0},
		{"lines ended by carriage returns", "anthropic", sse, "data: {\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\r\rdata: {\"type\":\"ping\"}\r\r", cost(3, 4), 0},
		{"the same, and a line feed at the end", "anthropic", sse, "data: {\"usage\":{\"input_tokens\":-5}}\r\rdata: {\"usage\":{\"input_tokens\":7,\"output_tokens\":9}}\n\n", cost(7, 9), 1},
		{"a byte order mark", "anthropic", sse, "\xef\xbb\xbfdata: " + opening + "\n\ndata: {\"usage\":{\"output_tokens\":4}}\n\n", cost(17, 4), 0},
		{"half of one", "anthropic", sse, "\xef\xbbdata: " + opening + "\n\ndata: {\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\n\n", cost(3, 4), 0},
		{"other fields that look like it", "anthropic", sse, "event: {\"usage\":{\"input_tokens\":9}}\n{\"usage\":{\"input_tokens\":9}}\ndat: {\"usage\":{\"input_tokens\":9}}\n\n", middleware.Outcome{}, 0},
		{"escapes before it", "openai", js, `{"a\\":"\",","usage":{"prompt_tokens":3,"completion_tokens":4}}`, cost(3, 4), 0},
		{"two dialects in one stream", "openai", sse, "data: {\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":9}}\n\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n", cost(3, 4), 0},
		{"no line end at the end", "openai", sse, `data: {"usage":{"prompt_tokens":3,"completion_tokens":4}}`, cost(3, 4), 0},
		{"a tool's input that looks like it", "anthropic", js, `{"content":[{"input":{"usage":{"input_tokens":9999999},"message":{"usage":{"output_tokens":9}}}}],"usage":{"input_tokens":3,"output_tokens":4}}`, cost(3, 4), 0},
		{"a text that looks like it", "openai", sse, "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":9}}]\"}}]}\n\n", middleware.Outcome{}, 0},
		{"an Anthropic stream cut off", "anthropic", sse, "data: " + opening + "\n\ndata: " + hello + "\n\n", cost(17, 500), 0},
		{"a later zero against a figure", "anthropic", sse, "data: " + opening + "\n\ndata: {\"usage\":{\"input_tokens\":0,\"output_tokens\":4}}\n\n", cost(17, 4), 0},
		{"negative and fractions", "openai", js, `{"usage":{"prompt_tokens":-3,"completion_tokens":4.5,"total_tokens":7}}`, cost(7, 0), 2},
		{"nonsense", "openai", js, `{"usage":{"prompt_tokens":"3","completion_tokens":1e308,"total_tokens":99999999999999999999}}`, middleware.Outcome{}, 3},
		{"more than any call has", "openai", js, `{"usage":{"prompt_tokens":1000000000000,"completion_tokens":16777217}}`, middleware.Outcome{}, 2},
		{"no more in sum than any call has", "anthropic", js, `{"usage":{"input_tokens":16777216,"cache_creation_input_tokens":16777216,"output_tokens":16777216}}`, cost(maxTokens, maxTokens), 0},
		{"null", "openai", js, `{"usage":{"prompt_tokens":null},"error":null}`, middleware.Outcome{}, 0},
		{"usage of another kind", "openai", js, `{"usage":[{"prompt_tokens":3}]}`, middleware.Outcome{}, 0},
		{"no JSON", "openai", js, `<html>"usage":{"prompt_tokens":3}}}}]]]`, middleware.Outcome{}, 0},
		{"empty", "openai", js, ``, middleware.Outcome{}, 0},
		{"a picture", "openai", "image/png", `{"usage":{"prompt_tokens":3}}`, middleware.Outcome{}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, cut := range cuts {
				out, _, ignored := hear(t, tc.provider, tc.kind, tc.body, cut)
				if out.Known != tc.want.Known || out.Cost != tc.want.Cost || ignored != tc.ignored || out.Late.Class != retryafter.OK {
					t.Errorf("%s: %+v, %d ignored; want %+v, %d ignored", name, out, ignored, tc.want, tc.ignored)
				}
			}
		})
	}
}

var cuts = map[string]func(left int) int{
	"whole":        nil,
	"byte by byte": func(int) int { return 1 },
	"by seven":     func(int) int { return 7 },
}

// What an event of Gemini's does not repeat is over.
func TestGeminisUsageIsReplacedAsAWhole(t *testing.T) {
	const body = "data: {\"usageMetadata\":{\"promptTokenCount\":12,\"cachedContentTokenCount\":5}}\n\ndata: {\"usageMetadata\":{\"promptTokenCount\":12,\"candidatesTokenCount\":3}}\n\n"
	for name, cut := range cuts {
		if _, u, _ := hear(t, "gemini", "text/event-stream", body, cut); u.figures[cachedPart] != -1 || u.figures[output] != 3 {
			t.Errorf("%s: %v", name, u.figures)
		}
	}
}

func TestHeadersStateUsage(t *testing.T) {
	for _, tc := range []struct {
		name, provider, kind string
		header               []string
		body                 string
		want                 bucket.Cost
	}{
		{"Mistral", "mistral", "text/event-stream", []string{"X-RateLimit-Tokens-Query-Cost", "2804"}, "data: {}\n\n", bucket.Cost{Requests: 1, InputTokens: 100, OutputTokens: 2704}},
		{"Mistral, with usage too", "mistral", "application/json", []string{"X-RateLimit-Tokens-Query-Cost", "2804"}, `{"usage":{"prompt_tokens":2700,"completion_tokens":104,"total_tokens":2804}}`, bucket.Cost{Requests: 1, InputTokens: 2700, OutputTokens: 104}},
		{"Bedrock, a body of its model's", "bedrock", "application/octet-stream", []string{"X-Amzn-Bedrock-Input-Token-Count", "7", "X-Amzn-Bedrock-Output-Token-Count", "9"}, "?", bucket.Cost{Requests: 1, InputTokens: 7, OutputTokens: 9}},
		{"compressed for the caller", "bedrock", "application/json", []string{"Content-Encoding", "br", "X-Amzn-Bedrock-Input-Token-Count", "7", "X-Amzn-Bedrock-Output-Token-Count", "9"}, "?", bucket.Cost{Requests: 1, InputTokens: 7, OutputTokens: 9}},
	} {
		var e Estimator
		tp := newTap(t, &e, tc.provider, estimated)
		if !tp.Answered(answer(200, tc.kind, tc.header...)) {
			t.Fatalf("%s: not heard", tc.name)
		}
		tp.Heard([]byte(tc.body))
		if out := tp.End(io.EOF); !out.Known || out.Cost != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, out, tc.want)
		}
	}
	var e Estimator
	tp := newTap(t, &e, "mistral", estimated)
	if tp.Answered(answer(200, "image/png", "X-RateLimit-Tokens-Query-Cost", "-1")); tp.End(nil).Known || e.Ignored() != 1 {
		t.Error("a header of nonsense is believed, or not counted")
	}
}

func TestACallThatIsWrongIsNotChargedForOutput(t *testing.T) {
	var e Estimator
	tp := newTap(t, &e, "openai", estimated)
	tp.Answered(answer(400, "application/json"))
	tp.Heard([]byte(`{"error":{"code":"rate_limit_exceeded"},"usage":{"prompt_tokens":5}}`))
	if out := tp.End(io.EOF); !out.Known || out.Cost != (bucket.Cost{Requests: 1, InputTokens: 100}) || out.Late.Class != retryafter.OK {
		t.Errorf("%+v", out)
	}
	tp = newTap(t, &e, "openai", estimated)
	if tp.Answered(answer(500, "application/json")) {
		t.Error("a server's fault is heard")
	}
}

func TestCountingCanBeOverridden(t *testing.T) {
	e, err := New(Config{Counting: map[string]Counting{
		"anthropic": {Output: Reserved, OutputWeight: 5}, // all input, output five times
		"generic":   {Output: Uncounted},
	}})
	if err != nil {
		t.Fatal(err)
	}
	cost, _ := e.Cost(post(t, "anthropic", "/v1/messages", `{"model":"m","max_tokens":3000,"messages":[]}`))
	if cost.OutputTokens != 15_000 {
		t.Errorf("%d reserved", cost.OutputTokens)
	}
	tp := newTap(t, e, "anthropic", estimated)
	tp.Answered(answer(200, "application/json"))
	tp.Heard([]byte(`{"usage":{"input_tokens":50,"cache_read_input_tokens":1000,"output_tokens":3}}`))
	if out := tp.End(nil); out.Cost != (bucket.Cost{Requests: 1, InputTokens: 1050, OutputTokens: 15}) {
		t.Errorf("settled for %+v", out)
	}
	req, _ := http.NewRequest("POST", "https://llm.corp.example/v1", strings.NewReader(`{"max_tokens":3000,"messages":[]}`))
	if cost, _ := e.Cost(req); cost.OutputTokens != 0 {
		t.Errorf("%d reserved at an unknown host", cost.OutputTokens)
	}
}

func TestAnAnswerThatLiesAboutItsUsageDoesNotBlockTheBudget(t *testing.T) {
	for _, lie := range []string{`{"prompt_tokens":1000000000000,"completion_tokens":5}`, `{"prompt_tokens":99999999999,"completion_tokens":99999999999}`} {
		synctest.Test(t, func(t *testing.T) {
			e, _ := New(Config{})
			stack, err := middleware.New(middleware.Config{
				Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 200_000)}},
				Pace:   middleware.PaceConfig{Charge: e.Charge},
			})
			if err != nil {
				t.Fatal(err)
			}
			client := &http.Client{Transport: stack.Transport(roundTrip(func(*http.Request) (*http.Response, error) {
				resp := answer(200, "application/json")
				resp.Body = io.NopCloser(strings.NewReader(`{"usage":` + lie + `}`))
				return resp, nil
			}))}
			start := time.Now()
			for range 3 {
				resp, err := client.Post("https://llm.corp.example/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":10}`))
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if waited := time.Since(start); waited != 0 || e.Ignored() == 0 {
				t.Errorf("%s: waited %v, %d ignored", lie, waited, e.Ignored())
			}
		})
	}
}

func TestACompressedAnswerLeavesTheEstimate(t *testing.T) {
	tp := newTap(t, &Estimator{}, "openai", estimated)
	if tp.Answered(answer(200, "application/json", "Content-Encoding", "gzip")) {
		t.Error("it is to be heard")
	}
	if out := tp.End(nil); out.Known {
		t.Errorf("%+v", out)
	}
}

func TestALateErrorIsTold(t *testing.T) {
	for _, tc := range []struct {
		name, provider, kind, body string
		want                       retryafter.Class
	}{
		{"anthropic", "anthropic", "text/event-stream", "data: " + opening + "\n\nevent: error\ndata: " + overloaded + "\n\n", retryafter.Overloaded},
		{"openai chat", "openai", "text/event-stream", "data: {\"choices\":[]}\n\ndata: {\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}}\n\n", retryafter.RateLimited},
		{"openai responses", "openai", "text/event-stream", "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\"}}}\n\n", retryafter.ServerError},
		{"openai, flat", "openai", "text/event-stream", "data: {\"type\":\"error\",\"code\":\"insufficient_quota\"}\n\n", retryafter.QuotaExhausted},
		{"gemini", "gemini", "text/event-stream", "data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\n\n", retryafter.Overloaded},
		{"openrouter, as JSON", "openrouter", "application/json", `{"error":{"message":"Provider returned error","code":429}}`, retryafter.RateLimited},
		{"an unknown host", "", "text/event-stream", "data: " + overloaded + "\n\n", retryafter.OK},
		{"talk of errors", "anthropic", "text/event-stream", "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"{\\\"error\\\":1}\",\"error\":null}}\n\n", retryafter.OK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, cut := range cuts {
				if out, _, _ := hear(t, tc.provider, tc.kind, tc.body, cut); out.Late.Class != tc.want {
					t.Errorf("%s: %v, want %v", name, out.Late.Class, tc.want)
				}
			}
		})
	}
}

// message is one of Amazon's event stream, with the headers as names and values.
func message(payload string, headers ...string) string {
	var h []byte
	for i := 0; i < len(headers); i += 2 {
		h = append(h, byte(len(headers[i])))
		h = append(append(h, headers[i]...), 7)
		h = binary.BigEndian.AppendUint16(h, uint16(len(headers[i+1])))
		h = append(h, headers[i+1]...)
	}
	m := binary.BigEndian.AppendUint32(nil, uint32(12+len(h)+len(payload)+4))
	m = binary.BigEndian.AppendUint32(m, uint32(len(h)))
	m = append(append(append(m, "crc."...), h...), payload...)
	return string(append(m, "crc."...))
}

func TestBedrockStreamsInAmazonsFraming(t *testing.T) {
	const kind = "application/vnd.amazon.eventstream"
	served := message(`{"contentBlockIndex":0,"delta":{"text":"Hi"}}`, ":event-type", "contentBlockDelta", ":content-type", "application/json") +
		message("") +
		message(`{"usage":{"inputTokens":30,"outputTokens":628,"totalTokens":658},"metrics":{"latencyMs":1}}`, ":event-type", "metadata")
	for name, cut := range cuts {
		out, _, _ := hear(t, "bedrock", kind, served, cut)
		if !out.Known || out.Cost != (bucket.Cost{Requests: 1, InputTokens: 30, OutputTokens: 628}) {
			t.Errorf("%s: %+v", name, out)
		}
		for exception, want := range map[string]retryafter.Class{"throttlingException": retryafter.RateLimited,
			"serviceUnavailableException": retryafter.Overloaded, "modelStreamErrorException": retryafter.ServerError, "validationException": retryafter.OK} {
			body := message(`{"message":"Too many requests"}`, ":exception-type", exception, ":message-type", "exception")
			body = strings.Repeat(message("{}", ":event-type", "contentBlockDelta"), 200) + body
			if out, _, _ := hear(t, "bedrock", kind, body, cut); out.Late.Class != want || out.Known {
				t.Errorf("%s: %s is %v", name, exception, out.Late.Class)
			}
		}
		for _, junk := range []string{"\x00\x00\x00\x00\x00\x00\x00\x00aaaaaaaaaaaaaa", strings.Repeat("\xff", 100), served[:40]} {
			if out, _, _ := hear(t, "bedrock", kind, junk, cut); out.Known {
				t.Errorf("%s: junk says %+v", name, out)
			}
		}
	}
}

// bodies are answers made of valid documents.
func bodies() *rapid.Generator[[2]string] {
	return rapid.Custom(func(t *rapid.T) [2]string {
		docs := []string{opening, hello, finished, overloaded, `{"usage":null}`, `{"type":"ping"}`,
			`{"choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}`,
			`{"choices":[{"delta":{"content":"usage error \"usage\":{} us rr"}}],"usage":null,"error":null}`,
			`{"candidates":[{"content":{"parts":[{"text":"x"}]}}],"usageMetadata":{"promptTokenCount":12,"totalTokenCount":12},"modelVersion":"g"}`,
			`{"usageMetadata": {"promptTokenCount": 14, "candidatesTokenCount": 3, "cachedContentTokenCount": 5, "d": [{"x":"}"}]}}`,
			`{"candidates":[{"args":{"usageMetadata":{"promptTokenCount":99}}}]}`,
			`{"response":{"usage":{"input_tokens":7,"output_tokens":8,"input_tokens_details":{"cached_tokens":2}}}}`,
			`{"error":{"code":"rate_limit_exceeded"}}`, `[DONE]`, `{"usage":{"prompt_tokens":-1,"completion_tokens":3}}`,
			`{"error":{"type":"rate_limit_error"},"usage":{"input_tokens":5}}`, strings.Repeat(`"`, 2) + strings.Repeat(" ", 70_000) + `{}`}
		end := rapid.SampledFrom([]string{"\n\n", "\r\n\r\n", "\r\r", "\n"}).Draw(t, "end")
		var b strings.Builder
		for _, doc := range rapid.SliceOfN(rapid.SampledFrom(docs), 0, 8).Draw(t, "documents") {
			b.WriteString(rapid.SampledFrom([]string{"data: ", "data:", "event: x" + end[:len(end)/2] + "data: "}).Draw(t, "field"))
			b.WriteString(doc)
			b.WriteString(end)
		}
		return [2]string{rapid.SampledFrom([]string{"openai", "anthropic", "gemini"}).Draw(t, "provider"), b.String()}
	})
}

func TestPropertyATapHearsTheSameHoweverReadsAreCut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := bodies().Draw(rt, "body")
		whole, usageOf, _ := hear(t, b[0], "text/event-stream", b[1], nil)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		cut := func(left int) int { return 1 + rng.IntN(min(left, 300)) }
		out, u, _ := hear(t, b[0], "text/event-stream", b[1], cut)
		u.ignored, usageOf.ignored = 0, 0 // a usage that another replaces may not be looked at
		if out.Known != whole.Known || out.Cost != whole.Cost || out.Late.Class != whole.Late.Class || u != usageOf {
			rt.Fatalf("cut: %+v %+v\nwhole: %+v %+v", out, u, whole, usageOf)
		}
	})
}

// A stream of a gigabyte would take no more than one of a few events.
func TestATapTakesLittleMemoryWhateverTheStream(t *testing.T) {
	long := "data: {\"response\":{\"output\":[\"" + strings.Repeat("usage error ", 100_000) + "\"],"
	end := `"usage":{"input_tokens":7,"output_tokens":8}}}` + "\n\n"
	for _, kind := range []string{"text/event-stream", "application/json", "application/x-ndjson"} {
		body := long + end
		if kind != "text/event-stream" {
			body = strings.TrimPrefix(body, "data: ")
		}
		var e Estimator
		tp := newTap(t, &e, "openai", estimated)
		tp.Answered(answer(200, kind))
		data := []byte(body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := 0; i < len(data); i += 1000 {
			tp.Heard(data[i:min(i+1000, len(data))])
		}
		out := tp.End(io.EOF)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<10 {
			t.Errorf("%s: %d bytes", kind, used)
		}
		if !out.Known || out.Cost.InputTokens != 7 {
			t.Errorf("%s: %+v", kind, out)
		}
	}
}

func TestHearingAStreamDoesNotAllocate(t *testing.T) {
	for provider, make := range streams {
		var e Estimator
		tp := newTap(t, &e, provider, estimated)
		tp.Answered(answer(200, "text/event-stream"))
		var pieces [][]byte
		for _, event := range make(50) {
			pieces = append(pieces, []byte(event))
		}
		if n := testing.AllocsPerRun(10, func() {
			for _, p := range pieces {
				tp.Heard(p)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", provider, n)
		}
	}
}

func TestMentionFindsWhatASlowSearchFinds(t *testing.T) {
	words := []string{"usage", "error", `usage":null`, `error":null`, "us", "rr", "u", "s", "r", "e", "\xf2\x75\x73", "terror", "x", "usa", "\"", "\x00\xff"}
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOf(rapid.SampledFrom(words)).Draw(t, "words"), "")
		want := -1
		for i := range s {
			for _, w := range []string{"usage", "error"} {
				if rest, ok := strings.CutPrefix(s[i:], w); ok && !strings.HasPrefix(rest, `":null`) && want < 0 {
					want = i
				}
			}
		}
		if got := mention([]byte(s)); got != want {
			t.Fatalf("%d in %q, want %d", got, s, want)
		}
	})
}

func TestEstimatesLearnFromUsage(t *testing.T) {
	call := func(e *Estimator, model string, body, usage string, err error) {
		charge, _ := e.Charge(post(t, "openai", "/v1/chat/completions", fmt.Sprintf(`{"model":%q,%s}`, model, body)))
		charge.Tap.Answered(answer(200, "application/json"))
		charge.Tap.Heard([]byte(usage))
		charge.Tap.End(err)
	}
	cost := func(e *Estimator, model, body string) bucket.Cost {
		c, _ := e.Cost(post(t, "openai", "/v1/chat/completions", fmt.Sprintf(`{"model":%q,%s}`, model, body)))
		return c
	}
	text := `"messages":[{"role":"user","content":"` + strings.Repeat("some text ", 350) + `"}]` // 1,000 tokens and 14
	usage := func(in, out int) string {
		return fmt.Sprintf(`{"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, in, out)
	}
	t.Run("towards what was charged, from above", func(t *testing.T) {
		e, _ := New(Config{})
		for i := range 50 {
			call(e, "m", text, usage(690+i%3*10, 100), io.EOF) // 690 to 710
		}
		if got := cost(e, "m", text).InputTokens; got < 700 || got > 720 {
			t.Errorf("%d, want about 700 and not less", got)
		}
		if got := cost(e, "other", text).InputTokens; got != 1014 {
			t.Errorf("%d for another model, want 1014", got)
		}
	})
	t.Run("the more they differ, the higher above", func(t *testing.T) {
		e, _ := New(Config{})
		for i := range 100 {
			call(e, "m", text, usage(600+i%2*200, 100), io.EOF)
		}
		if got := cost(e, "m", text).InputTokens; got < 770 || got > 830 {
			t.Errorf("%d, want about 800: the higher of the two", got)
		}
	})
	t.Run("one call proves little", func(t *testing.T) {
		e, _ := New(Config{})
		call(e, "m", text, usage(507, 100), io.EOF)
		if got := cost(e, "m", text).InputTokens; got < 900 || got >= 1014 {
			t.Errorf("%d", got)
		}
	})
	t.Run("within bounds", func(t *testing.T) {
		for _, in := range []int{1, 1_000_000} {
			e, _ := New(Config{})
			for range 50 {
				call(e, "m", text, usage(in, 100), io.EOF)
			}
			if got := cost(e, "m", text).InputTokens; got < 1014/4 || got > 1014*4+1 {
				t.Errorf("%d after %d", got, in)
			}
		}
	})
	t.Run("the output of most calls, for each choice", func(t *testing.T) {
		e, _ := New(Config{})
		for i := range 100 {
			out := 200
			if i%50 == 0 {
				out = 5000
			}
			call(e, "m", `"n":2,`+text, usage(700, 2*out), io.EOF)
		}
		if got := cost(e, "m", text).OutputTokens; got < 200 || got > 230 {
			t.Errorf("%d, want about 200 and not less", got)
		}
		if got := cost(e, "m", `"max_tokens":4000,`+text).OutputTokens; got != 4000 {
			t.Errorf("%d with a cap of 4000", got)
		}
	})
	t.Run("not from calls that broke off, failed, or had pictures", func(t *testing.T) {
		e, _ := New(Config{})
		for range 20 {
			call(e, "m", text, usage(100, 1), errors.New("reset"))
			call(e, "m", text, `{"error":{"code":"rate_limit_exceeded"},"usage":{"prompt_tokens":1}}`, io.EOF)
			call(e, "m", `"messages":[{"content":[{"image_url":"x"}]}]`, usage(9, 5000), io.EOF)
		}
		if got := cost(e, "m", text).InputTokens; got != 1014 {
			t.Errorf("%d", got)
		}
	})
	t.Run("off by option", func(t *testing.T) {
		e, _ := New(Config{NoCorrection: true, NoOutputHistory: true})
		for range 20 {
			call(e, "m", text, usage(500, 5), io.EOF)
		}
		if got := cost(e, "m", text); got != (bucket.Cost{Requests: 1, InputTokens: 1014, OutputTokens: 1024}) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("of a bounded number of models", func(t *testing.T) {
		e, _ := New(Config{})
		for i := range 3 * maxModels {
			call(e, fmt.Sprint("m", i), `"messages":[]`, usage(10, 10), io.EOF)
		}
		if n := len(e.memory.models); n > maxModels {
			t.Errorf("%d models", n)
		}
	})
}

func TestExpectedOutputIsBoundedWhateverAnswersState(t *testing.T) {
	for _, tc := range []struct {
		name, cap string
		stated    int64
		most      int64
	}{
		{"more than any call has", ``, 1_000_000_000_000, 1024},
		{"more than most models write", ``, maxTokens, maxOutput + maxOutput/8},
		{"more than was allowed", `"max_tokens":300,`, 100_000, 330},
	} {
		e, _ := New(Config{})
		for range 20 {
			charge, _ := e.Charge(post(t, "openai", "/v1/chat/completions", `{"model":"m",`+tc.cap+`"messages":[]}`))
			charge.Tap.Answered(answer(200, "application/json"))
			charge.Tap.Heard(fmt.Appendf(nil, `{"usage":{"prompt_tokens":10,"completion_tokens":%d}}`, tc.stated))
			charge.Tap.End(io.EOF)
		}
		if cost, _ := e.Cost(post(t, "openai", "/v1/chat/completions", `{"model":"m","messages":[]}`)); cost.OutputTokens > tc.most {
			t.Errorf("%s: %d, want no more than %d", tc.name, cost.OutputTokens, tc.most)
		}
	}
}

func TestARedirectedCallIsPaidForOnce(t *testing.T) {
	for _, status := range []int{301, 307, 308} {
		tp := newTap(t, &Estimator{}, "openai", estimated)
		if !tp.Answered(answer(status, "text/html")) {
			t.Errorf("%d: nothing is to be said of it", status)
		}
		tp.Heard([]byte("<html>"))
		if out := tp.End(nil); !out.Known || out.Cost != (bucket.Cost{Requests: 1}) {
			t.Errorf("%d: %+v", status, out)
		}
	}
}

func TestAnErrorBehindLinesThatEndInCarriageReturnsIsTold(t *testing.T) {
	stream := "data: {\"usage\":{\"input_tokens\":1}}\r\rdata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\r\r"
	for _, end := range []string{"", "\n"} {
		for name, cut := range cuts {
			if out, _, _ := hear(t, "anthropic", "text/event-stream", stream+end, cut); out.Late.Class != retryafter.Overloaded {
				t.Errorf("%s, ending in %q: %+v", name, end, out)
			}
		}
	}
}

func TestOutputBucketsHoldWhatTheySay(t *testing.T) {
	last := -1
	for tokens := int64(0); tokens < 1<<20; tokens++ {
		b := outputBucket(tokens)
		if b != last && b != last+1 || outputBound(b) < tokens || b > 8 && outputBound(b-1) >= tokens {
			t.Fatalf("%d falls into %d, which ends at %d", tokens, b, outputBound(b))
		}
		last = b
	}
	if b := outputBucket(1 << 62); b != outputBuckets-1 {
		t.Error(b)
	}
}

func FuzzTap(f *testing.F) {
	for _, v := range loadUsage(f) {
		f.Add([]byte(v.Body), uint8(5), v.Stream)
	}
	f.Add([]byte("data: "+overloaded+"\n\n"), uint8(1), true)
	f.Add([]byte("data: {\"usageMetadata\":{\"promptTokenCount\":1}}\n\ndata: {\"usageMetadata\":{}}}\n\n"), uint8(1), true)
	f.Add([]byte(message(`{"usage":{"inputTokens":30}}`, ":exception-type", "x")), uint8(3), false)
	f.Fuzz(func(t *testing.T, body []byte, size uint8, stream bool) {
		for _, kind := range []string{contentType(stream), "application/vnd.amazon.eventstream", "application/x-ndjson"} {
			out, u, _ := hear(t, "anthropic", kind, string(body), func(int) int { return int(size) })
			if c := out.Cost; c.InputTokens < 0 || c.OutputTokens < 0 || out.Known && c.Requests != 1 {
				t.Errorf("%+v", out)
			}
			for _, v := range u.figures {
				if v < -1 || v > maxFigure {
					t.Errorf("%+v", u)
				}
			}
			if kind != "application/json" {
				continue
			}
			if whole, all, _ := hear(t, "anthropic", kind, string(body), nil); u != all || whole.Cost != out.Cost || whole.Late.Class != out.Late.Class {
				t.Errorf("cut: %+v, whole: %+v", u, all)
			}
		}
	})
}
