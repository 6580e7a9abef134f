package meteredotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/meteredhttp/meteredhttp/middleware"
)

// annotate adds e to the span of ctx. Sends and settlements are what every call does, and spans of their
// own where the base transport is instrumented; the store concerns no call.
func annotate(ctx context.Context, e middleware.Event) {
	switch e.Kind {
	case middleware.Sent, middleware.Settled, middleware.StoreDown, middleware.StoreUp:
		return
	}
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, attribute.String(keyKey, e.Key))
	if e.Route != "" {
		attrs = append(attrs, attribute.String(routeKey, e.Route))
	}
	if e.Attempt > 0 {
		attrs = append(attrs, attribute.Int(attemptKey, e.Attempt))
	}
	if e.Wait > 0 {
		attrs = append(attrs, attribute.Float64(waitKey, e.Wait.Seconds()))
	}
	switch e.Kind {
	case middleware.Refused, middleware.Held:
		attrs = append(attrs, attribute.String(classKey, e.Class.String()))
	}
	if e.Status != 0 {
		attrs = append(attrs, attribute.Int(statusKey, e.Status))
	}
	if e.Err != nil {
		attrs = append(attrs, attribute.String(errorKey, errorType(e.Err)))
	}
	span.AddEvent("metered."+e.Kind.String(), trace.WithAttributes(attrs...))
}
