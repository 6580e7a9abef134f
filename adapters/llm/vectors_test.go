package llm

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// hosts are where the providers of the vectors are.
var hosts = map[string]string{
	"openai": "api.openai.com", "anthropic": "api.anthropic.com", "gemini": "generativelanguage.googleapis.com",
	"bedrock": "bedrock-runtime.us-east-1.amazonaws.com", "deepseek": "api.deepseek.com", "cohere": "api.cohere.com",
	"mistral": "api.mistral.ai", "azure-openai": "x.openai.azure.com", "groq": "api.groq.com",
	"openrouter": "openrouter.ai", "": "llm.corp.example",
}

func load(t testing.TB, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func post(t testing.TB, provider, path, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequest("POST", "https://"+hosts[provider]+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

type requestVector struct {
	ID, Provider, Path, Body string
	Expect                   struct {
		TextBytes       int64  `json:"text_bytes"`
		Images          int64  `json:"images"`
		MaxOutputTokens *int64 `json:"max_output_tokens"`
		N               int64  `json:"n"`
	}
}

func TestVectorsOfRequests(t *testing.T) {
	var vectors []requestVector
	load(t, "requests.json", &vectors)
	if len(vectors) != 6 {
		t.Fatalf("%d vectors, want 6", len(vectors))
	}
	for _, v := range vectors {
		t.Run(v.ID, func(t *testing.T) {
			req := post(t, v.Provider, v.Path, v.Body)
			l := look{scanner: scanner{window: make([]byte, windowSize)}}
			if !l.open(req) || !l.known {
				t.Fatal("not understood")
			}
			if l.text.bytes != v.Expect.TextBytes || l.images != v.Expect.Images || l.choices != v.Expect.N || l.ignored != 0 {
				t.Errorf("%d bytes, %d images, %d choices, %d ignored; want %+v", l.text.bytes, l.images, l.choices, l.ignored, v.Expect)
			}
			limit, output := int64(-1), int64(1024)
			if v.Expect.MaxOutputTokens != nil {
				limit = *v.Expect.MaxOutputTokens
				output = limit
			}
			if strings.Contains(v.Path, "embeddings") {
				limit = -1 // none is written: the answer has no output
			}
			if l.cap != limit {
				t.Errorf("cap %d, want %d", l.cap, limit)
			}
			cost, err := Cost(req)
			if v.Provider == "gemini" {
				output = 0 // does not count
			}
			low := float64(l.text.bytes)/3.5 + 1500*float64(l.images)
			if err != nil || cost.Requests != 1 || cost.OutputTokens != output*v.Expect.N ||
				float64(cost.InputTokens) < low || float64(cost.InputTokens) > low+30 {
				t.Errorf("cost %+v, %v; want %v and some of input, %d of output", cost, err, low, output*v.Expect.N)
			}
		})
	}
}

type usageVector struct {
	ID, Provider, Body string
	Stream             bool
	Uncertain          bool
	Expect             struct {
		Input     int64  `json:"input_tokens"`
		Cached    int64  `json:"cached_input_tokens"`
		Written   int64  `json:"cache_write_tokens"`
		Output    int64  `json:"output_tokens"`
		Reasoning *int64 `json:"reasoning_tokens"`
		Total     int64  `json:"total_tokens"`
		Counted   int64  `json:"rate_counted_input_tokens"`
	}
}

func loadUsage(t testing.TB) []usageVector {
	var vectors []usageVector
	load(t, "usage.json", &vectors)
	if len(vectors) != 10 {
		t.Fatalf("%d vectors, want 10", len(vectors))
	}
	return vectors
}

// newTap returns the tap of a call at a provider that was estimated at cost.
func newTap(t testing.TB, e *Estimator, provider string, cost bucket.Cost) *tap {
	t.Helper()
	charge, err := e.Charge(post(t, provider, "/v1/chat", `{"model":"m","messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	tp := charge.Tap.(*tap)
	tp.call.estimate = cost
	return tp
}

func answer(status int, contentType string, header ...string) *http.Response {
	h := http.Header{}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h}
}

func contentType(stream bool) string {
	if stream {
		return "text/event-stream"
	}
	return "application/json"
}

func TestVectorsOfUsage(t *testing.T) {
	for _, v := range loadUsage(t) {
		t.Run(v.ID, func(t *testing.T) {
			var e Estimator
			tp := newTap(t, &e, v.Provider, bucket.Cost{Requests: 1, InputTokens: 7, OutputTokens: 1 << 20})
			if !tp.Answered(answer(200, contentType(v.Stream))) {
				t.Fatal("not heard")
			}
			tp.Heard([]byte(v.Body))
			out := tp.End(nil)
			got, ok := tp.usage.totals(0)
			want := totals{v.Expect.Input, v.Expect.Cached, v.Expect.Written, v.Expect.Output, 0, v.Expect.Total, true}
			if v.Expect.Reasoning != nil {
				want.reasoning = *v.Expect.Reasoning
			}
			if !ok || got != want {
				t.Errorf("usage %+v, want %+v", got, want)
			}
			cost := bucket.Cost{Requests: 1, InputTokens: v.Expect.Counted, OutputTokens: v.Expect.Output}
			if v.Provider == "gemini" {
				cost.OutputTokens = 0 // does not count
			}
			if !out.Known || out.Cost != cost {
				t.Errorf("settled for %+v, want %+v", out, cost)
			}
			if e.Ignored() != 0 {
				t.Errorf("%d figures ignored", e.Ignored())
			}
		})
	}
}
