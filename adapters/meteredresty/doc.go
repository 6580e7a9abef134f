// Package meteredresty puts a [middleware.Stack] under a resty v2 client:
//
//	client := resty.New().SetRetryCount(3)   // and all other settings
//	err := meteredresty.Install(client, stack) // last
//
// Every call of the client, with all of resty's attempts, is then one turn of the
// Stack: one rate-limit budget, one transport budget, one place in the queue.
//
// # Who retries what
//
//	429, 503, 529, and what a provider means so      the Stack's ladder; resty never
//	no budget before the deadline, a full queue,     nobody
//	escalations, a hook's panic, a bad certificate
//	connection faults                                the Stack's RetryPolicy, then resty,
//	                                                 RetryCount times more
//	500, 502, 504, 408                               the Stack's RetryPolicy, then resty
//	                                                 where a retry condition says so
//	anything else                                    resty, where a retry condition says so
//
// Where the Stack has dealt with a refusal, resty's loop ends whatever retry
// conditions, of the client or the request, say about it: without a retry hook,
// without asking SetRetryAfter, and without an error of its own. A refused
// answer comes back as the server gave it, as it does from resty without
// conditions; an error of the Stack's comes back as it is, for errors.Is and
// errors.As. For all the rest conditions, hooks, SetRetryAfter and waits are what
// they are in resty, be they set before Install or after.
//
// One thing that resty retries by itself is not retried: a POST or PATCH that may
// have reached the server, when the connection is lost, a timeout ends the wait
// for the answer, or the answer breaks off. It may have been carried out, and
// billed. As for the Stack itself, RetryPolicy.AllMethods, or an Idempotency-Key
// on the request, allows it. (An answer that says 500 is the conditions' business.)
//
// # Bodies
//
// Resty reads an io.Reader anew for each attempt, and sends what is left of it,
// which is nothing. Under Install, later attempts send what the first one sent,
// also in multipart forms. A body that a hook replaces, rewinds or writes is sent
// as the hook left it; only a multipart form that has become shorter is taken
// for one whose readers have been read up.
//
// With SetDoNotParseResponse the answer's body is the server's, unread and not
// buffered; a refused one that is handed back is the caller's to close, as ever.
//
// # Order
//
// Install comes last, after everything that resty does to an *http.Transport,
// because the client's transport is none afterwards: SetProxy, RemoveProxy,
// SetTLSClientConfig, SetCertificates and the setters of root and client
// certificates then log an error and do nothing, and Client.Transport returns
// one. To change such things later, keep the *http.Transport and change it, or
// make the client over one with resty.NewWithClient or SetTransport before Install.
//
// Two settings come after Install: Client.SetDigestAuth, which puts back at each
// call the transport that it has found when it was set; and SetTransport with a
// RoundTripper that wraps the client's, to stand between resty and the Stack.
// SetTransport with anything else takes the Stack out of the client.
//
// SetTimeout bounds each attempt of resty's with all that the Stack waits for in
// it; a wait that the timeout would cut short is not begun, and the refusal
// handed back at once. To bound the whole call, give its context a deadline.
//
// Clones share their parent's http.Client, and with it transport and Stack: see
// [Install].
//
// # Contexts
//
// During a call Request.Context is one over that which the request was given, and
// afterwards it is that one again. A hook may put values or a deadline over it,
// but two things are lost then: a hook that gives the request a context which
// is not derived from the one it finds takes the call's attempts out of their
// turn; and if that context was made by context.WithCancel or its like, resty can
// be kept from retrying a refusal only by an error, [ErrNotRetried]. Deadlines
// that are set on the request before Execute have neither effect.
//
// Resty leaves its loop where the request's context is done, and this is how it
// is ended: from the moment that it has to, until the call has ended, the
// context's Err is context.Canceled. Of the hooks, only those of OnSuccess and
// OnError that were set before Install can see it, and those of OnAfterResponse
// where a refused answer was saved to a file; nothing that was derived from the
// context is cancelled.
package meteredresty
