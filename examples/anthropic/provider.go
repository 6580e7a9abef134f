package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

var (
	refusedOnce = metertest.Reply(http.StatusTooManyRequests,
		`{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your rate limit"}}`,
		"Content-Type", "application/json", "Retry-After", "1")

	// overloaded asks for longer than the ladder waits on a route that has a backup,
	// so the backup is called at once; without a Retry-After the ladder would first
	// wait 5 seconds, three times.
	overloaded = metertest.Reply(529,
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`,
		"Content-Type", "application/json", "Retry-After", "120")
)

// newProvider returns a stand-in for the service that keeps the limits, and answers
// by the script first. One model of it may be too weak for streams.
func newProvider(l limits, weak string, script ...metertest.Answer) *metertest.Provider {
	return metertest.New(metertest.Config{
		Dialect:  metertest.Anthropic,
		Requests: l.requests,
		Tokens:   l.input + l.output,
		Cost:     func(_ *http.Request, body []byte) int64 { return inputTokens(body) + outputTokens },
		Respond:  func(_ *http.Request, body []byte) metertest.Answer { return respond(body, weak) },
		Script:   script,
		Latency:  100 * time.Millisecond,
	})
}

var pieces = []string{"A limit ", "is a promise ", "that both sides ", "keep."}

const outputTokens = 9

func inputTokens(body []byte) int64 { return int64(len(body)) / 4 }

type object = map[string]any

// respond answers a message, whole or as a stream.
func respond(body []byte, weak string) metertest.Answer {
	var request struct {
		Model  string
		Stream bool
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return metertest.Reply(http.StatusBadRequest, `{"type":"error","error":{"type":"invalid_request_error","message":"invalid JSON"}}`)
	}
	if request.Stream && request.Model == weak {
		return overloaded
	}
	message := object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": request.Model,
		"content":     []object{{"type": "text", "text": strings.Join(pieces, "")}},
		"stop_reason": "end_turn",
		"usage":       object{"input_tokens": inputTokens(body), "output_tokens": outputTokens},
	}
	if !request.Stream {
		return metertest.Reply(http.StatusOK, text(message), "Content-Type", "application/json")
	}

	message["content"], message["stop_reason"] = []object{}, nil
	message["usage"] = object{"input_tokens": inputTokens(body), "output_tokens": 1}
	events := []metertest.Event{
		event(0, object{"type": "message_start", "message": message}),
		event(0, object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}}),
	}
	for _, piece := range pieces {
		events = append(events, event(50*time.Millisecond, delta(piece)))
	}
	return metertest.Answer{Status: http.StatusOK, Events: append(events,
		event(0, object{"type": "content_block_stop", "index": 0}),
		event(0, object{"type": "message_delta", "delta": object{"stop_reason": "end_turn"}, "usage": object{"output_tokens": outputTokens}}),
		event(0, object{"type": "message_stop"}),
	)}
}

// event is one of a stream, named by its type.
func event(after time.Duration, data object) metertest.Event {
	return metertest.Event{After: after, Data: metertest.SSE(data["type"].(string), text(data))}
}

func delta(piece string) object {
	return object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": piece}}
}

// text is the JSON of a value that always has one.
func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
