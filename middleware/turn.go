package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A turn is one logical call, however many layers and host clients retry it.
// It keeps what must be counted once per call: the rate-limit retries, the
// transport retries, the route in use and the place in the queue. The outermost
// layer starts it; layers below find it in the request's context, or are handed
// it by their neighbour, and join.
//
// A turn is its own context: it embeds the caller's and answers for turnKey.
// It also is the copy of the request that carries it, and the body of request
// and answer, so that a served call allocates it and nothing else here.
//
// A foreign RoundTripper between our layers may send twice at once (a hedge),
// so whatever is not set before the first send is guarded by mu.
type turn struct {
	context.Context // the caller's

	observer Observer
	hosted   bool // started by Stack.Turn

	// Whose turn it is: of two layers of a kind the outermost, by first claim.
	policy atomic.Pointer[retryafter.Policy]
	faults atomic.Pointer[RetryPolicy]
	router atomic.Pointer[escalate.Router]
	pace   atomic.Pointer[paceLayer]

	route    atomic.Int32  // the route in use
	left     atomic.Uint64 // the routes given up, as bits
	attempts atomic.Int32  // sends, all routes together
	probe    atomic.Bool   // permit is a probe's: the gate's next move hangs on this turn
	over     atomic.Bool   // the outermost layer has returned: nobody joins any more
	joined   atomic.Bool   // copy and body are in use, in a host's turn
	unsent   atomic.Bool   // a host's last send under the turn never reached a server

	mu      sync.Mutex
	permit  escalate.Permit // for the route in use
	trouble atomic.Pointer[trouble]
	hookErr atomic.Pointer[error] // the first panic of a hook of the user's

	entry atomic.Pointer[http.Request] // the request as it came to Escalate
	out   atomic.Pointer[http.Request] // the request that a stranger has now
	copy  http.Request                 // the request that the turn was started with, under the turn
	body  sendBody                     // its body
	first sending                      // the first send through Pace
}

// trouble is what a turn keeps once something has gone wrong with it: a call
// that is served at once has none. Guarded by the turn's mu.
type trouble struct {
	resends  int    // rate-limit retries spent, all routes together
	refused  int    // refusals on this route
	failures int    // transport retries spent
	key      string // that the last failed send was charged to
	placeKey string // where place counts
	place    bucket.Place
	judged   *http.Response // the failed answer that verdict is about
	verdict  verdict
	stale    bool // something was sent since
	spent    bool // the ladder came to its hard stop
}

// inTrouble runs f on the turn's trouble, under mu.
func (t *turn) inTrouble(f func(*trouble)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr := t.trouble.Load()
	if tr == nil {
		tr = new(trouble)
		t.trouble.Store(tr)
	}
	f(tr)
}

type turnKey struct{}

// Value answers for the turn itself, and for the caller's context.
func (t *turn) Value(key any) any {
	if key == (turnKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// turnOf returns the turn that ctx belongs to and that still runs, or nil.
func turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	if t == nil || t.over.Load() {
		return nil
	}
	return t
}

// carries reports whether req, which a stranger below the turn sends, is the
// turn's own request on its way down, and not another one that the stranger
// makes for it: one that refreshes a token, say. A stranger may put a request to
// another host, below another path, or on the same host strip a prefix of its
// path; it leaves the method alone and does not change where the path ends.
func (t *turn) carries(req *http.Request) bool {
	out := t.out.Load()
	if out == nil { // between two attempts of a host
		return true
	}
	a, b := out.URL.Path, req.URL.Path
	below := len(a) > 1 && strings.HasSuffix(b, a)
	stripped := len(b) > 1 && strings.HasSuffix(a, b) && out.URL.Host == req.URL.Host
	return out.Method == req.Method && (a == b || below || stripped)
}

// enter runs l for a request that came from outside this package: it joins the
// turn of the request's context, or starts one.
func enter(l layer, req *http.Request, o Observer) (*http.Response, error) {
	if req.URL == nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, errors.New("middleware: nil Request.URL")
	}
	if t := turnOf(req.Context()); t != nil && t.carries(req) {
		return t.join(l, req)
	}
	t := &turn{Context: req.Context(), observer: o}
	t.copy = *req.WithContext(t) // into the turn: what WithContext makes stays on the stack
	r := &t.copy
	r.Body, r.GetBody = adopt(&t.body, req)
	defer t.end()
	resp, err := l.roundTrip(t, r)
	if resp != nil && resp.Request == r {
		resp.Request = req
	}
	return t.surface(resp, err)
}

