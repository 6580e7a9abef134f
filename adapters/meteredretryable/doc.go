// Package meteredretryable puts a [middleware.Stack] under a go-retryablehttp
// client, v0.7.8 or later:
//
//	client := retryablehttp.NewClient()
//	client.CheckRetry = policy                    // if not the default one
//	err := meteredretryable.Install(client, stack)
//
// Every call of the client, with all of its attempts, is then one turn of the
// Stack: one rate-limit budget, one transport budget, one place in the queue.
// Through StandardClient, or retryablehttp.RoundTripper, it is the same.
//
// # Who retries what
//
//	429, 503, 529, and what a provider means so      the Stack's ladder; the client never
//	no budget before the deadline, a full queue,     nobody
//	escalations, a hook's panic, a bad certificate
//	connection faults                                the Stack's RetryPolicy, then the client,
//	                                                 RetryMax times more
//	500, 502, 504, 408                               the Stack's RetryPolicy, then the client
//	                                                 where its CheckRetry says so
//	anything else                                    the client, where its CheckRetry says so
//
// CheckRetry is asked as ever, once for each attempt of the client's. But where
// the Stack has dealt with a refusal, its yes does not count: a refused answer
// comes back as the server gave it, its body unread, and not as an error that says
// "giving up"; an error of the Stack's comes back within one, for errors.Is and
// errors.As. For all the rest CheckRetry, ErrorHandler, Backoff and the waits are
// what they are in retryablehttp.
//
// One thing that the client retries by itself is not retried: a POST or PATCH
// that may have reached the server, when the connection is lost, a timeout ends
// the wait for the answer, or the answer breaks off under a ResponseHandler. It
// may have been carried out, and billed. As for the Stack itself,
// RetryPolicy.AllMethods, or an Idempotency-Key on the request, allows it. (An
// answer that says 500 is CheckRetry's business.)
//
// # What stays the caller's
//
// Install changes the transport of client.HTTPClient, and CheckRetry. All other
// fields and hooks are left alone: RequestLogHook, ResponseLogHook, PrepareRetry,
// Backoff, ErrorHandler, Logger, RetryMax, the waits, and http.Client's Timeout,
// Jar and CheckRedirect. They may be set before Install or after. CheckRetry is
// set before: one that is set later takes the place of Install's, and the client
// and the Stack multiply as if put together by hand.
//
// A RoundTripper may be put around the client's transport later, to stand between
// retryablehttp and the Stack. A transport that is put in its stead takes the
// Stack out of the client.
//
// # Turns
//
// retryablehttp has no hook for the beginning of a call that would not be the
// caller's. What tells an attempt's call is its Request.URL, by address, which all
// attempts of a call share. So a hook that gives an attempt another *url.URL,
// rather than change the one that it has, begins another turn with it; and where
// several calls use one *url.URL at the same time, two that are between attempts
// may swap their turns: one then has less budget left, and the other more.
//
// Where http.Client's own Timeout ends an attempt, net/http hides which one it was;
// then it is told by the goroutine. So a RoundTripper around the Stack that sends
// from a goroutine of its own makes a call's next attempt another turn, and an
// Idempotency-Key of its request is not seen.
//
// A turn is kept between attempts for five minutes, or twice RetryWaitMax if that is
// more; an attempt that a Backoff lets come later is another turn. A Request that
// is used again is another call, and another turn. So is whatever is sent under the
// context of an answer's Request.
//
// # Idle connections
//
// After each call that has failed, retryablehttp closes the idle connections of
// its http.Client, which all calls share, also those of other clients on the
// same transport. Under Install it does not. When the caller does, by
// http.Client.CloseIdleConnections, they are closed as ever.
package meteredretryable
