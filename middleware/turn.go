package middleware

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

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
	routed atomic.Pointer[escalateLayer]
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

// localError is an error that we made before anything was sent, and that no
// type or sentinel of ours tells apart from a fault of the network: a Limiter's
// own, a Cost's, a rewrite's.
type localError struct{ error }

func (e *localError) Unwrap() error { return e.error }

func (e *localError) Local() bool { return true }

// claim makes own the turn's if it has none yet, and reports whether it is:
// of two layers of one kind in a chain, the outer one does the work and the
// inner one passes through.
func claim[T any](slot *atomic.Pointer[T], own *T) bool {
	return slot.Load() == own || slot.CompareAndSwap(nil, own)
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

// router returns the router of the turn's Escalate, or nil.
func (t *turn) router() *escalate.Router {
	if l := t.routed.Load(); l != nil {
		return l.router
	}
	return nil
}

// quota returns the key of the route in use, or "" without a router.
func (t *turn) quota() string {
	if r := t.router(); r != nil {
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
	router, entry := t.router(), t.entry.Load()
	if router == nil || entry == nil || !replayable(entry) {
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