// join runs l within the turn for a request that a foreign layer has had in
// its hands.
func (t *turn) join(l layer, req *http.Request) (*http.Response, error) {
	r := req
	if hasBody(req) {
		var b *sendBody
		if t.hosted && !t.joined.Swap(true) { // nobody has started this turn by a request
			t.copy = *req.WithContext(req.Context())
			r, b = &t.copy, &t.body
		} else {
			r, b = req.WithContext(req.Context()), new(sendBody)
		}
		r.Body, r.GetBody = adopt(b, req)
		defer b.end()
	}
	resp, err := l.roundTrip(t, r)
	t.unsent.Store(err != nil && neverSent(r, err))
	if resp != nil && resp.Request == r {
		resp.Request = req
	}
	return t.surface(resp, err)
}

// end closes the turn: nobody joins it any more. A body that never left this
// package is closed here, also when a layer panics; so early refusals need not.
func (t *turn) end() {
	t.over.Store(true)
	t.body.end()
	if t.trouble.Load() != nil { // the body of the last answer may keep the turn for long
		t.inTrouble(func(tr *trouble) { tr.judged, tr.verdict = nil, verdict{} })
	}
}

// surface makes a hook's panic that request's error. A host's turn goes on: its
// next request is not to fail for it again.
func (t *turn) surface(resp *http.Response, err error) (*http.Response, error) {
	hookErr := t.hookFailed()
	if hookErr == nil {
		return resp, err
	}
	if t.hosted {
		t.hookErr.Store(nil)
	}
	if resp != nil {
		resp.Body.Close()
	}
	return nil, hookErr
}

// hook runs f, a function of the user's, and keeps a panic of it for surface.
func (t *turn) hook(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			t.hookPanicked(&hookError{what, p})
		}
	}()
	f()
}

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

// hookError is a panic of a user's function.
type hookError struct {
	what  string
	value any
}

func (e *hookError) Error() string {
	return fmt.Sprintf("middleware: %s panicked: %v", e.what, e.value)
}

