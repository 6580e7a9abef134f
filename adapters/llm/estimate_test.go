package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

func TestHostileRequestsFallBackAndAreCounted(t *testing.T) {
	const text = `"messages":[{"role":"user","content":"0123456789012345678901234567890123456789"}]`
	// Of the text: 40 bytes over 3.5, 4 for the message, 10 for the call.
	const input = 26
	for _, tc := range []struct {
		name    string
		body    string
		input   int64
		output  int64
		ignored uint64
	}{
		{"honest", `{"max_tokens":50,"n":2,` + text + `}`, input, 100, 0},
		{"n of 1e12", `{"max_tokens":50,"n":1000000000000,` + text + `}`, input, 50, 1},
		{"n of 1e12 in its short form", `{"max_tokens":50,"n":1e12,` + text + `}`, input, 50, 1},
		{"n of 1e999", `{"max_tokens":50,"n":1e999,` + text + `}`, input, 50, 1},
		{"n of zero", `{"max_tokens":50,"n":0,` + text + `}`, input, 50, 1},
		{"negative cap", `{"max_tokens":-5,` + text + `}`, input, 1024, 1},
		{"huge cap", `{"max_tokens":99999999999999999999999,` + text + `}`, input, 1024, 1},
		{"numbers as strings", `{"max_tokens":"50","n":"3",` + text + `}`, input, 1024, 2},
		{"numbers as objects and lists", `{"max_tokens":{"a":1},"n":[3],` + text + `}`, input, 1024, 2},
		{"NaN", `{"max_tokens":NaN,"temperature":Infinity,` + text + `}`, input, 1024, 1},
		{"null", `{"max_tokens":null,"n":null,` + text + `}`, input, 1024, 0},
		{"fraction", `{"max_tokens":50.0,` + text + `}`, input, 50, 0},
		{"two caps: the higher", `{"max_tokens":50,"max_completion_tokens":70,` + text + `}`, input, 70, 0},
		{"model is no string", `{"model":7,"max_tokens":50,` + text + `}`, input, 50, 1},
		{"cut off", `{"max_tokens":50,` + text, 24, 50, 1},
		{"no JSON", strings.Repeat("x", 400), 100, 0, 1},
		{"not a shape of anybody's", `{"a":"` + strings.Repeat("x", 392) + `"}`, 100, 0, 0},
		{"a list", `[1,2,3,4]`, 2, 0, 1},
		{"empty object", `{}`, 0, 0, 0},
		{"depth 10,000 in the text", `{"messages":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, 20013 / 4, 1024, 1},
		{"depth 10,000 in a schema", `{"messages":[],"tools":` + strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000) + `}`, 60025 / 4, 1024, 1},
		{"too deep, behind the cap", `{"max_tokens":4000,"messages":[],"metadata":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, 444 / 4, 4000, 1},
		{"depth 10,000 where nobody looks", `{"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `,` + text + `}`, 20089 / 4, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := New(Config{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Cost(post(t, "openai", "/v1/chat/completions", tc.body))
			want := bucket.Cost{Requests: 1, InputTokens: tc.input, OutputTokens: tc.output}
			if got != want || err != nil || e.Ignored() != tc.ignored {
				t.Errorf("%+v, %v, %d ignored; want %+v, %d ignored", got, err, e.Ignored(), want, tc.ignored)
			}
		})
	}
}

func TestOfABodyOfUnknownShapeABoundedPrefixIsCharged(t *testing.T) {
	read := &endless{}
	req := post(t, "openai", "/v1/x", "x")
	req.GetBody = func() (io.ReadCloser, error) { return read, nil }
	req.ContentLength = -1
	cost, _ := Cost(req)
	if cost.InputTokens != maxUnknown/4 || read.n > maxUnknown+windowSize || !read.closed {
		t.Errorf("%+v of an endless body, %d bytes read, closed %v", cost, read.n, read.closed)
	}
	*read = endless{}
	req.ContentLength = 1 << 50
	cost, _ = Cost(req)
	if cost.InputTokens != maxUnknown/4 || read.n > windowSize || !read.closed {
		t.Errorf("%+v of an enormous body, %d bytes read, closed %v", cost, read.n, read.closed)
	}
}

type endless struct {
	n      int
	closed bool
}

func (r *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	r.n += len(p)
	return len(p), nil
}

func (r *endless) Close() error { r.closed = true; return nil }

func TestABodyIsNeverReadWithoutGetBody(t *testing.T) {
	req := post(t, "openai", "/v1/chat/completions", `{"messages":[{"content":"hello"}]}`)
	req.GetBody = nil
	cost, err := Cost(req)
	if err != nil || cost.InputTokens != req.ContentLength/4 {
		t.Errorf("%+v, %v", cost, err)
	}
	if rest, _ := io.ReadAll(req.Body); int64(len(rest)) != req.ContentLength {
		t.Error("the body was read")
	}
	req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
	if cost, err := Cost(req); err != nil || cost.InputTokens != req.ContentLength/4 {
		t.Errorf("%+v, %v", cost, err)
	}
}

func TestABodyThatCannotBeReadToItsEndIsChargedForTheRestBySize(t *testing.T) {
	for _, tc := range []struct {
		name, seen string
		want       int64
	}{
		{"within text", `{"messages":[{"content":"` + strings.Repeat("x y ", 100), 2628}, // 400/3.5 + 4 + 10 + 10,000/4
		{"within a picture", `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:`, 14 + 1500},
	} {
		req := post(t, "openai", "/v1/chat/completions", "x")
		req.ContentLength = int64(len(tc.seen)) + 10_000
		req.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(tc.seen), iotest.ErrReader(errors.New("no more is kept")))), nil
		}
		if cost, _ := Cost(req); cost.InputTokens < tc.want || cost.InputTokens > tc.want+1 {
			t.Errorf("%s: %d, want %d", tc.name, cost.InputTokens, tc.want)
		}
	}
}

func TestWhatCallsCostWithoutAChat(t *testing.T) {
	for _, tc := range []struct {
		name, path, kind, body string
		want                   bucket.Cost
	}{
		{"embedding of token ids", "/v1/embeddings", "application/json", `{"input":[[1,2,3],[4,5]],"model":"m"}`, bucket.Cost{Requests: 1, InputTokens: 15}},
		{"embedding below a deployment", "/openai/deployments/e/embeddings", "application/json", `{"input":[1,2]}`, bucket.Cost{Requests: 1, InputTokens: 12}},
		{"Gemini's embedding", "/v1beta/models/m:batchEmbedContents", "application/json", `{"requests":[]}`, bucket.Cost{Requests: 1, InputTokens: 10}},
		{"a chat below a path with embed in it", "/embedded/v1/chat/completions", "application/json", `{"messages":[],"max_tokens":40}`, bucket.Cost{Requests: 1, InputTokens: 10, OutputTokens: 40}},
		{"counting tokens", "/v1/messages/count_tokens", "application/json", `{"messages":[{"content":"hello"}]}`, bucket.Cost{Requests: 1}},
		{"a file in a form", "/v1/audio/transcriptions", "multipart/form-data; boundary=x", "--x", bucket.Cost{Requests: 1, InputTokens: 3010}},
	} {
		req := post(t, "openai", tc.path, tc.body)
		req.Header.Set("Content-Type", tc.kind)
		if got, _ := Cost(req); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	get, _ := http.NewRequest("GET", "https://api.openai.com/v1/models", nil)
	if got, _ := Cost(get); got != (bucket.Cost{Requests: 1}) {
		t.Errorf("without a body: %+v", got)
	}
}

func TestTextIsWhereTheProvidersHaveIt(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		bytes      int64
		messages   int64
		media      int64
		exact      bool
	}{
		{"escapes", `{"prompt":"a\n\"b\"\\ \u00e9\u4e2d\ud83d\ude00\/"}`, 1 + 1 + 3 + 1 + 1 + 2 + 3 + 4 + 1, 0, 0, true},
		{"tool result with blocks", `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"abc","content":[{"type":"text","text":"12345"}]}]}]}`, 5, 1, 0, true},
		{"tool use", `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"abc","name":"f","input":{"a":[1,true,"x"]}}]}]}`, 1 + 18, 1, 0, false},
		{"tools", `{"messages":[],"tools":[{"name":"f","description":"does","input_schema":{"type":"object"}}]}`, 68, 0, 0, false},
		{"responses items", `{"input":[{"type":"function_call_output","call_id":"c","output":"12345"},{"type":"message","role":"user","content":[{"type":"input_text","text":"678"}]}],"instructions":"90"}`, 10, 2, 0, true},
		{"responses schema", `{"input":"","text":{"format":{"type":"json_schema"}}}`, 33, 0, 0, false},
		{"a picture by reference", `{"input":[{"content":[{"type":"input_image","image_url":null,"file_id":"file-1"}]}]}`, 0, 1, 1, true},
		{"a document as text", `{"messages":[{"content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"12345"},"title":"67"}]}]}`, 7, 1, 0, true},
		{"a document of blocks", `{"messages":[{"content":[{"type":"document","source":{"type":"content","content":[{"type":"text","text":"12345"},{"type":"image","source":{"type":"url","url":"https://x"}}]}}]}]}`, 5, 1, 1, true},
		{"gemini function response", `{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{"a":1}}},{"fileData":{"mimeType":"application/pdf","fileUri":"gs://x"}}]}],"tools":[]}`, 1 + 8 + 2, 1, 1, false},
		{"bedrock document and tool result", `{"messages":[{"content":[{"document":{"format":"txt","name":"n","source":{"text":"12345"}}},{"toolResult":{"toolUseId":"t","content":[{"json":{"a":1}},{"text":"678"}]}}]}],"system":[{"text":"90"}]}`, 11 + 8, 1, 0, false},
		{"sound", `{"contents":[{"parts":[{"inline_data":{"mime_type":"audio/wav","data":"AAAA"}}]}]}`, 0, 1, 1, true},
		{"gemini batch of embeddings", `{"requests":[{"model":"m","content":{"parts":[{"text":"12"}]}},{"content":{"parts":[{"text":"34"}]}}]}`, 4, 0, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := look{scanner: scanner{window: make([]byte, windowSize)}}
			if !l.open(post(t, "openai", "/v1/x", tc.body)) || !l.known {
				t.Fatal("not understood")
			}
			if off := l.text.bytes - tc.bytes; off != 0 && tc.exact || off < 0 || off > 10 {
				t.Errorf("%d bytes, want %d", l.text.bytes, tc.bytes)
			}
			if media := l.images + l.audios + l.files; l.messages != tc.messages || media != tc.media {
				t.Errorf("%d messages, %d media; want %d, %d", l.messages, media, tc.messages, tc.media)
			}
		})
	}
}

