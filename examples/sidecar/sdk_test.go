package main

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

var hello = openai.ChatCompletionNewParams{
	Model:    "big",
	Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
}

func sdk(s *sidecar, retries int) openai.Client {
	return openai.NewClient(option.WithBaseURL("http://sidecar/v1"), option.WithAPIKey("of the agent"),
		option.WithHTTPClient(s.client), option.WithMaxRetries(retries))
}

func completion(*http.Request, []byte) metertest.Answer {
	return metertest.Reply(200, `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello yourself"}}]}`, "Content-Type", "application/json")
}

func TestAnSDKCallsThroughTheSidecar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{Dialect: metertest.OpenAI, Respond: completion})
		p.Script(metertest.Reply(429, `{"error":{"message":"slow down"}}`, "Retry-After", "7"))
		client := sdk(started(t, toProvider(t), p.Transport()), 0)
		resp, err := client.Chat.Completions.New(t.Context(), hello)
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.Choices[0].Message.Content; got != "hello yourself" {
			t.Errorf("it says %q", got)
		}
		if e := p.Ledger()[1]; p.Hits() != 2 || e.Path != "/v1/chat/completions" || e.Header.Get("Authorization") != "Bearer of the agent" {
			t.Errorf("%d sends, the last to %s with %v", p.Hits(), e.Path, e.Header)
		}
	})
}

func TestAnSDKStreamsThroughTheSidecar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		var events []metertest.Event
		for _, word := range []string{"one ", "two ", "three"} {
			events = append(events, metertest.Event{After: time.Second, Data: metertest.SSE("",
				`{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"`+word+`"}}]}`)})
		}
		events = append(events, metertest.Event{Data: metertest.SSE("", "[DONE]")})
		p.Script(metertest.Answer{Status: 200, Events: events})
		client := sdk(started(t, toProvider(t), p.Transport()), 0)
		began, said := time.Now(), ""
		stream := client.Chat.Completions.NewStreaming(t.Context(), hello)
		defer stream.Close()
		for i := 1; stream.Next(); i++ {
			said += stream.Current().Choices[0].Delta.Content
			if at := time.Since(began); at != time.Duration(i)*time.Second {
				t.Errorf("chunk %d came after %v", i, at)
			}
		}
		if err := stream.Err(); err != nil || said != "one two three" {
			t.Errorf("it said %q, %v", said, err)
		}
	})
}

func TestAnSDKReadsTheSidecarsRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{Respond: completion})
		o := toProvider(t)
		o.rpm, o.wait = 10, time.Second
		s := started(t, o, p.Transport())
		for range 9 {
			s.call(t.Context())
		}
		client := sdk(s, 0)
		_, err := client.Chat.Completions.New(t.Context(), hello)
		var refused *openai.Error
		if !errors.As(err, &refused) || refused.StatusCode != 429 || refused.Code != "no_budget" || refused.Message == "" {
			t.Fatalf("%v, want the SDK's own error", err)
		}
		if got := refused.Response.Header.Get("Retry-After"); got != "7" {
			t.Errorf("Retry-After is %q, want 7", got)
		}
		// One that does retry comes back when it was told to.
		began := time.Now()
		client = sdk(s, 1)
		if _, err := client.Chat.Completions.New(t.Context(), hello); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("it came back after %v, want 7 s", took)
		}
	})
}