// Unwrap returns the panic's value, where that is an error.
func (e *hookError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// localError is an error that we made before anything was sent, and that no
// type or sentinel of ours tells apart from a fault of the network: a Limiter's
// own, a Cost's, a rewrite's.
type localError struct{ error }

func (e *localError) Unwrap() error { return e.error }
func (e *localError) Local() bool   { return true }

// left returns the time to the deadline of ctx, and whether it has one.
func left(ctx context.Context) (time.Duration, bool) {
	d, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	return time.Until(d), true
}

// claim makes own the turn's if it has none yet, and reports whether it is:
// of two layers of one kind in a chain, the outer one does the work and the
// inner one passes through.
func claim[T any](slot *atomic.Pointer[T], own *T) bool {
	return slot.Load() == own || slot.CompareAndSwap(nil, own)
}

// hookPanicked makes err, a panic of a hook of the user's, the turn's error.
func (t *turn) hookPanicked(err error) { t.hookErr.CompareAndSwap(nil, &err) }

// hookFailed returns the error that a panic of a hook has become, or nil.
func (t *turn) hookFailed() error {
	if err := t.hookErr.Load(); err != nil {
		return *err
	}
	return nil
}

// climb counts one rate-limit retry.
func (t *turn) climb() { t.inTrouble(func(tr *trouble) { tr.resends++ }) }

// setPlace keeps the turn's place in the queue of key, from its first arrival.
func (t *turn) setPlace(key string, p bucket.Place) {
	t.inTrouble(func(tr *trouble) { tr.placeKey, tr.place = key, p })
}

// placeIn returns the turn's place in the queue of key, if it was there before.
func (t *turn) placeIn(key string) (p bucket.Place, ok bool) {
	if t.trouble.Load() == nil {
		return p, false
	}
	t.inTrouble(func(tr *trouble) { p, ok = tr.place, tr.placeKey == key && tr.place != bucket.Place{} })
	return p, ok
}

// quota returns the key of the route in use, or "" without a router.
func (t *turn) quota() string {
	if r := t.router.Load(); r != nil {
		return r.Quota(int(t.route.Load()))
	}
	return ""
}

// failedKey returns the key that the turn's last failed send was charged to; the
// route's, where no Pace is below.
func (t *turn) failedKey() (key string) {
	t.inTrouble(func(tr *trouble) { key = tr.key })
	if key == "" {
		key = t.quota()
	}
	return key
}

// routeLeft reports whether the turn could go on by another route: one that is
// untried in it and whose gate admits now, with a body that can be sent again.
func (t *turn) routeLeft() bool {
	router := t.router.Load()
	if router == nil || !replayable(t.entry.Load()) {
		return false
	}
	tried := t.left.Load() | 1<<t.route.Load()
	for i := range router.Routes() {
		if tried&(1<<i) == 0 {
			if ok, _ := router.Admits(i); ok {
				return true
			}
		}
	}
	return false
}

// resting reports whether the gate of the turn's route has opened under it:
// whoever has waited looks, and goes no further.
func (t *turn) resting() bool {
	if t.router.Load() == nil {
		return false
	}
	t.mu.Lock()
	permit := t.permit
	t.mu.Unlock()
	ok, _ := permit.Admits()
	return !ok
}

// errGateOpened ends the waits of a turn whose route came to rest meanwhile.
// It never reaches a caller: Escalate reroutes, or returns its own error.
type errGateOpened struct{ key string }

func (e errGateOpened) Error() string {
	return "middleware: the breaker of " + e.key + " opened while waiting"
}

func (e errGateOpened) Local() bool { return true }

// gateContext is a context for a wait under a router: it ends when its parent
// does, or when the gate of the turn's route opens. It costs nothing until
// somebody really waits on it, that is, asks for Done.
type gateContext struct {
	context.Context
	t    *turn
	wait atomic.Pointer[gateWait]
}

type gateWait struct {
	done   chan struct{}
	ended  atomic.Bool
	opened atomic.Bool // it ended because the gate opened
	stops  [2]func()
}

func (c *gateContext) Done() <-chan struct{} {
	if w := c.wait.Load(); w != nil {
		return w.done
	}
	w := &gateWait{done: make(chan struct{})}
	if !c.wait.CompareAndSwap(nil, w) {
		return c.wait.Load().done
	}
	w.stops[0] = c.t.router.Load().Watch(int(c.t.route.Load()), func() { w.end(true) })
	stop := context.AfterFunc(c.Context, func() { w.end(false) })
	w.stops[1] = func() { stop() }
	return w.done
}

func (w *gateWait) end(opened bool) {
	if !w.ended.Swap(true) {
		w.opened.Store(opened)
		close(w.done)
	}
}

// Err is the parent's error, or context.Canceled when the gate opened.
func (c *gateContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if w := c.wait.Load(); w != nil && w.opened.Load() {
		return context.Canceled
	}
	return nil
}

// release ends the watch and reports whether the gate opened during the wait.
// Whoever waited has returned.
func (c *gateContext) release() bool {
	w := c.wait.Load()
	if w == nil {
		return false
	}
	for _, stop := range w.stops {
		stop()
	}
	return w.opened.Load()
}

// sleep waits for d on behalf of the turn. It returns the context's error when
// that ends first, and errGateOpened when the route came to rest meanwhile.
func (t *turn) sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		wait := ctx
		var gate *gateContext
		if t.router.Load() != nil && !t.probe.Load() {
			gate = &gateContext{Context: ctx, t: t}
			wait = gate
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-wait.Done():
		}
		if gate != nil {
			gate.release()
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.resting() {
		return errGateOpened{t.quota()}
	}
	return nil
}
