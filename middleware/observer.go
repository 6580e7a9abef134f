package middleware

import (
	"context"
	"log/slog"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Observer is told what happens to the calls of a Stack, or of a layer. It is
// called on the goroutine of the call, outside all locks, by many goroutines at
// once; what it does delays that call. A panic of it becomes that call's error.
// Behind Async it can do neither. Without one nothing is reported, at no cost.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// ObserverFunc is a function as an Observer.
type ObserverFunc func(ctx context.Context, e Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) { f(ctx, e) }

// EventKind says what happened.
type EventKind uint8

// The kinds of events, in the order in which a call can meet them; Doubted, which comes before Settled or
// Held, is told once for each key and reason.
const (
	Waited    EventKind = iota // it waited for its budget: Wait
	Overdue                    // it waited MaxWait with nothing admitted, and went out all the same: Wait
	Sent                       // it went out: Cost
	Refused                    // the server refused it: Status, Class, Hinted, Wait (what the server asked for, if it did)
	Held                       // its key is held after a refusal: Wait
	Retried                    // it is sent again after a connection fault or a server error: Wait, Status or Err
	Escalated                  // the ladder gave the route up: Err
	Rerouted                   // it goes on by another route: Route
	Settled                    // its body ended, and its budget is settled: Cost
	StoreDown                  // a shared limiter lost its store: Err
	StoreUp                    // and has it again
	Doubted                    // a limit header or a hint that cannot be true was not believed: Err says which, and why
)

var eventNames = [...]string{"waited", "overdue", "sent", "refused", "held", "retried",
	"escalated", "rerouted", "settled", "store_down", "store_up", "doubted"}

// String returns the kind in lower case: "waited", "sent", "store_down".
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown"
}

// MarshalText is String, for JSON and logs.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Event is one thing that happened. Which fields are set beside Kind, Key and
// Attempt is said at each kind.
type Event struct {
	Kind    EventKind
	Key     string        // the budget's key
	Route   string        // the route's name, where a router is above
	Attempt int           // sends of the call so far, on all routes
	Wait    time.Duration // see the kind
	Hinted  bool          // Refused: the server said how long to wait, which may be 0
	Status  int           // the answer's
	Class   retryafter.Class
	Cost    bucket.Cost
	Err     error
}

// observe reports e to the turn's observer.
func (t *turn) observe(ctx context.Context, e Event) {
	if t.observer == nil {
		return
	}
	if router := t.router(); router != nil && e.Route == "" {
		e.Route = router.Route(int(t.route.Load())).Name
	}
	if e.Attempt == 0 {
		e.Attempt = int(t.attempts.Load())
	}
	t.hook("Observer", func() { t.observer.Observe(ctx, e) })
}

// NewSlogObserver returns an Observer that logs to l, or to slog.Default when l
// is nil. It is as slow as l's handler is: see Async. The message is the event's kind; the attributes are key, route,
// attempt, wait, hinted, status, class, requests, input_tokens, output_tokens and error,
// each only where it says something: hinted where a refusal came without a hint, or with one
// of 0. Names and levels are stable.
//
// A healthy fleet logs nothing at Info: waits, sends and settlements are
// Debug; refusals, holds, retries and reroutes are Warn, as is what is overdue or doubted;
// the loss of a store is Error, and its return Info.
func NewSlogObserver(l *slog.Logger) Observer { return slogObserver{l} }

type slogObserver struct{ l *slog.Logger }

func (o slogObserver) Observe(ctx context.Context, e Event) {
	l := o.l
	if l == nil {
		l = slog.Default()
	}
	level := slog.LevelWarn
	switch e.Kind {
	case Waited, Sent, Settled:
		level = slog.LevelDebug
	case StoreDown:
		level = slog.LevelError
	case StoreUp:
		level = slog.LevelInfo
	}
	if !l.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 10)
	attrs = append(attrs, slog.String("key", e.Key))
	if e.Route != "" {
		attrs = append(attrs, slog.String("route", e.Route))
	}
	if e.Attempt > 0 {
		attrs = append(attrs, slog.Int("attempt", e.Attempt))
	}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	} else if e.Kind == Refused {
		attrs = append(attrs, slog.Bool("hinted", e.Hinted))
	}
	if e.Status != 0 {
		attrs = append(attrs, slog.Int("status", e.Status), slog.String("class", e.Class.String()))
	}
	for _, c := range [...]struct {
		name string
		n    int64
	}{{"requests", e.Cost.Requests}, {"input_tokens", e.Cost.InputTokens}, {"output_tokens", e.Cost.OutputTokens}} {
		if c.n != 0 {
			attrs = append(attrs, slog.Int64(c.name, c.n))
		}
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	l.LogAttrs(ctx, level, e.Kind.String(), attrs...)
}
