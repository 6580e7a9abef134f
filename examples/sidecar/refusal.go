package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A refusal is an answer of the sidecar's own, in the form that the SDKs of OpenAI
// and Anthropic read errors in.
type refusal struct {
	status     int
	kind, code string
	message    string
	retryAfter time.Duration // 0: not said
}

// statusClientGone is nginx's word for a client that did not wait for the answer.
const statusClientGone = 499

// explain says what an error of the Stack means to the caller.
func explain(err error) refusal {
	var gaveUp *escalate.Error
	var wait *bucket.WaitError
	var timeout net.Error
	r := refusal{message: err.Error()}
	switch {
	case errors.As(err, &gaveUp) && gaveUp.RetryAfter > 0:
		r.status, r.kind, r.code, r.retryAfter = http.StatusTooManyRequests, "rate_limit_error", "no_route", gaveUp.RetryAfter
	case errors.As(err, &wait): // before the timeouts: it matches those too
		r.status, r.kind, r.code, r.retryAfter = http.StatusTooManyRequests, "rate_limit_error", "no_budget", max(1, wait.Wait)
	case gaveUp != nil && gaveUp.Kind == escalate.Overloaded:
		r.status, r.kind, r.code = http.StatusServiceUnavailable, "overloaded_error", "no_route"
	case gaveUp != nil && gaveUp.Kind == escalate.Quota:
		r.status, r.kind, r.code = http.StatusTooManyRequests, "rate_limit_error", "insufficient_quota"
	case gaveUp != nil && limited(gaveUp):
		r.status, r.kind, r.code = http.StatusTooManyRequests, "rate_limit_error", "no_route"
	case errors.Is(err, context.Canceled):
		r.status, r.kind, r.code = statusClientGone, "api_error", "client_gone"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		r.status, r.kind, r.code = http.StatusGatewayTimeout, "timeout_error", "upstream_timeout"
	default:
		r.status, r.kind, r.code = http.StatusBadGateway, "api_error", "upstream_failed"
	}
	return r
}

// limited reports whether e stands for a rate limit's refusal. That kind is the
// zero one, which it also has where no route ended with an escalation.
func limited(e *escalate.Error) bool {
	var one *escalate.Error
	return e.Kind == escalate.RateLimit && (e.Attempts > 0 || errors.As(e.Err, &one))
}

func (r refusal) write(w http.ResponseWriter) {
	body, err := json.Marshal(map[string]any{
		"type":  "error",
		"error": map[string]string{"type": r.kind, "code": r.code, "message": r.message},
	})
	if err != nil { // strings always marshal
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(wholeSeconds(r.retryAfter), 10))
	}
	w.WriteHeader(r.status)
	w.Write(append(body, '\n'))
}

// lastRefusals gives a provider's refusal itself, rather than the error that tells
// why it was not waited out: a wait longer than -wait, say. With a backup there may
// be several refusals, and the error stays.
type lastRefusals struct{ http.RoundTripper }

func (l lastRefusals) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(req)
	var gaveUp *escalate.Error
	var refused *retryafter.RefusedError
	if err == nil || errors.As(err, &gaveUp) || !errors.As(err, &refused) {
		return resp, err
	}
	if len(refused.Body) >= retryafter.BodyLimit { // it is not whole
		return nil, err
	}
	h := refused.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Del("Content-Length")
	var wait *bucket.WaitError
	if h.Get("Retry-After") == "" && errors.As(err, &wait) {
		h.Set("Retry-After", strconv.FormatInt(wholeSeconds(wait.Wait), 10))
	}
	return &http.Response{
		StatusCode: refused.Status, Status: strconv.Itoa(refused.Status) + " " + http.StatusText(refused.Status),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(refused.Body)), ContentLength: int64(len(refused.Body)), Request: req,
	}, nil
}

// wholeSeconds rounds up: a caller that comes a fraction of a second early is
// refused again. It is never 0.
func wholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(1, s)
}