func TestLongRunsOfBase64AndHexHaveTheirOwnRatio(t *testing.T) {
	run := strings.Repeat("iVBORw0KGgoAAAANSUhEUg", 10)
	for _, tc := range []struct {
		name, text string
		dense      int64
	}{
		{"prose", prose, 0},
		{"base64", "see " + run + " there", 220},
		{"at the end", run, 220},
		{"short", run[:47] + " " + run[:47], 0},
		{"just long enough", run[:48] + "." + run[:20], 48},
		{"in lines", run[:76] + "\n" + run[:76], 152},
		{"hex", strings.Repeat("deadbeef00", 10), 100},
		{"a ruled line", strings.Repeat("-", 80) + strings.Repeat("=", 80), 0},
		{"slashes", strings.Repeat("abc/12", 10), 60},
		{"three", run + " " + run + "," + run, 660},
	} {
		if escaped := ascii(tc.text); tc.name == "slashes" {
			l := look{scanner: scanner{window: make([]byte, windowSize)}}
			if l.open(post(t, "openai", "/", `{"prompt":`+string(escaped)+`}`)); l.text.dense != tc.dense {
				t.Errorf("%s, escaped: %d", tc.name, l.text.dense)
			}
		}
		for _, window := range []int{7, 16, 61, windowSize} {
			body, _ := json.Marshal(map[string]string{"prompt": tc.text})
			l := look{scanner: scanner{window: make([]byte, window)}}
			if !l.open(post(t, "openai", "/", string(body))) || l.text.bytes != int64(len(tc.text)) || l.text.dense != tc.dense {
				t.Errorf("%s, window %d: %d of %d bytes, want %d of %d", tc.name, window, l.text.dense, l.text.bytes, tc.dense, len(tc.text))
			}
		}
	}
}

