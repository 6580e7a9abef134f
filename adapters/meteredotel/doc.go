// Package meteredotel makes the events of a Stack OpenTelemetry metrics, and events on the caller's span.
//
//	observer, err := meteredotel.New(meteredotel.Config{})
//	...
//	stack, err := middleware.New(middleware.Config{Observer: observer})
//	...
//	watch, err := observer.Watch(stack)
//	...
//	defer watch.Unregister()
//
// It needs the OpenTelemetry API alone: which SDK and exporter take the figures is the program's choice,
// and without one nothing is recorded.
//
// Metrics. Names, units and attributes are stable; all are in the manner of the HTTP client semantic
// conventions. Every one carries metered.key, the budget's key, and metered.route where a router is above.
//
//	metered.client.requests        counter    {request}  sends; every retry is one
//	metered.client.refusals        counter    {refusal}  metered.class, http.response.status_code
//	metered.client.tokens          counter    {token}    of settled calls; metered.token.type is input or output
//	metered.client.wait.duration   histogram  s          waits for the budget; metered.overdue for overdue probes
//	metered.client.hold.duration   histogram  s          holds of a key after a refusal; metered.class
//	metered.client.retries         counter    {retry}    of transport faults and server errors; http.response.status_code or error.type
//	metered.client.escalations     counter    {call}     calls for which the ladder gave a route up
//	metered.client.reroutes        counter    {call}     calls that went on by another route, that of metered.route
//	metered.client.doubts          counter    {answer}   answers with limits that were not believed
//	metered.store.changes          counter    {change}   a shared store went or came back; metered.store.state is down or up
//
// Of a watched Stack, read when metrics are collected:
//
//	metered.client.queue.length    gauge      {call}     calls that wait for the budget
//	metered.client.in_flight       gauge      {call}     calls that hold a place in it
//	metered.client.hold.remaining  gauge      s          until the key's hold ends
//	metered.client.available       gauge      {unit}     left of a limit, below zero in debt; metered.limit.unit, metered.limit.period (seconds)
//	metered.client.capacity        gauge      {unit}     what the limit holds; the same attributes
//	metered.client.wasted.ratio    gauge      1          refused / sent over the last 5 minutes
//
// A metric's keys are bounded: above [Config.MaxKeys] the rest are counted as "other".
//
// Spans. What befalls a call is an event on the span of its context, if that is recorded: metered.waited,
// metered.overdue, metered.refused, metered.held, metered.retried, metered.escalated, metered.rerouted and
// metered.doubted, with the same attributes, and metered.wait in seconds.
//
// What it does not do: it starts no span, exports nothing, and does not say which call was whose beyond the key.
// Keys become attributes: one with a secret in it must be hashed, as middleware.KeyByCredential does, or renamed by
// [Config.Name].
package meteredotel
