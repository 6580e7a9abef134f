// Package escalate is what happens when listening to a server is not enough:
// a typed failure, a gate in front of each route, and the rewriting of a
// request for another route.
//
// A [Route] is one model at one provider, drawing on one quota. A [Router]
// holds a primary and its backups, each behind a gate with a gobreaker/v2
// breaker inside. The layers of package middleware ask the gate ([Router.Allow])
// once for each attempt of a route, tell it how the attempt ended
// ([Permit.Done]), and rewrite the request for the route they were let through
// to ([Router.Rewrite]). The package sends nothing, starts no goroutine and
// sets no timer.
//
// # The gate
//
// The breaker counts, the gate keeps time. While the gate is closed every call
// is counted by a gobreaker breaker, in gobreaker's vocabulary ([Settings]).
// The gate opens when one call escalates (see [Settings.Escalations]), when the
// counts satisfy ReadyToTrip, or when a quota is spent. It then rests for as
// long as the server asked, or for Timeout if it asked for nothing, and after
// that lets through one probe. A served probe closes the gate, with fresh
// counts; a refused or failed one rests it again; a probe that ended in neither
// way hands its turn to the next call, and one that never ends does so after
// Timeout.
//
// The breaker itself is never open: it could not be opened by one escalation,
// nor made to come back after the server's 5 seconds rather than its own 60. So
// there is only one clock, the gate's, and the two cannot disagree.
//
// # What it does not do
//
// It neither sends nor retries: which failure counts, and whether a request may be sent again at all, is for
// the caller to say. Two routes on one quota are an error: a second try on the same model is no backup. A
// gate is of this process; other processes learn of a refusal by their own.
package escalate
