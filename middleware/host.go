package middleware

import (
	"context"
	"net/http"
)

// Turn starts a turn for a host client that has a retry loop of its own: all
// requests sent through the Stack's transports under the returned context are
// one logical call, with one rate-limit budget, one transport budget and one
// place in the queue, whoever sends them again. A context that is within a turn
// already is returned as it is.
//
// end closes the turn: a context that outlives it starts a new one. It may be
// called more than once, and before the last answer's body is read.
func (s *Stack) Turn(ctx context.Context) (turnCtx context.Context, end func()) {
	if turnOf(ctx) != nil {
		return ctx, func() {}
	}
	t := &turn{Context: ctx, observer: s.config.Observer, hosted: true}
	return t, func() { t.over.Store(true) }
}

// Handled reports whether the layers are done with a call, so that a retry loop
// above must leave it alone: the answer is a refusal that the ladder has waited
// out or given up (429, 503 or 529; within Stack.Turn also what a provider means
// so by another status), or the error is a refusal of ours, an escalation, or a
// hook's panic. Answers and errors that
// say only that the server or the network failed are not handled. resp may be
// nil, and err too.
func Handled(resp *http.Response, err error) bool {
	if err != nil {
		return !isFault(context.Background(), err)
	}
	if resp == nil {
		return false
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, 529:
		return true
	}
	if resp.Request == nil {
		return false
	}
	t, _ := resp.Request.Context().Value(turnKey{}).(*turn)
	if t == nil || t.trouble.Load() == nil {
		return false
	}
	refused := false
	t.inTrouble(func(tr *trouble) {
		refused = tr.judged != nil && tr.judged.StatusCode == resp.StatusCode && tr.verdict.refused()
	})
	return refused
}

// Resendable reports whether a retry loop above the Stack may send req again,
// after a send under a context of Turn that ended in err, by what the Stack's
// RetryPolicy says of methods: always where the request may be carried out
// twice, or AllMethods is set; else only if nothing can have reached a server.
// req is the request as the Stack's transport was given it. It does not say
// that a retry makes sense: see Handled for that.
func (s *Stack) Resendable(req *http.Request, err error) bool {
	if s.config.Retry.AllMethods || idempotent(req) || err != nil && neverSent(req, err) {
		return true
	}
	t, _ := req.Context().Value(turnKey{}).(*turn)
	return t != nil && t.unsent.Load()
}

// Layered reports whether rt is a layer of this package, or a Stack's transport:
// an adapter looks, before it puts a Stack over it. It does not see through
// RoundTrippers of others.
func Layered(rt http.RoundTripper) bool {
	switch rt.(type) {
	case layer, *broken:
		return true
	}
	return false
}
