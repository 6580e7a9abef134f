package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// piece is the event of one piece of an answer.
func piece(s string) metertest.Event {
	return metertest.Event{After: time.Second, Data: metertest.SSE("", `{"choices":[{"index":0,"delta":{"content":"`+s+`"}}]}`)}
}

func TestPiecesComeAsTheyAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, refusedFor("2"), metertest.Answer{Status: 200, Events: []metertest.Event{piece("a"), piece("b"), piece("c")}})
		var at []time.Time
		var text strings.Builder
		err := stream(t.Context(), r.client, model, "?", func(s string) {
			at = append(at, time.Now())
			text.WriteString(s)
		})
		if err != nil || text.String() != "abc" {
			t.Fatalf("answer %q, error %v", text.String(), err)
		}
		for i := 1; i < len(at); i++ {
			if apart := at[i].Sub(at[i-1]); apart != time.Second {
				t.Errorf("piece %d came %v after the one before, want 1s", i, apart)
			}
		}
		r.hits(t, 2)
	})
}

func TestPiecesOfTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty)
		var text strings.Builder
		if err := stream(t.Context(), r.client, model, "?", func(s string) { text.WriteString(s) }); err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(completion, ""); text.String() != want {
			t.Errorf("answer %q, want %q", text.String(), want)
		}
		r.hits(t, 1)
	})
}

func TestStreamIsSettledForItsUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slow, metertest.Answer{Status: 200, Events: []metertest.Event{
			{Data: metertest.SSE("", `{"choices":[{"index":0,"delta":{"content":"yes"}}],"usage":null}`)},
			{Data: metertest.SSE("", `{"choices":[],"usage":{"prompt_tokens":70,"completion_tokens":30,"total_tokens":100}}`)},
			{Data: metertest.SSE("", "[DONE]")},
		}})
		if err := stream(t.Context(), r.client, model, "?", func(string) {}); err != nil {
			t.Fatal(err)
		}
		r.spent(t, 100)
		if n := r.figures(t).Budget.InFlight; n != 0 {
			t.Errorf("%d calls still in flight", n)
		}
	})
}

func TestExhaustedLadderOfAStreamIsTheSDKsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, times(-1, refusedFor("1")))
		err := stream(t.Context(), r.client, model, "?", func(string) { t.Error("a piece came") })
		var refused *openai.Error
		if !errors.As(err, &refused) || refused.StatusCode != 429 || refused.Message != "Rate limit reached for requests" {
			t.Fatalf("error is a %T: %v", err, err)
		}
		r.hits(t, 6)
	})
}

// Once there was a piece, what comes is the caller's, and nothing is sent again.
func TestErrorInTheMiddleOfAStream(t *testing.T) {
	errorEvent := metertest.Event{Data: metertest.SSE("", `{"error":{"message":"The server had an error","type":"server_error"}}`)}
	for name, tc := range map[string]struct {
		answer metertest.Answer
		check  func(error) bool
	}{
		"error event": {
			metertest.Answer{Status: 200, Events: []metertest.Event{piece("a"), errorEvent}},
			func(err error) bool {
				var e *ssestream.StreamError
				return errors.As(err, &e) && strings.Contains(e.Message, "The server had an error")
			},
		},
		"connection reset": {
			metertest.Answer{Status: 200, Events: []metertest.Event{piece("a"), piece("b")}, Fault: metertest.ResetDuringBody},
			func(err error) bool { return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plenty, tc.answer)
				var text strings.Builder
				err := stream(t.Context(), r.client, model, "?", func(s string) { text.WriteString(s) })
				if !tc.check(err) {
					t.Errorf("error is a %T: %v", err, err)
				}
				if text.String() != "a" {
					t.Errorf("%q came before it, want \"a\"", text.String())
				}
				r.hits(t, 1)
				if n := r.figures(t).Budget.InFlight; n != 0 {
					t.Errorf("%d calls still in flight", n)
				}
			})
		})
	}
}

func TestStreamIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, metertest.Answer{Status: 200, Events: []metertest.Event{piece("a"), piece("b"), piece("c")}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := stream(ctx, r.client, model, "?", func(string) { cancel() })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error is a %T: %v", err, err)
		}
		if n := r.figures(t).Budget.InFlight; n != 0 {
			t.Errorf("%d calls still in flight", n)
		}
	})
}
