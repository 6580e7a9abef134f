package meteredotel

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// The names of attributes; those without our prefix are the convention's.
const (
	keyKey     = "metered.key"
	routeKey   = "metered.route"
	classKey   = "metered.class"
	tokenKey   = "metered.token.type"
	overdueKey = "metered.overdue"
	stateKey   = "metered.store.state"
	unitKey    = "metered.limit.unit"
	periodKey  = "metered.limit.period"
	waitKey    = "metered.wait"
	attemptKey = "metered.attempt"
	statusKey  = "http.response.status_code"
	errorKey   = "error.type"
)

// seconds are the bounds of the histograms' buckets: from what nobody feels to what nobody bears.
var seconds = metric.WithExplicitBucketBoundaries(0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

type instruments struct {
	requests, refusals, tokens     metric.Int64Counter
	retries, escalations, reroutes metric.Int64Counter
	doubts, store                  metric.Int64Counter
	waits, holds                   metric.Float64Histogram

	queue, inFlight             metric.Int64ObservableGauge
	held                        metric.Float64ObservableGauge
	available, capacity, wasted metric.Float64ObservableGauge
}

func (in *instruments) make(m metric.Meter) error {
	var errs []error
	counter := func(to *metric.Int64Counter, name, unit, what string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		*to, errs = c, append(errs, err)
	}
	histogram := func(to *metric.Float64Histogram, name, what string) {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), seconds)
		*to, errs = h, append(errs, err)
	}
	whole := func(to *metric.Int64ObservableGauge, name, unit, what string) {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		*to, errs = g, append(errs, err)
	}
	gauge := func(to *metric.Float64ObservableGauge, name, unit, what string) {
		g, err := m.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		*to, errs = g, append(errs, err)
	}
	counter(&in.requests, "metered.client.requests", "{request}", "Sends; every retry is one.")
	counter(&in.refusals, "metered.client.refusals", "{refusal}", "Answers by which the server refused a call.")
	counter(&in.tokens, "metered.client.tokens", "{token}", "Tokens of settled calls.")
	counter(&in.retries, "metered.client.retries", "{retry}", "Retries of transport faults and server errors.")
	counter(&in.escalations, "metered.client.escalations", "{call}", "Calls for which the ladder gave a route up.")
	counter(&in.reroutes, "metered.client.reroutes", "{call}", "Calls that went on by another route.")
	counter(&in.doubts, "metered.client.doubts", "{answer}", "Answers with limits that were not believed.")
	counter(&in.store, "metered.store.changes", "{change}", "Times that a shared store went or came back.")
	histogram(&in.waits, "metered.client.wait.duration", "Waits for the budget.")
	histogram(&in.holds, "metered.client.hold.duration", "Holds of a key after a refusal.")
	whole(&in.queue, "metered.client.queue.length", "{call}", "Calls that wait for the budget.")
	whole(&in.inFlight, "metered.client.in_flight", "{call}", "Calls that hold a place in the budget.")
	gauge(&in.held, "metered.client.hold.remaining", "s", "Time until the key's hold ends.")
	gauge(&in.available, "metered.client.available", "{unit}", "What is left of a limit; below zero in debt.")
	gauge(&in.capacity, "metered.client.capacity", "{unit}", "What a limit holds.")
	gauge(&in.wasted, "metered.client.wasted.ratio", "1", "Refused over sent in the last 5 minutes.")
	return errors.Join(errs...)
}
