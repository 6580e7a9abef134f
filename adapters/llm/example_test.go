package llm_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/meteredhttp/meteredhttp/adapters/llm"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A stack that charges tokens: the estimate is taken before the call, and
// settled when the stream has been read.
func Example() {
	provider := metertest.New(metertest.Config{Script: []metertest.Answer{{
		Status: 200,
		Header: http.Header{"Content-Type": {"text/event-stream"}},
		Events: []metertest.Event{
			{Data: metertest.SSE("", `{"choices":[{"delta":{"content":"Hi"}}],"usage":null}`)},
			{Data: metertest.SSE("", `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`)},
			{Data: metertest.SSE("", "[DONE]")},
		},
	}}})
	estimator, err := llm.New(llm.Config{})
	if err != nil {
		panic(err)
	}
	stack, err := middleware.New(middleware.Config{
		Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}, Headroom: 1},
		Pace:   middleware.PaceConfig{Charge: estimator.Charge},
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: stack.Transport(provider.Transport())}

	left := func() int { return int(stack.Stats().Keys[0].Budget.Levels[0].Available) }
	resp, err := client.Post("https://api.openai.com/v1/chat/completions", "application/json", strings.NewReader(
		`{"model":"gpt-4o","messages":[{"role":"user","content":"Say hi"}],"max_tokens":500,"stream":true,"stream_options":{"include_usage":true}}`))
	if err != nil {
		panic(err)
	}
	fmt.Println("left while it streams:", left())
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	fmt.Println("left when it is read: ", left())
	fmt.Println(stack.Stats().Keys[0].Key)
	// Output:
	// left while it streams: 484
	// left when it is read:  990
	// https://api.openai.com:443 gpt-4o
}

func ExampleCost() {
	req, _ := http.NewRequest("POST", "https://api.anthropic.com/v1/messages", strings.NewReader(
		`{"model":"claude-sonnet-4-5","max_tokens":300,"messages":[{"role":"user","content":[`+
			`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},`+
			`{"type":"text","text":"What is in this picture?"}]}]}`))
	cost, _ := llm.Cost(req)
	fmt.Println(cost.Requests, cost.InputTokens, cost.OutputTokens)
	// Output: 1 1521 300
}

// A gateway of one's own, with a model that takes five tokens of the limit for
// each of output.
func ExampleNew() {
	reader := retryafter.Reader{Hosts: map[string]string{"llm.corp.example": "bedrock"}}
	estimator, err := llm.New(llm.Config{
		Reader:   reader,
		Counting: map[string]llm.Counting{"bedrock": {OutputWeight: 5}},
	})
	if err != nil {
		panic(err)
	}
	req, _ := http.NewRequest("POST", "https://llm.corp.example/model/claude/converse", strings.NewReader(
		`{"messages":[{"role":"user","content":[{"text":"Hello"}]}],"inferenceConfig":{"maxTokens":100}}`))
	cost, _ := estimator.Cost(req)
	fmt.Println(cost.OutputTokens)
	// Output: 500
}

// Overloaded, said by the first event of a 200: the layers above see a 529, wait
// and send again.
func ExampleFirstEvent() {
	provider := metertest.New(metertest.Config{Script: []metertest.Answer{{
		Status: 200,
		Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body:   metertest.SSE("error", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`),
	}}})
	rt := middleware.Chain(provider.Transport(), llm.FirstEvent(llm.FirstEventConfig{}))
	client := &http.Client{Transport: rt} // a Stack's Transport would come here

	resp, err := client.Post("https://api.anthropic.com/v1/messages", "application/json", strings.NewReader(`{}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status)
	fmt.Println(string(body))
	// Output:
	// 529 Overloaded
	// {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}
}

func ExampleKey() {
	req, _ := http.NewRequest("POST", "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent", nil)
	fmt.Println(llm.Key(req))
	// Output: https://generativelanguage.googleapis.com:443 gemini-2.5-flash
}
