package middleware

import (
	"fmt"
	"net/http"
)

// Middleware wraps a RoundTripper with a layer. The result must keep the
// RoundTripper contract of the package documentation; metertest.TestRoundTripper
// checks it.
type Middleware func(next http.RoundTripper) http.RoundTripper

// Chain wraps base with layers, the first of them outermost, and returns the
// result. A nil base means [http.DefaultTransport], a nil layer is none; without
// layers Chain returns the base itself.
func Chain(base http.RoundTripper, layers ...Middleware) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	for i := len(layers) - 1; i >= 0; i-- {
		if layers[i] != nil {
			base = layers[i](base)
		}
	}
	return base
}

// layer is what the layers of this package are to each other: neighbours hand
// the turn on directly, without looking it up in the context.
type layer interface {
	http.RoundTripper
	roundTrip(t *turn, req *http.Request) (*http.Response, error)
}

// link is the way from a layer to what lies below it.
type link struct {
	next http.RoundTripper
	ours layer // next, where it is a layer of this package
}

func linkTo(next http.RoundTripper) link {
	if next == nil {
		next = http.DefaultTransport
	}
	ours, _ := next.(layer)
	return link{next: next, ours: ours}
}

// send passes req down. What was made of earlier answers does not hold for the
// one that comes; and the body of a request that leaves this package is from
// then on the business of whoever got it.
func (l link) send(t *turn, req *http.Request) (*http.Response, error) {
	t.forgetVerdict()
	if l.ours != nil {
		return l.ours.roundTrip(t, req)
	}
	if b, ok := req.Body.(*sendBody); ok {
		b.handed.Store(true)
	}
	if t.pace.Load() == nil { // else Pace counts
		t.attempts.Add(1)
	}
	above := t.out.Swap(req)
	resp, err := l.next.RoundTrip(req)
	t.out.Store(above)
	switch { // what net/http's own transport never does, and others may
	case resp == nil && err == nil:
		err = fmt.Errorf("middleware: %T returned neither an answer nor an error", l.next)
	case resp != nil && resp.Body == nil:
		resp.Body = http.NoBody
	}
	return resp, err
}

// CloseIdleConnections passes http.Client.CloseIdleConnections on to the
// transport below.
func (l link) CloseIdleConnections() {
	if c, ok := l.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// broken is a layer built from an invalid configuration: it sends nothing.
type broken struct {
	link
	err error
}

func (b *broken) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, b.err
}
