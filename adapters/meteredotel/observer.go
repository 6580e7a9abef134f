package meteredotel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/meteredhttp/meteredhttp/middleware"
)

// DefaultMaxKeys is how many keys have series of their own where Config.MaxKeys is zero.
const DefaultMaxKeys = 200

// other is what the keys above MaxKeys are counted as.
const other = "other"

// scope is the name of our instrumentation.
const scope = "github.com/meteredhttp/meteredhttp/adapters/meteredotel"

// Config configures an Observer. The zero value works.
type Config struct {
	// MeterProvider makes the instruments; nil means otel.GetMeterProvider.
	MeterProvider metric.MeterProvider

	// MaxKeys is how many keys have series of their own; 0 means DefaultMaxKeys. Further ones are
	// counted as "other". A key keeps its series for good, so that counters never restart.
	MaxKeys int

	// Name gives a key the name that is shown; nil shows it as it is. It is called once for each key
	// that has series of its own, and must be safe for concurrent use. Keys of one name are one series.
	Name func(key string) string

	// Next is told of every event too, after the metrics; nil tells nobody.
	Next middleware.Observer
}

// Observer makes metrics and span events of what a Stack does. It is safe for concurrent use, and one may
// serve many Stacks.
type Observer struct {
	config      Config
	meter       metric.Meter
	instruments instruments

	keys  sync.Map // *keySeries by key
	count atomic.Int64
	rest  *keySeries
}

var _ middleware.Observer = (*Observer)(nil)

// New returns an Observer, or what is wrong with c or with its instruments.
func New(c Config) (*Observer, error) {
	if c.MaxKeys < 0 {
		return nil, fmt.Errorf("meteredotel: negative MaxKeys %d", c.MaxKeys)
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	o := &Observer{config: c, meter: c.MeterProvider.Meter(scope)}
	if err := o.instruments.make(o.meter); err != nil {
		return nil, fmt.Errorf("meteredotel: %w", err)
	}
	o.rest = newKeySeries(other)
	return o, nil
}

// Observe counts e, and adds it to the span of ctx.
func (o *Observer) Observe(ctx context.Context, e middleware.Event) {
	s := o.key(e.Key).route(e.Route)
	in := &o.instruments
	switch e.Kind {
	case middleware.Sent:
		in.requests.Add(ctx, 1, s.add...)
	case middleware.Settled:
		if e.Cost.InputTokens > 0 {
			in.tokens.Add(ctx, e.Cost.InputTokens, s.input...)
		}
		if e.Cost.OutputTokens > 0 {
			in.tokens.Add(ctx, e.Cost.OutputTokens, s.output...)
		}
	case middleware.Waited:
		in.waits.Record(ctx, e.Wait.Seconds(), s.record...)
	case middleware.Overdue:
		in.waits.Record(ctx, e.Wait.Seconds(), s.overdue...)
	default:
		o.observeRare(ctx, s, e)
	}
	annotate(ctx, e)
	if o.config.Next != nil {
		o.config.Next.Observe(ctx, e)
	}
}

// observeRare counts what does not happen to a healthy client.
func (o *Observer) observeRare(ctx context.Context, s *series, e middleware.Event) {
	in := &o.instruments
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributes(append(more, s.base...)...)
	}
	switch e.Kind {
	case middleware.Refused:
		in.refusals.Add(ctx, 1, with(attribute.String(classKey, e.Class.String()), attribute.Int(statusKey, e.Status)))
	case middleware.Held:
		in.holds.Record(ctx, e.Wait.Seconds(), with(attribute.String(classKey, e.Class.String())))
	case middleware.Retried:
		in.retries.Add(ctx, 1, with(cause(e)))
	case middleware.Escalated:
		in.escalations.Add(ctx, 1, s.add...)
	case middleware.Rerouted:
		in.reroutes.Add(ctx, 1, s.add...)
	case middleware.Doubted:
		in.doubts.Add(ctx, 1, s.add...)
	case middleware.StoreDown:
		in.store.Add(ctx, 1, with(attribute.String(stateKey, "down")))
	case middleware.StoreUp:
		in.store.Add(ctx, 1, with(attribute.String(stateKey, "up")))
	}
}

// cause is why a call was retried: an answer's status, or the type of an error.
func cause(e middleware.Event) attribute.KeyValue {
	if e.Status != 0 {
		return attribute.Int(statusKey, e.Status)
	}
	return attribute.String(errorKey, errorType(e.Err))
}

// errorType is the type of the innermost cause, which is one of few, as a text is not.
func errorType(err error) string {
	if err == nil {
		return "_OTHER" // the convention's word for one that is not known
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return fmt.Sprintf("%T", err)
		}
		err = inner
	}
}

// A series is the attributes of one key and route, made once.
type series struct {
	base          []attribute.KeyValue
	add           []metric.AddOption
	input, output []metric.AddOption
	record        []metric.RecordOption
	overdue       []metric.RecordOption
}

func newSeries(base ...attribute.KeyValue) *series {
	of := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(more, base...)...))
	}
	return &series{
		base:    base[:len(base):len(base)],
		add:     []metric.AddOption{of()},
		input:   []metric.AddOption{of(attribute.String(tokenKey, "input"))},
		output:  []metric.AddOption{of(attribute.String(tokenKey, "output"))},
		record:  []metric.RecordOption{of()},
		overdue: []metric.RecordOption{of(attribute.Bool(overdueKey, true))},
	}
}

// keySeries is the series of one key: its own, and one for each route that led to it.
type keySeries struct {
	name string
	*series
	routes sync.Map // *series by the route's name; a router has few
}

func newKeySeries(name string) *keySeries {
	return &keySeries{name: name, series: newSeries(attribute.String(keyKey, name))}
}

// key returns the series of a key, or those of all others.
func (o *Observer) key(key string) *keySeries {
	if k, ok := o.keys.Load(key); ok {
		return k.(*keySeries)
	}
	if o.count.Add(1) > int64(o.config.MaxKeys) {
		o.count.Add(-1)
		return o.rest
	}
	name := key
	if o.config.Name != nil {
		name = o.config.Name(key)
	}
	k, had := o.keys.LoadOrStore(key, newKeySeries(name))
	if had {
		o.count.Add(-1)
	}
	return k.(*keySeries)
}

func (k *keySeries) route(name string) *series {
	if name == "" {
		return k.series
	}
	if s, ok := k.routes.Load(name); ok {
		return s.(*series)
	}
	s, _ := k.routes.LoadOrStore(name, newSeries(attribute.String(keyKey, k.name), attribute.String(routeKey, name)))
	return s.(*series)
}
