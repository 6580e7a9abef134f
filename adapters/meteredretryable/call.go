package meteredretryable

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/meteredhttp/meteredhttp/middleware"
)

// call is one logical call of a client, through all of retryablehttp's attempts.
// It may be remembered for a while, so it knows none of its requests: these keep
// their bodies.
type call struct {
	turn     context.Context // that of the Stack's turn
	url      *url.URL        // of the requests that retryablehttp makes for it
	attempts int             // of retryablehttp

	// Where it waits: the context it waits under, and what stops watching that.
	until context.Context
	leave func()
}

// attempt is one request of a call: an attempt of retryablehttp, or what a
// redirect has made of one. It is the context that the request goes down with.
// For the Stack the request is within the turn; for whoever gets at the context
// after the attempt, in the answer's Request, it is not: what he sends is a call
// of its own.
type attempt struct {
	context.Context // the request's own

	call    *call
	request http.Request // as it goes down
	over    atomic.Bool
	dealt   bool // the Stack has dealt with the answer
	once    bool // it failed, and the request must not be carried out twice
	body    onceBody
}

type attemptKey struct{}

// attemptIn returns the attempt that ctx is from, or nil.
func attemptIn(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// Value answers for the attempt, for the request's own context and, while the
// attempt lasts, for the turn.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	if v := a.Context.Value(key); v != nil || a.over.Load() {
		return v
	}
	return a.call.turn.Value(key)
}

// fault is the error that an attempt has failed with, on its way to CheckRetry,
// which takes it off again: so conditions on the error's type keep working.
type fault struct {
	error
	attempt *attempt
}

func (f *fault) Unwrap() error { return f.error }

// Timeout and Temporary are there for *url.Error, which looks no further.
func (f *fault) Timeout() bool {
	t, ok := f.error.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func (f *fault) Temporary() bool {
	t, ok := f.error.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// attemptOf returns the attempt that an answer or an error is of, or nil where
// that cannot be told: net/http makes a text of the error where its own Timeout
// has ended the attempt.
func attemptOf(resp *http.Response, err error) *attempt {
	if resp != nil && resp.Request != nil {
		if a := attemptIn(resp.Request.Context()); a != nil {
			return a
		}
	}
	var f *fault
	if err == nil || !errors.As(err, &f) {
		return nil
	}
	if u, ok := err.(*url.Error); ok && u.Err == error(f) {
		u.Err = f.error
	}
	return f.attempt
}

// RoundTrip sends req through the Stack, as part of the call that it belongs to.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	a := t.begin(req)
	a.request = *req.WithContext(a) // into the attempt: what WithContext makes stays on the stack
	sent := &a.request
	if sent.GetBody == nil && sent.Body != nil {
		sent.GetBody = inMemory(sent.Body)
	}
	resp, err := t.next.RoundTrip(sent)
	if err != nil {
		err = t.failed(a, sent, err)
	} else {
		t.answered(a, sent, resp)
	}
	a.over.Store(true)
	return resp, err
}

// begin finds the call that req belongs to: that of the request which was
// redirected, one that waits to be sent again, or a new one.
func (t *transport) begin(req *http.Request) *attempt {
	t.unnamed.take() // nobody has asked for it
	if redirect := req.Response; redirect != nil && redirect.Request != nil {
		if last := attemptIn(redirect.Request.Context()); last != nil {
			return &attempt{Context: req.Context(), call: last.call}
		}
	}
	if c := t.waiting.take(req.URL); c != nil {
		c.attempts++
		return &attempt{Context: req.Context(), call: c}
	}
	c := &call{url: req.URL, attempts: 1}
	c.turn, _ = t.stack.Turn(req.Context()) // it ends with its attempts
	return &attempt{Context: req.Context(), call: c}
}

// failed is what an attempt that ended in err returns.
func (t *transport) failed(a *attempt, sent *http.Request, err error) error {
	a.once = !t.stack.Resendable(sent, err)
	if t.host.Timeout > 0 && errors.Is(sent.Context().Err(), context.DeadlineExceeded) {
		t.unnamed.put(a) // CheckRetry may not recognize the error
	}
	if _, ok := err.(tls.RecordHeaderError); ok {
		return err // http.Client has a better one
	}
	return &fault{err, a}
}

// answered sees to it that the answer of an attempt leads back to it.
func (t *transport) answered(a *attempt, sent *http.Request, resp *http.Response) {
	switch {
	case resp.Request == nil:
		resp.Request = sent
	case attemptIn(resp.Request.Context()) != a:
		resp.Request = resp.Request.WithContext(a)
	}
	switch {
	case resp.StatusCode >= http.StatusBadRequest && middleware.Handled(resp, nil):
		a.dealt = true
	case !t.stack.Resendable(sent, nil):
		if _, ok := resp.Body.(io.Writer); !ok {
			a.body.ReadCloser = resp.Body
			resp.Body = &a.body
		}
	}
}

// onceBody is the body of the answer to a request that must not be carried out
// twice: it may have been, so a connection that breaks off under the body is no
// reason to come again.
type onceBody struct {
	io.ReadCloser
	broken atomic.Bool
}

func (b *onceBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.broken.Store(true)
	}
	return n, err
}