// The estimate of a text is that of its bytes, whatever is in it, however it is
// written as JSON, and wherever the window cuts it.
func TestPropertyTextIsMeasuredInBytesOfUTF8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.ToValidUTF8(rapid.String().Draw(t, "text")+rapid.StringMatching(`[A-Za-z0-9+/]{0,100}[\\"/\n]*`).Draw(t, "more"), "?")
		quoted, _ := json.Marshal(s)
		if rapid.Bool().Draw(t, "ascii") {
			quoted = ascii(s)
		}
		l := look{scanner: scanner{window: make([]byte, rapid.IntRange(2, 64).Draw(t, "window"))}}
		l.r = iotest.OneByteReader(strings.NewReader(`{"prompt":` + string(quoted) + `}`))
		if rapid.Bool().Draw(t, "whole") {
			l.r = strings.NewReader(`{"prompt":` + string(quoted) + `}`)
		}
		l.request()
		if l.broken || l.text.bytes != int64(len(s)) {
			t.Fatalf("%d bytes (broken %v), want %d", l.text.bytes, l.broken, len(s))
		}
		if want := denseOf(s); l.text.dense != want {
			t.Fatalf("%d dense bytes, want %d", l.text.dense, want)
		}
	})
}

// ascii quotes s with an escape for everything else.
func ascii(s string) []byte {
	out := []byte{'"'}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\' || r == '/':
			out = append(out, '\\', byte(r))
		case r < 0x20 || r > 0x7e:
			quoted := fmt.Sprintf(`\u%04x`, r)
			if r > 0xffff {
				r -= 0x10000
				quoted = fmt.Sprintf(`\u%04X\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			}
			out = append(out, quoted...)
		default:
			out = append(out, byte(r))
		}
	}
	return append(out, '"')
}

// denseOf is the plain way to count what is in long runs.
func denseOf(s string) (n int64) {
	run, digit := 0, false
	for i := 0; i <= len(s); i++ {
		if i < len(s) && inRun[s[i]] {
			run++
			digit = digit || s[i]-'0' <= 9
			continue
		}
		if run >= denseRun && digit {
			n += int64(run)
		}
		run, digit = 0, false
	}
	return n
}

func TestPropertyAnEstimateIsNeverNegativeNorBeyondItsBounds(t *testing.T) {
	var value *rapid.Generator[any]
	keys := rapid.SampledFrom([]string{"model", "messages", "content", "text", "max_tokens", "n", "input", "source", "data", "type",
		"tools", "inlineData", "image_url", "generationConfig", "maxOutputTokens", "candidateCount", "requests", "system", "x"})
	value = rapid.OneOf(
		rapid.Just[any](nil), rapid.Float64Range(-1e300, 1e300).AsAny(), rapid.Int64().AsAny(), rapid.String().AsAny(), rapid.Bool().AsAny(),
		rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return value }), 0, 4).AsAny(),
		rapid.MapOfN(keys, rapid.Deferred(func() *rapid.Generator[any] { return value }), 0, 5).AsAny(),
	)
	e, _ := New(Config{})
	rapid.Check(t, func(t *rapid.T) {
		body, err := json.Marshal(rapid.MapOfN(keys, value, 0, 8).Draw(t, "request"))
		if err != nil {
			t.Fatal(err) // all that is drawn has a JSON form
		}
		provider := rapid.SampledFrom([]string{"openai", "anthropic", "gemini"}).Draw(t, "provider")
		req, _ := http.NewRequest("POST", "https://"+hosts[provider]+"/v1/x", strings.NewReader(string(body)))
		checkCost(t, e, req)
	})
}

func checkCost(t interface{ Fatalf(string, ...any) }, e *Estimator, req *http.Request) {
	c, err := e.Cost(req)
	if err != nil || c.Requests != 1 || c.InputTokens < 0 || c.InputTokens > maxTokens || c.OutputTokens < 0 || c.OutputTokens > maxTokens {
		t.Fatalf("%+v, %v", c, err)
	}
}

// A body of 20 MB costs no more memory than one of 2 KB.
func TestAnEstimateTakesLittleMemoryWhateverTheBody(t *testing.T) {
	for _, size := range []int{2 << 10, 20 << 20} {
		body := `{"messages":[{"content":"` + strings.Repeat("x \\n", size/4) + `"}]}`
		reads := 0
		req := post(t, "openai", "/v1/chat/completions", body)
		get := req.GetBody
		req.GetBody = func() (io.ReadCloser, error) { reads++; return get() }
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		cost, _ := Cost(req)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<10 {
			t.Errorf("%d bytes for a body of %d", used, size)
		}
		if want := float64(size) * 3 / 4 / 3.5; float64(cost.InputTokens) < want || float64(cost.InputTokens) > want+20 {
			t.Errorf("%d tokens, want %v", cost.InputTokens, want)
		}
		if reads != 1 {
			t.Errorf("the body was opened %d times", reads)
		}
	}
}

func TestAnEstimateAllocatesLessThanTenTimes(t *testing.T) {
	e, _ := New(Config{})
	req := post(t, "openai", "/v1/chat/completions", chat(100<<10))
	if n := testing.AllocsPerRun(20, func() { e.Charge(req) }); n >= 10 {
		t.Errorf("%v allocations", n)
	}
}

func TestKeyNamesOriginCredentialAndModel(t *testing.T) {
	const chat = `{"messages":[{"role":"user","content":"model"}],"model":"gpt-4o"}`
	for _, tc := range []struct{ name, url, auth, body, want string }{
		{"openai", "https://API.openai.com/v1/chat/completions", "", chat, "https://api.openai.com:443 gpt-4o"},
		{"escaped", "https://api.together.xyz/v1/x", "", `{"model":"meta-llama\/Llama"}`, "https://api.together.xyz:443 meta-llama/Llama"},
		{"gemini", "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent", "", `{"model":"no"}`, "https://generativelanguage.googleapis.com:443 gemini-2.5-flash"},
		{"bedrock", "https://bedrock-runtime.us-east-1.amazonaws.com/model/anthropic.claude-3%3A0/converse", "", `{}`, "https://bedrock-runtime.us-east-1.amazonaws.com:443 anthropic.claude-3:0"},
		{"azure", "https://x.openai.azure.com/openai/deployments/d1/chat/completions?api-version=1", "", chat, "https://x.openai.azure.com:443 d1"},
		{"nested model is not it", "https://a/v1", "", `{"metadata":{"model":"no"},"x":[{"model":"no"}]}`, "https://a:443"},
		{"no body", "https://a/v1", "", "", "https://a:443"},
	} {
		req, _ := http.NewRequest("POST", tc.url, strings.NewReader(tc.body))
		if got := Key(req); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		var e Estimator
		if c, _ := e.Charge(req); c.Key != tc.want {
			t.Errorf("%s: charged to %q, want %q", tc.name, c.Key, tc.want)
		}
	}
	for _, set := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("Authorization", "Bearer s3cret") },
		func(r *http.Request) { r.Header.Set("X-Goog-Api-Key", "s3cret") },
		func(r *http.Request) { r.URL.RawQuery = "alt=sse&key=s3cret" },
	} {
		req, _ := http.NewRequest("POST", "https://a/v1", strings.NewReader(`{"model":"m"}`))
		set(req)
		key := Key(req)
		if !strings.HasPrefix(key, "https://a:443#") || !strings.HasSuffix(key, " m") || strings.Contains(key, "s3cret") {
			t.Errorf("with a credential: %q", key)
		}
	}
}

func TestEachBedrockProfileIsAModelOfItsOwn(t *testing.T) {
	const arn = "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2F"
	for escaped, want := range map[string]string{
		arn + "us.anthropic.claude-sonnet-4": "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4",
		arn + "us.amazon.nova-micro":         "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-micro",
		arn + strings.Repeat("x", 200):       "arn:aws:bedrock:us-east-1:123456789012:inference-profile/" + strings.Repeat("x", 200),
		"anthropic.claude-v2%3A1":            "anthropic.claude-v2:1",
	} {
		req := post(t, "bedrock", "/model/"+escaped+"/converse", `{"messages":[]}`)
		e, _ := New(Config{})
		charge, _ := e.Charge(req)
		if key := Key(req); !strings.HasSuffix(key, " "+want) || charge.Key != key {
			t.Errorf("%q and %q, want %q", key, charge.Key, want)
		}
	}
}

func TestConfigIsValidated(t *testing.T) {
	for name, c := range map[string]Config{
		"BytesPerToken": {BytesPerToken: -1}, "DenseBytesPerToken": {DenseBytesPerToken: math.NaN()}, "Image": {Image: 1 << 40},
		`Counting["x"]`: {Counting: map[string]Counting{"x": {OutputWeight: -1}}}, `Counting["y"]`: {Counting: map[string]Counting{"y": {Output: 9}}},
	} {
		if _, err := New(c); err == nil || !strings.HasPrefix(err.Error(), "llm: Config."+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{}); err != nil {
		t.Error(err)
	}
}

func TestACountingForAProviderThatNobodyKnowsIsNamed(t *testing.T) {
	err := Config{Counting: map[string]Counting{"openai": {}, "open-ai": {}}}.Validate()
	if err == nil || !strings.HasPrefix(err.Error(), `llm: Config.Counting["open-ai"]: `) {
		t.Error(err)
	}
	own := Config{Counting: map[string]Counting{"generic": {}, "openai": {}, "ours": {}}}
	own.Reader.Providers = []retryafter.Provider{{Name: "ours", Hosts: []string{"llm.corp.example"}}}
	if err := own.Validate(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"anthropic", "azure-openai", "cerebras", "gemini", "vertex", "groq"} { // those with defaults
		if !(Config{}).knows(name) {
			t.Errorf("%s is not known", name)
		}
	}
}

// What Ignored's documentation says of bodies.
func TestABodyThatIsNoJSONIsIgnoredAsOne(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		length     int64 // as req.ContentLength has it
		ignored    uint64
		input      int64
	}{
		{"no JSON", "hello, world", 12, 1, 3},
		{"JSON of an unknown shape", `{"hello":[1]}`, 13, 0, 3},
		{"nothing, of unknown length", "", 0, 0, 0},
		{"nothing, in chunks", "", -1, 0, 0},
	} {
		e, _ := New(Config{})
		req := post(t, "openai", "/v1/chat/completions", tc.body)
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(tc.body)), tc.length
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(tc.body)), nil }
		if cost, _ := e.Cost(req); cost.InputTokens != tc.input || e.Ignored() != tc.ignored {
			t.Errorf("%s: %+v, %d ignored", tc.name, cost, e.Ignored())
		}
	}
}

func FuzzEstimate(f *testing.F) {
	var vectors []requestVector
	load(f, "requests.json", &vectors)
	for _, v := range vectors {
		f.Add([]byte(v.Body), uint8(3))
	}
	for _, s := range []string{"", "{", `{"a`, `{"messages":"\`, `{"prompt":"\u12`, `{"n":1e12,"max_tokens":-1}`, "[[[[", `{"messages":[{"content":[{"source":{"data":"`} {
		f.Add([]byte(s), uint8(0))
	}
	f.Fuzz(func(t *testing.T, body []byte, window uint8) {
		var seen [2]look
		for i := range seen { // wherever the window cuts
			l := &seen[i]
			l.window = make([]byte, []int{2 + int(window), windowSize}[i])
			l.r = strings.NewReader(string(body))
			l.request()
		}
		if a, b := seen[0].sight, seen[1].sight; !seen[0].broken && a != b || seen[0].broken != seen[1].broken {
			t.Errorf("%+v is not %+v", a, b)
		}
		e, _ := New(Config{})
		checkCost(t, e, post(t, "openai", "/v1/x", string(body)))
		if json.Valid(body) && len(body) > 0 && body[0] == '{' && seen[1].broken && strings.Count(string(body), "[")+strings.Count(string(body), "{") < maxDepth {
			t.Error("what is JSON is taken for broken")
		}
	})
}
