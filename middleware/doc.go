// Package middleware holds the layers that keep an HTTP client within the limits
// of a metered API, as http.RoundTrippers, and the Stack that joins them.
//
// # The layers
//
// Each covers another's blind spot, and each can be left out. From the caller
// inwards:
//
//	Escalate   picks a route, asks its breaker, takes the whole turn to a backup
//	Retry      connection faults and server errors, on a budget of its own
//	Ladder     refusals (429, 503, 529), on a budget of its own, by Retry-After
//	Pace       takes the call's budget before each send, and settles it after
//	base       the transport, or a chain of your own RoundTrippers
//
// [New] builds them in this order; [Chain] builds any other:
//
//	rt := middleware.Chain(nil,
//		middleware.Ladder(retryafter.Policy{}),
//		middleware.Pace(limiter, middleware.PaceConfig{}),
//	)
//
// The order matters. Pace is innermost because a retry is a request too: every
// send takes its budget. Ladder is inside Retry so that a storm of refusals
// cannot spend the retries kept for the network, and Escalate is outermost
// because what it moves is the whole call.
//
// # The turn
//
// A turn is one logical call. The outermost layer starts it and keeps it in the
// request's context; layers below join it. Two of a kind in one chain do the
// work of one: the outer works, the inner passes through, and no budget is spent
// twice. A turn makes at most routes + Policy.MaxRetries + RetryPolicy.MaxRetries
// sends.
//
// # What a layer promises
//
// The caller's request is never changed. Its body is closed exactly once, also
// when nothing is sent. A body is sent again from GetBody, or from a copy kept
// while it was sent (up to [ReplayLimit]); where there is neither, the request is
// sent once and its answer handed back. Answers that are thrown away are drained
// within bounds and closed before a wait begins. The body of a success is never
// read ahead: events of a stream pass as they come. Errors of a context match
// through http.Client. CloseIdleConnections is passed on.
//
// What it does not promise: order among calls that are already sent, and fairness
// between keys.
//
// Package metertest checks a RoundTripper of your own against the same promises.
package middleware
