package meteredretryable

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// checkRetry is the client's CheckRetry over the usual one. That is asked as ever,
// and is not followed where it wants another attempt at what the Stack has dealt
// with, or at what must not be carried out twice; nor where it has only the
// context's end to tell of a refusal, which has more.
func (t *transport) checkRetry(client *retryablehttp.Client, usual retryablehttp.CheckRetry) retryablehttp.CheckRetry {
	if usual == nil {
		usual = retryablehttp.DefaultRetryPolicy
	}
	return func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		a := attemptOf(resp, err)
		if last := t.unnamed.take(); a == nil && resp == nil && isTimeout(err) {
			a = last
		}
		again, checkErr := usual(ctx, resp, err)
		switch {
		case dealtWith(a, resp, err):
			if again || ctx.Err() != nil && !onlyCancelled(ctx, err) {
				again, checkErr = false, nil
			}
		case again && t.onlyOnce(a, err):
			again, checkErr = false, nil
		}
		switch {
		case a == nil:
		case again && a.call.attempts <= client.RetryMax:
			t.waiting.add(ctx, a.call, waitOf(client.RetryWaitMax))
		case err != nil:
			t.waiting.remove(a.call)
		}
		return again, checkErr
	}
}

// dealtWith reports whether the Stack has done what can be done. The attempt is
// unknown where a RoundTripper outside of ours has made an answer or an error of
// its own.
func dealtWith(a *attempt, resp *http.Response, err error) bool {
	if a != nil && a.dealt {
		return true
	}
	return a == nil && resp != nil && middleware.Handled(resp, nil) || err != nil && middleware.Handled(nil, err)
}

// onlyCancelled reports whether err has nothing to tell but that the caller has
// cancelled, which is then said in retryablehttp's words.
func onlyCancelled(ctx context.Context, err error) bool {
	var refused *retryafter.RefusedError
	var gaveUp *escalate.Error
	return ctx.Err() == context.Canceled && !errors.As(err, &refused) && !errors.As(err, &gaveUp)
}

// onlyOnce reports whether the request has perhaps been carried out, and must
// not be a second time.
func (t *transport) onlyOnce(a *attempt, err error) bool {
	if a != nil {
		return a.once || a.body.broken.Load()
	}
	// All that is known of it is its method, which *url.Error spells "Post".
	var u *url.Error
	return errors.As(err, &u) && u.Timeout() &&
		!t.stack.Resendable(&http.Request{Method: strings.ToUpper(u.Op)}, nil)
}

// isTimeout reports whether err is what http.Client returns for a timeout.
func isTimeout(err error) bool {
	u, ok := err.(*url.Error)
	return ok && u.Timeout()
}
