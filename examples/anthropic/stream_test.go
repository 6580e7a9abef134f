package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// heard is what a stream gave: who answered, and the pieces.
type heard struct {
	by   string
	text strings.Builder
	at   []time.Time
}

func (r rig) stream(t *testing.T) (*heard, error) {
	var h heard
	err := stream(t.Context(), r.client, primary, "?",
		func(by string) { h.by = by },
		func(piece string) {
			h.text.WriteString(piece)
			h.at = append(h.at, time.Now())
		})
	return &h, err
}

// begun are the events of a stream of the primary up to its first piece.
var begun = []metertest.Event{
	event(0, object{"type": "message_start", "message": object{"model": primary, "usage": object{"input_tokens": 9, "output_tokens": 1}}}),
	event(0, object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}}),
	event(time.Second, delta("a")),
}

func streamed(more ...metertest.Event) metertest.Answer {
	return metertest.Answer{Status: 200, Events: append(slices.Clone(begun), more...)}
}

var overloadedEvent = event(time.Second, object{"type": "error", "error": object{"type": "overloaded_error", "message": "Overloaded"}})

func TestPiecesComeAsTheyAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, after("2", refusedOnce), streamed(event(time.Second, delta("b")), event(time.Second, delta("c"))))
		h, err := r.stream(t)
		if err != nil || h.by != primary || h.text.String() != "abc" {
			t.Fatalf("%q answers %q, error %v", h.by, h.text.String(), err)
		}
		for i := 1; i < len(h.at); i++ {
			if apart := h.at[i].Sub(h.at[i-1]); apart != time.Second {
				t.Errorf("piece %d came %v after the one before, want 1s", i, apart)
			}
		}
		r.hits(t, 2, 0)
		r.idle(t)
	})
}

func TestStreamOfAnOverloadedModelHasABackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty)
		r.provider.ScriptFor(metertest.Match{Model: primary}, times(-1, after("", overloaded)))
		h, err := r.stream(t)
		if err != nil || h.by != backup || h.text.String() != strings.Join(pieces, "") {
			t.Fatalf("%q answers %q, error %v", h.by, h.text.String(), err)
		}
		r.hits(t, 4, 1)
	})
}

func TestExhaustedLadderOfAStreamIsTheSDKsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, times(-1, after("", overloaded)))
		h, err := r.stream(t)
		var refused *anthropic.Error
		if !errors.As(err, &refused) || refused.StatusCode != 529 || refused.Type() != anthropic.ErrorTypeOverloadedError {
			t.Fatalf("error is a %T: %v", err, err)
		}
		if len(h.at) > 0 {
			t.Error("a piece came")
		}
		r.hits(t, 4, 3)
	})
}

// Nothing has been delivered yet: the stream is refused like any other call.
func TestStreamThatBeginsWithAnErrorIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plenty, metertest.Answer{Status: 200, Events: []metertest.Event{overloadedEvent}})
		h, err := r.stream(t)
		if err != nil || h.by != primary || h.text.String() != strings.Join(pieces, "") {
			t.Fatalf("%q answers %q, error %v", h.by, h.text.String(), err)
		}
		r.hits(t, 2, 0)
	})
}

// Once there was an event, what comes is the caller's, and nothing is sent again.
func TestErrorInTheMiddleOfAStream(t *testing.T) {
	for name, tc := range map[string]struct {
		answer metertest.Answer
		check  func(error) bool
	}{
		"error event": {
			streamed(overloadedEvent),
			func(err error) bool {
				var e *anthropic.Error
				return errors.As(err, &e) && e.Type() == anthropic.ErrorTypeOverloadedError && strings.Contains(e.Error(), "Overloaded")
			},
		},
		"connection reset": {
			func() metertest.Answer {
				a := streamed(event(0, delta("b")), event(0, delta("c")), event(0, delta("d")))
				a.Fault = metertest.ResetDuringBody // behind half of the events
				return a
			}(),
			func(err error) bool { return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plenty, tc.answer)
				h, err := r.stream(t)
				if !tc.check(err) {
					t.Errorf("error is a %T: %v", err, err)
				}
				if h.text.String() != "a" {
					t.Errorf("%q came before it, want \"a\"", h.text.String())
				}
				r.hits(t, 1, 0)
				r.idle(t)
				if late := r.stack.Stats().Routes[0].Late; late != 1 {
					t.Errorf("%d late failures are booked, want 1", late)
				}
			})
		})
	}
}
