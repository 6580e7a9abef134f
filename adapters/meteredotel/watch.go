package meteredotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// Watch has the gauges show how stack stands, from now on until the Registration is unregistered. It is
// read each time that metrics are collected, and costs its requests nothing. Keys above Config.MaxKeys are
// left out: levels of different budgets have no sum.
//
// One budget must be watched once: two Stacks that share a limiter would both report it.
func (o *Observer) Watch(stack *middleware.Stack) (metric.Registration, error) {
	in := &o.instruments
	r, err := o.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for _, k := range stack.Stats().Keys {
			if s := o.key(k.Key); s != o.rest {
				o.report(to, s.series, k)
			}
		}
		return nil
	}, in.queue, in.inFlight, in.held, in.available, in.capacity, in.wasted)
	if err != nil {
		return nil, fmt.Errorf("meteredotel: %w", err)
	}
	return r, nil
}

func (o *Observer) report(to metric.Observer, s *series, k middleware.KeyStats) {
	in := &o.instruments
	of := metric.WithAttributes(s.base...)
	to.ObserveInt64(in.queue, int64(k.Budget.Queued), of)
	to.ObserveInt64(in.inFlight, int64(k.Budget.InFlight), of)
	to.ObserveFloat64(in.held, k.Budget.HeldFor.Seconds(), of)
	to.ObserveFloat64(in.wasted, k.Wasted5, of)
	for _, l := range k.Budget.Levels {
		limit := metric.WithAttributes(append(limitOf(l), s.base...)...)
		to.ObserveFloat64(in.available, l.Available, limit)
		to.ObserveFloat64(in.capacity, l.Capacity, limit)
	}
}

// limitOf tells one limit of a key from the others.
func limitOf(l bucket.Level) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String(unitKey, l.Limit.Unit.String()),
		attribute.Float64(periodKey, l.Limit.Per.Seconds()),
	}
}
