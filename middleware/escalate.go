package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Escalate is the layer that picks a route for the turn, asks its breaker, and
// takes the whole turn to the next route when this one is given up: by the
// ladder below, or without one by the first refusal; by a server error or a
// connection fault that is left when the Retry below is done, where the
// request may be sent again at all. It never goes back to a route within a turn.
//
// When every route rests, or the last one failed by a refusal that a Ladder
// escalated, it returns a *escalate.Error.
func Escalate(r *escalate.Router) Middleware {
	return func(next http.RoundTripper) http.RoundTripper {
		return newEscalate(linkTo(next), r, retryafter.Reader{}, nil)
	}
}

func newEscalate(next link, r *escalate.Router, reader retryafter.Reader, o Observer) http.RoundTripper {
	if r == nil {
		return &broken{next, errors.New("middleware: Escalate needs a *escalate.Router")}
	}
	if n := r.Routes(); n > maxRoutes {
		return &broken{next, fmt.Errorf("middleware: Escalate takes a Router of at most %d routes, not %d", maxRoutes, n)}
	}
	return &escalateLayer{link: next, router: r, reader: reader, observer: o}
}

// maxRoutes is how many routes a turn can tell apart.
const maxRoutes = 64

type escalateLayer struct {
	link
	router   *escalate.Router
	reader   retryafter.Reader
	observer Observer
}

func (l *escalateLayer) RoundTrip(req *http.Request) (*http.Response, error) {
	return enter(l, req, l.observer)
}

func (l *escalateLayer) roundTrip(t *turn, req *http.Request) (*http.Response, error) {
	if !claim(&t.routed, l) {
		return l.send(t, req) // the Escalate above has this turn
	}
	t.entry.Store(req)
	var permit escalate.Permit
	defer func() {
		t.done(permit, escalate.Outcome{Verdict: escalate.Neutral}) // a panic below; else done already
		t.entry.Store(nil)
	}()
	var failed []error // what the routes given up ended with
	for {
		route, err := l.pick(t, &permit)
		if err != nil {
			return nil, l.router.Exhausted(append(failed, err)...)
		}
		if len(failed) > 0 {
			t.observe(t.Context, Event{Kind: Rerouted, Key: t.quota(), Err: failed[len(failed)-1]})
		}
		r := req
		if len(failed) > 0 || !l.router.Plain(route) {
			if r, err = l.rewrite(route, req); err != nil {
				err = &localError{err}
				t.done(permit, escalate.Outcome{Verdict: escalate.Neutral})
				if route == 0 {
					return nil, err
				}
				// This backup cannot have the request.
				t.leave()
				failed = append(failed, err)
				continue
			}
		}
		resp, err := l.send(t, r)
		closeUnsent(r)
		outcome, reroute := l.weigh(t, r, &resp, &err)
		t.done(permit, outcome)
		if !reroute {
			if err == nil && outcome.Verdict == escalate.Success {
				t.watchStream(req.Context(), resp)
			}
			return resp, err
		}
		t.leave()
		failed = append(failed, err)
	}
}

// pick takes a permit for the first route that is not given up and admits.
func (l *escalateLayer) pick(t *turn, permit *escalate.Permit) (int, error) {
	given := t.left.Load()
	var resting error
	for i := range l.router.Routes() {
		if given&(1<<i) != 0 {
			continue
		}
		p, err := l.router.Allow(i)
		if err != nil {
			var hook *escalate.PanicError
			if errors.As(err, &hook) {
				t.hookPanicked(hook)
			}
			resting = errors.Join(resting, err)
			continue
		}
		*permit = p
		t.mu.Lock()
		t.permit = p
		t.mu.Unlock()
		if t.trouble.Load() != nil {
			t.inTrouble(func(tr *trouble) { tr.refused, tr.spent = 0, false })
		}
		t.route.Store(int32(i))
		t.probe.Store(p.Probe())
		return i, nil
	}
	if resting == nil {
		resting = errNoRouteLeft
	}
	return 0, resting
}

var errNoRouteLeft = errors.New("middleware: no route is left")

// done tells the gate of a route how the call ended there. The first outcome
// counts.
func (t *turn) done(permit escalate.Permit, o escalate.Outcome) {
	if err := permit.Done(o); err != nil {
		t.hookPanicked(err)
	}
}

// leave gives the route in use up for the rest of the turn.
func (t *turn) leave() {
	t.left.Or(1 << t.route.Load())
}

// rewrite returns req as the route wants it, on a copy of its own.
func (l *escalateLayer) rewrite(route int, req *http.Request) (*http.Request, error) {
	r, err := resend(req)
	if err != nil {
		return nil, err
	}
	wrapped := r.Body
	if err := l.router.Rewrite(route, r); err != nil {
		closeUnsent(r)
		return nil, err
	}
	if r.Body != wrapped && hasBody(r) {
		b := new(sendBody)
		r.Body, r.GetBody = adopt(b, r)
	}
	return r, nil
}

