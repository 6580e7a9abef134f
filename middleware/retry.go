package middleware

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// RetryPolicy is the budget for transport faults: connections refused, reset or
// cut, and answers 500, 502, 504 and 408, which say that the server failed, not
// that the caller is too fast. It is kept apart from the ladder's: refusals
// (429, 503, 529) are none of its business. The zero value is the default.
type RetryPolicy struct {
	MaxRetries int           // retries of one call; 0 means 3, negative none
	BaseDelay  time.Duration // before the first retry, doubling after; 0 means 100 ms, negative no wait
	MaxDelay   time.Duration // cap on a wait, also on one that a Retry-After asks for; 0 means 10 s
	// AllMethods also sends again what may have been acted on: a POST or PATCH
	// whose connection was lost, or which the server answered with a 5xx. Such a
	// call may then be carried out, and billed, twice. Without it these methods
	// are sent again only if nothing was written, or if the request carries an
	// Idempotency-Key.
	AllMethods bool
}

// Jitter of the waits: up to this share more or less.
const retryJitter = 0.1

func (p RetryPolicy) orDefault() RetryPolicy {
	switch {
	case p.MaxRetries == 0:
		p.MaxRetries = 3
	case p.MaxRetries < 0:
		p.MaxRetries = 0
	}
	switch {
	case p.BaseDelay == 0:
		p.BaseDelay = 100 * time.Millisecond
	case p.BaseDelay < 0:
		p.BaseDelay = 0
	}
	if p.MaxDelay == 0 {
		p.MaxDelay = 10 * time.Second
	}
	return p
}

// Validate names what is wrong with p, or returns nil.
func (p RetryPolicy) Validate() error {
	p = p.orDefault()
	switch {
	case p.MaxDelay < 0:
		return fmt.Errorf("middleware: RetryPolicy.MaxDelay is negative: %v", p.MaxDelay)
	case p.MaxDelay < p.BaseDelay:
		return fmt.Errorf("middleware: RetryPolicy.MaxDelay %v is under BaseDelay %v", p.MaxDelay, p.BaseDelay)
	}
	return nil
}

// backoff is the wait before retry n, counted from 0.
func (p RetryPolicy) backoff(n int) time.Duration {
	d := p.BaseDelay
	for ; n > 0 && d < p.MaxDelay; n-- {
		d *= 2
	}
	d = min(d, p.MaxDelay)
	return d + time.Duration((2*rand.Float64()-1)*retryJitter*float64(d))
}

// Retry is the layer that sends again after transport faults, as p says. It
// retries a fault only while the caller still wants the answer, and never what
// a layer of ours refused.
func Retry(p RetryPolicy) Middleware {
	return func(next http.RoundTripper) http.RoundTripper {
		return newRetry(linkTo(next), p, retryafter.Reader{}, nil)
	}
}

func newRetry(next link, p RetryPolicy, r retryafter.Reader, o Observer) http.RoundTripper {
	if err := p.Validate(); err != nil {
		return &broken{next, err}
	}
	return &retryLayer{link: next, policy: p.orDefault(), reader: r, observer: o}
}

type retryLayer struct {
	link
	policy   RetryPolicy
	reader   retryafter.Reader
	observer Observer
}

func (l *retryLayer) RoundTrip(req *http.Request) (*http.Response, error) {
	return enter(l, req, l.observer)
}

func (l *retryLayer) roundTrip(t *turn, req *http.Request) (*http.Response, error) {
	if !claim(&t.faults, &l.policy) {
		return l.send(t, req) // the Retry above has this turn
	}
	for r := req; ; {
		resp, err := l.send(t, r)
		closeUnsent(r)
		if err == nil && resp.StatusCode < 400 {
			return resp, nil
		}
		var sig retryafter.Signal
		if err == nil {
			sig = t.judge(resp, req, l.reader.For(r.URL.Host)).sig
		}
		if !l.policy.allows(r, sig, err) {
			return resp, err
		}
		n, ok := t.fail(l.policy.MaxRetries)
		wait := max(l.policy.backoff(n), min(sig.RetryAfter, l.policy.MaxDelay))
		if rest, has := left(req.Context()); !ok || has && wait > rest {
			return resp, err
		}
		next, replayErr := resend(req)
		if replayErr != nil {
			return resp, err
		}
		e := Event{Kind: Retried, Key: t.failedKey(), Wait: wait, Err: err}
		if resp != nil {
			e.Status, e.Class = resp.StatusCode, sig.Class
			discard(resp)
		}
		t.observe(t.Context, e)
		r = next
		if err := t.sleep(req.Context(), wait); err != nil {
			closeUnsent(r)
			return nil, err
		}
	}
}

// fail counts a transport retry, and reports whether the budget still had one;
// n is how many were spent before.
func (t *turn) fail(budget int) (n int, ok bool) {
	t.inTrouble(func(tr *trouble) {
		if n = tr.failures; n < budget {
			tr.failures++
			ok = true
		}
	})
	return n, ok
}

// allows reports whether req, whose send ended in err or in an answer of this
// signal, may be sent again: here, or by another route.
func (p RetryPolicy) allows(req *http.Request, sig retryafter.Signal, err error) bool {
	if err == nil {
		failed := sig.Class == retryafter.ServerError || sig.Class == retryafter.Other
		return failed && sig.Retryable && (p.AllMethods || idempotent(req))
	}
	if !isFault(req.Context(), err) {
		return false
	}
	return p.AllMethods || idempotent(req) || neverSent(req, err)
}

// idempotent reports whether req may be carried out twice: by its method
// (RFC 9110, section 9.2.2), or because it carries an idempotency key, as
// net/http's own transport takes it.
func idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header["Idempotency-Key"] != nil || req.Header["X-Idempotency-Key"] != nil
}

// isFault reports whether err is a connection fault: not a decision of ours, not
// the caller's leaving, and nothing that would only happen again.
func isFault(ctx context.Context, err error) bool {
	if isLocal(ctx, err) {
		return false
	}
	var (
		refused   *retryafter.RefusedError
		escalated *escalate.Error
		hook      *hookError
		hookToo   *escalate.PanicError
		cert      *tls.CertificateVerificationError
		unknownCA x509.UnknownAuthorityError
		hostname  x509.HostnameError
	)
	return !errors.As(err, &refused) && !errors.As(err, &escalated) && !errors.As(err, &hook) && !errors.As(err, &hookToo) &&
		!errors.As(err, &cert) && !errors.As(err, &unknownCA) && !errors.As(err, &hostname)
}
