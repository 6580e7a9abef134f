package metertest

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

// retrier is a correct, simple layer: three more sends after 429, 503 and 500,
// and after an error where the body is replayable. Its flaws are switches, so that
// each broken layer is this one with one thing wrong.
type retrier struct {
	base http.RoundTripper
	flaw flaw
}

func newRetrier(base http.RoundTripper) http.RoundTripper { return &retrier{base: base} }

func (r *retrier) CloseIdleConnections() {
	if c, ok := r.base.(interface{ CloseIdleConnections() }); ok && r.flaw != losesCloseIdle {
		c.CloseIdleConnections()
	}
}

type flaw int

const (
	none flaw = iota
	leaksDropped
	closesAfterTheWait
	drainsWithoutEnd
	drainsWithoutTime
	sendsTheUsedBody
	sendsEmptyWithoutGetBody
	losesGetBody
	losesLength
	losesCloseIdle
	sleepsDeaf
	wrapsErrorsInText
	sharesTheRequest
	closesTheBodyOfAttempts
)

func (r *retrier) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	var attempt = req
	for n := 0; ; n++ {
		if r.flaw == losesGetBody || r.flaw == losesLength {
			attempt = attempt.Clone(ctx)
			if r.flaw == losesGetBody {
				attempt.GetBody = nil
			} else {
				attempt.ContentLength = 0
			}
		}
		resp, err := r.base.RoundTrip(attempt)
		if r.flaw == wrapsErrorsInText && err != nil {
			return nil, textError(err.Error())
		}
		if ctx.Err() != nil || n == 3 || err == nil && !again(resp.StatusCode) {
			return resp, err
		}
		next, ok := r.replay(req, attempt)
		if !ok {
			return resp, err
		}
		wait := time.Second
		if err == nil {
			if s, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil {
				wait = time.Duration(s) * time.Second
			}
			switch r.flaw {
			case leaksDropped, closesAfterTheWait:
			case drainsWithoutEnd:
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			case drainsWithoutTime:
				io.CopyN(io.Discard, resp.Body, 64<<10)
				resp.Body.Close()
			default:
				drop(resp.Body)
			}
		}
		if d, ok := ctx.Deadline(); ok && time.Until(d) < wait {
			if next.Body != nil {
				next.Body.Close()
			}
			return nil, context.DeadlineExceeded
		}
		if r.flaw == sleepsDeaf {
			time.Sleep(wait)
		} else if !rest(ctx, wait) {
			if next.Body != nil {
				next.Body.Close()
			}
			if r.flaw == closesAfterTheWait && err == nil {
				resp.Body.Close()
			}
			return nil, ctx.Err()
		}
		if r.flaw == closesAfterTheWait && err == nil {
			resp.Body.Close()
		}
		attempt = next
	}
}

func again(status int) bool { return status == 429 || status == 503 || status == 500 }

// replay makes the next attempt, if one can be made.
func (r *retrier) replay(req, last *http.Request) (*http.Request, bool) {
	next := req.Clone(req.Context())
	if r.flaw == sharesTheRequest {
		next = last
		next.Header.Set("X-Attempt", "again")
	}
	switch {
	case req.Body == nil || req.Body == http.NoBody:
	case r.flaw == sendsTheUsedBody:
	case req.GetBody == nil && r.flaw == sendsEmptyWithoutGetBody:
		next.Body = http.NoBody
	case req.GetBody == nil:
		return nil, false
	default:
		body, err := req.GetBody()
		if err != nil {
			return nil, false
		}
		if r.flaw == closesTheBodyOfAttempts && last.Body != nil {
			last.Body.Close()
		}
		next.Body = body
	}
	return next, true
}

// drop reads a little, for a little while, and closes.
func drop(body io.ReadCloser) {
	closer := time.AfterFunc(100*time.Millisecond, func() { body.Close() })
	io.CopyN(io.Discard, body, 64<<10)
	closer.Stop()
	body.Close()
}

func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

type textError string

func (e textError) Error() string { return string(e) }
