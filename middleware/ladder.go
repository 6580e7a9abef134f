package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Ladder is the layer that answers refusals: it waits as the server asks and
// sends again, within p's budget of its own, and when that is spent gives the
// route up or hands the last answer back. A wholly zero p means
// [retryafter.DefaultPolicy].
//
// With a Pace layer below it does not sleep itself: the key is held, and the
// call queues for it again, in its old place.
//
// A call that is given up returns a *escalate.Error where another route exists;
// a call whose wait is cancelled, or whose next send is refused locally,
// returns a *retryafter.RefusedError that wraps the reason.
func Ladder(p retryafter.Policy) Middleware {
	return func(next http.RoundTripper) http.RoundTripper {
		return newLadder(linkTo(next), p, retryafter.Reader{}, nil)
	}
}

func newLadder(next link, p retryafter.Policy, r retryafter.Reader, o Observer) http.RoundTripper {
	p = p.OrDefault()
	if err := p.Validate(); err != nil {
		return &broken{next, fmt.Errorf("middleware: ladder: %w", err)}
	}
	return &ladderLayer{link: next, policy: p, reader: r, observer: o}
}

type ladderLayer struct {
	link
	policy   retryafter.Policy
	reader   retryafter.Reader
	observer Observer
}

func (l *ladderLayer) RoundTrip(req *http.Request) (*http.Response, error) {
	return enter(l, req, l.observer)
}

func (l *ladderLayer) roundTrip(t *turn, req *http.Request) (*http.Response, error) {
	if !claim(&t.policy, &l.policy) {
		return l.send(t, req) // the ladder above has this turn
	}
	var last *retryafter.RefusedError
	for r := req; ; {
		resp, err := l.send(t, r)
		if err != nil {
			closeUnsent(r)
			if last != nil && isLocal(req.Context(), err) {
				last.Err = err
				return nil, last
			}
			return nil, err
		}
		if resp.StatusCode < 400 {
			return resp, nil
		}
		v := t.judge(resp, req, l.reader.For(req.URL.Host))
		if !v.refused() {
			return resp, nil
		}
		switch v.act {
		case retryafter.Escalate:
			err := t.escalation(resp, v)
			t.observe(t.Context, Event{Kind: Escalated, Key: err.Key, Status: resp.StatusCode, Class: v.sig.Class, Wait: err.RetryAfter, Err: err})
			return nil, err
		case retryafter.Return:
			t.stop(v, l.policy.MaxRetries)
			return resp, nil
		}
		if r, err = resend(req); err != nil {
			return resp, nil // it cannot be sent again
		}
		last = t.refusal(resp, v)
		t.climb()
		if !v.held {
			if err := t.sleep(req.Context(), time.Until(v.at)+v.wait); err != nil {
				closeUnsent(r)
				last.Err = err
				return nil, last
			}
		}
	}
}

// stop notes whether the ladder is at its end with this refusal, rather than
// turned back by a deadline or a spent quota.
func (t *turn) stop(v verdict, maxRetries int) {
	t.inTrouble(func(tr *trouble) {
		tr.spent = v.sig.Retryable && v.sig.Class != retryafter.QuotaExhausted && tr.resends >= maxRetries
	})
}

// isLocal reports whether err is a refusal of our own, or the caller's leaving,
// rather than something that the network or the server did.
func isLocal(ctx context.Context, err error) bool {
	if !alive(ctx) {
		return true
	}
	var local interface {
		error
		Local() bool
	}
	return errors.As(err, &local) && local.Local()
}
