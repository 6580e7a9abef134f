package middleware_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Names, their order and levels are what people build alerts on: they are stable.
func TestSlogFieldsAreStable(t *testing.T) {
	cost := bucket.Cost{Requests: 1, InputTokens: 30, OutputTokens: 4}
	failed := errors.New("reset")
	for _, c := range []struct {
		event middleware.Event
		want  string
	}{
		{middleware.Event{Kind: middleware.Waited, Wait: time.Second}, `DEBUG waited key=k route=r attempt=2 wait=1s`},
		{middleware.Event{Kind: middleware.Overdue, Wait: 30 * time.Second}, `WARN overdue key=k route=r attempt=2 wait=30s`},
		{middleware.Event{Kind: middleware.Sent, Cost: cost}, `DEBUG sent key=k route=r attempt=2 requests=1 input_tokens=30 output_tokens=4`},
		{middleware.Event{Kind: middleware.Refused, Status: 429, Class: retryafter.RateLimited, Wait: time.Second},
			`WARN refused key=k route=r attempt=2 wait=1s status=429 class=rate_limited`},
		{middleware.Event{Kind: middleware.Held, Class: retryafter.RateLimited, Wait: time.Second}, `WARN held key=k route=r attempt=2 wait=1s`},
		{middleware.Event{Kind: middleware.Retried, Status: 502, Class: retryafter.ServerError},
			`WARN retried key=k route=r attempt=2 status=502 class=server_error`},
		{middleware.Event{Kind: middleware.Retried, Err: failed}, `WARN retried key=k route=r attempt=2 error=reset`},
		{middleware.Event{Kind: middleware.Escalated, Err: failed}, `WARN escalated key=k route=r attempt=2 error=reset`},
		{middleware.Event{Kind: middleware.Rerouted}, `WARN rerouted key=k route=r attempt=2`},
		{middleware.Event{Kind: middleware.Settled, Cost: cost}, `DEBUG settled key=k route=r attempt=2 requests=1 input_tokens=30 output_tokens=4`},
		{middleware.Event{Kind: middleware.StoreDown, Err: failed}, `ERROR store_down key=k route=r attempt=2 error=reset`},
		{middleware.Event{Kind: middleware.StoreUp}, `INFO store_up key=k route=r attempt=2`},
	} {
		var out bytes.Buffer
		o := middleware.NewSlogObserver(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})))
		c.event.Key, c.event.Route, c.event.Attempt = "k", "r", 2
		o.Observe(t.Context(), c.event)
		got := strings.NewReplacer("level=", "", "msg=", "").Replace(strings.TrimSpace(out.String()))
		if got != c.want {
			t.Errorf("%v:\ngot  %s\nwant %s", c.event.Kind, got, c.want)
		}
	}
}
