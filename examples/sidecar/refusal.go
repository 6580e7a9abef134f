package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
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
		r.status, r.kind, r.code, r.retryAfter = http.StatusTooManyRequests, "rate_limit_error", "no_budget", wait.Wait
	case errors.Is(err, context.Canceled):
		r.status, r.kind, r.code = statusClientGone, "api_error", "client_gone"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		r.status, r.kind, r.code = http.StatusGatewayTimeout, "timeout_error", "upstream_timeout"
	default:
		r.status, r.kind, r.code = http.StatusBadGateway, "api_error", "upstream_failed"
	}
	return r
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
	if r.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.FormatInt(wholeSeconds(r.retryAfter), 10))
	}
	w.WriteHeader(r.status)
	w.Write(append(body, '\n'))
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
