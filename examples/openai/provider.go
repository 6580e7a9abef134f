package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// What the provider on loopback does to the first two calls.
var (
	refusedOnce = metertest.Reply(http.StatusTooManyRequests,
		`{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
		"Content-Type", "application/json", "Retry-After", "1")
	failedOnce = metertest.Reply(http.StatusInternalServerError,
		`{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}`,
		"Content-Type", "application/json")
)

// newProvider returns a stand-in for the service that keeps the limits, and answers
// by the script first.
func newProvider(l limits, script ...metertest.Answer) *metertest.Provider {
	return metertest.New(metertest.Config{
		Dialect:  metertest.OpenAI,
		Requests: l.requests,
		Tokens:   l.tokens,
		Cost:     func(_ *http.Request, body []byte) int64 { return promptTokens(body) + completionTokens },
		Respond:  func(_ *http.Request, body []byte) metertest.Answer { return respond(body) },
		Script:   script,
		Latency:  100 * time.Millisecond,
	})
}

var completion = []string{"A limit ", "is a promise ", "that both sides ", "keep."}

const completionTokens = 9

func promptTokens(body []byte) int64 { return int64(len(body)) / 4 }

type object = map[string]any

// respond answers a chat completion, whole or as a stream.
func respond(body []byte) metertest.Answer {
	var request struct {
		Model         string
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return metertest.Reply(http.StatusBadRequest, `{"error":{"message":"invalid JSON","type":"invalid_request_error"}}`)
	}
	usage := object{
		"prompt_tokens":     promptTokens(body),
		"completion_tokens": completionTokens,
		"total_tokens":      promptTokens(body) + completionTokens,
	}
	answer := object{"id": "chatcmpl-1", "created": 1, "model": request.Model}
	if !request.Stream {
		answer["object"] = "chat.completion"
		answer["choices"] = []object{{
			"index": 0, "finish_reason": "stop",
			"message": object{"role": "assistant", "content": strings.Join(completion, "")},
		}}
		answer["usage"] = usage
		return metertest.Reply(http.StatusOK, text(answer), "Content-Type", "application/json")
	}

	answer["object"] = "chat.completion.chunk"
	var events []metertest.Event
	for _, piece := range completion {
		answer["choices"] = []object{{"index": 0, "delta": object{"content": piece}}}
		events = append(events, metertest.Event{After: 50 * time.Millisecond, Data: metertest.SSE("", text(answer))})
	}
	if request.StreamOptions.IncludeUsage {
		answer["choices"], answer["usage"] = []object{}, usage
		events = append(events, metertest.Event{Data: metertest.SSE("", text(answer))})
	}
	return metertest.Answer{Status: http.StatusOK, Events: append(events, metertest.Event{Data: metertest.SSE("", "[DONE]")})}
}

// text is the JSON of a value that always has one.
func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
