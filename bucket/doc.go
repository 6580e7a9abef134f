// Package bucket spends a budget that refills: it lets calls out at a rate that a metered server
// will accept, in the order in which they came.
//
// It knows nothing of HTTP. A call has a Cost; a key has Limits, each of which it must fit; a
// Limiter grants calls, and a Grant says how they went:
//
//	l, err := bucket.New(bucket.Config{Limits: []bucket.Limit{
//		bucket.PerMinute(bucket.Requests, 500),
//		bucket.PerMinute(bucket.Tokens, 200_000),
//	}})
//	...
//	estimate := bucket.Cost{Requests: 1, InputTokens: 800, OutputTokens: 400}
//	g, err := l.Acquire(ctx, "api.example.com", estimate) // waits its turn
//	if err != nil {
//		return err // nothing was taken, nothing may be sent
//	}
//	answer, err := send()
//	switch {
//	case neverSent(err):
//		g.Cancel() // all comes back
//	case err != nil:
//		g.Settle(estimate) // sent and lost: the server may have counted it
//	case refused(answer):
//		g.Refused(retryAfter(answer)) // tokens back; everybody on the key waits, once
//	default:
//		g.Served()           // at the headers
//		g.Settle(used(answer)) // at the end of the body
//	}
//
// # Limits
//
// A limit is a TokenBucket unless it says Window. A token bucket starts full, holds Burst (Amount,
// unless stated) and refills continuously; in the worst case a window of one Per sees Burst plus
// Amount, which is what a provider with a bucket of his own allows too. A provider that counts by
// fixed or rolling windows does not: for him there is Window, which never lets more than Amount
// out in any Per. Limit.WorstWindow puts a number to it.
//
// All limits of a key, and a slot under MaxInFlight, are granted together or nothing is touched.
// The arithmetic is in integers and exact: a call leaves in the very nanosecond in which its cost
// is there, and not before. Nothing polls and nothing runs while nobody waits; a key with waiters
// has one timer.
//
// A cost is an estimate. Settle puts it right both ways: what was taken too much comes back, what
// was taken too little is debt that those who follow have to wait for. Report puts the level right
// by what the server says is left.
//
// # The line
//
// Each key has one queue, first in, first out; a small call does not slip past a large one. Whoever
// is cancelled leaves no trace. A call that was refused and comes again keeps its place: take
// Grant.Place, and Acquire under WithPlace.
//
// No wait is in vain, and none is without end:
//
//   - A call that cannot leave before its context's deadline is refused at once, with a *WaitError
//     that says how long it would have been.
//   - A cost above a limit's capacity leaves from a full bucket and runs it into debt, or is refused
//     by option.
//   - If nothing at all leaves for MaxWait, estimates or levels must be wrong; the head then leaves
//     on debt, as a probe. The next one follows when the server has answered it, not before.
//
// # Holds
//
// Refused and Hold stop a key until an instant. When it is over, the line is not poured out: one
// call leaves, and with each round of served answers twice as many may be in flight, until a limit
// is what binds. MaxWait stands still under a hold.
//
// # What it does not do
//
// It knows this process alone: a budget that a fleet shares is adapters/meteredredis, another Limiter. It is not
// fair between keys, nor between callers of one key beyond their order. It does not know what a call will cost;
// estimates are the caller's. A call's slot under MaxInFlight is kept until its grant is ended, however long that
// takes.
//
// # Keys
//
// A key is one quota of one provider: an origin, a credential, a model, whatever the provider
// counts by. A key exists from its first use. Once it is idle and full again it holds nothing worth
// remembering, and is dropped after a while, or when there are more than MaxKeys. One that
// somebody waits on, that owes, is held or has calls in flight is never dropped.
package bucket