// weigh says how a route's send counts with its breaker, and whether the turn
// goes on by another route; then *resp is thrown away, and *err says why.
func (l *escalateLayer) weigh(t *turn, req *http.Request, resp **http.Response, err *error) (escalate.Outcome, bool) {
	if *err == nil {
		return l.weighAnswer(t, req, resp, err)
	}
	neutral := escalate.Outcome{Verdict: escalate.Neutral}
	var escalated *escalate.Error
	var gate errGateOpened
	switch {
	case !alive(req.Context()):
		return neutral, false
	case errors.As(*err, &escalated):
		return outcomeOf(escalated), true
	case errors.As(*err, &gate):
		return neutral, true
	case isLocal(req.Context(), *err):
		return neutral, l.router.RerouteLocal() && t.routeLeft()
	case !isFault(req.Context(), *err):
		return neutral, false
	}
	again := t.resendable(req, retryafter.Signal{}, *err) && t.routeLeft()
	if again {
		*err = &escalate.Error{Key: t.quota(), Kind: escalate.Transport, Attempts: int(t.attempts.Load()), Err: *err}
	}
	return escalate.Outcome{Verdict: escalate.Failure, Kind: escalate.Transport}, again
}

func (l *escalateLayer) weighAnswer(t *turn, req *http.Request, resp **http.Response, err *error) (escalate.Outcome, bool) {
	if (*resp).StatusCode < 400 {
		return escalate.Outcome{}, false
	}
	v := t.judge(*resp, req, l.reader.For(req.URL.Host))
	out := escalate.Outcome{Kind: kindOf(v.sig.Class), RetryAfter: v.rest, HasHint: v.rest > 0}
	switch {
	case v.refused() && t.policy.Load() == nil && t.routeLeft(): // no ladder: the first refusal is enough
		e := t.escalation(*resp, v)
		*resp, *err = nil, e
		return outcomeOf(e), true
	case v.sig.Class == retryafter.QuotaExhausted:
		out.Verdict = escalate.QuotaOut
	case v.refused():
		out.Verdict = escalate.Refused
		if t.exhausted() {
			out.Verdict = escalate.Failure
		}
	default:
		if v.sig.Class == retryafter.ServerError {
			out.Verdict = escalate.Failure
		}
		if t.resendable(req, v.sig, nil) && t.routeLeft() {
			e := t.escalation(*resp, v)
			*resp, *err = nil, e
			return out, true
		}
	}
	return out, false
}

// exhausted reports whether the ladder came to its hard stop on this route.
func (t *turn) exhausted() (spent bool) {
	t.inTrouble(func(tr *trouble) { spent = tr.spent })
	return spent
}

// resendable reports whether the Retry of the turn, or the default one, would
// allow another send.
func (t *turn) resendable(req *http.Request, sig retryafter.Signal, err error) bool {
	policy := t.faults.Load()
	if policy == nil {
		policy = &RetryPolicy{}
	}
	return policy.allows(req, sig, err)
}

// outcomeOf is how an escalation counts with the breaker of its route. A hint of
// zero is no time to rest for: the gate then takes its own Timeout.
func outcomeOf(e *escalate.Error) escalate.Outcome {
	out := escalate.Outcome{Verdict: escalate.Escalated, Kind: e.Kind, RetryAfter: e.RetryAfter, HasHint: e.RetryAfter > 0}
	if e.Kind == escalate.Quota {
		out.Verdict = escalate.QuotaOut
	}
	return out
}

// watchStream has the breaker told when the body of resp, whose headers counted
// as a success, breaks off.
func (t *turn) watchStream(ctx context.Context, resp *http.Response) {
	switch b := resp.Body.(type) {
	case *sending:
		b.watched = true
	case nil, io.Writer: // 101: no end to be judged
	default:
		if resp.Body != http.NoBody {
			resp.Body = &streamBody{ReadCloser: b, failed: func(err error) { t.streamed(ctx, err) }}
		}
	}
}

// streamed books err, which a served answer's body ended with.
func (t *turn) streamed(ctx context.Context, err error) {
	if err != io.EOF && alive(ctx) {
		t.late(escalate.Transport)
	}
}

// late books a failure of kind that came after a served answer's headers.
func (t *turn) late(kind escalate.Kind) {
	t.mu.Lock()
	permit := t.permit
	t.mu.Unlock()
	if err := permit.Late(kind); err != nil {
		t.hookPanicked(err)
	}
}

// streamBody tells of the error that a body ends with.
type streamBody struct {
	io.ReadCloser
	failed func(error)
	ended  atomic.Bool
}

func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !b.ended.Swap(true) {
		b.failed(err)
	}
	return n, err
}

func (b *streamBody) Close() error {
	b.ended.Store(true)
	return b.ReadCloser.Close()
}
