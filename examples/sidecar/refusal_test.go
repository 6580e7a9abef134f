package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"net/http"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

func TestWhatAnErrorMeansToTheAgent(t *testing.T) {
	wait := &bucket.WaitError{Key: "k", Wait: 1500 * time.Millisecond}
	for _, c := range []struct {
		name       string
		err        error
		status     int
		retryAfter string
	}{
		{"no budget", wait, 429, "2"},
		{"no budget for a resend", &retryafter.RefusedError{Status: 429, Err: wait}, 429, "2"},
		{"no budget, through others", fmt.Errorf("post: %w", wait), 429, "2"},
		{"every route rests", &escalate.Error{RetryAfter: 12 * time.Second}, 429, "12"},
		{"every route rests, one by a hair", &escalate.Error{RetryAfter: time.Nanosecond}, 429, "1"},
		{"no budget at once", &bucket.WaitError{}, 429, "1"},
		{"a route failed", &escalate.Error{Kind: escalate.Transport, Err: syscall.ECONNREFUSED}, 502, ""},
		{"a server failed", &escalate.Error{Kind: escalate.Server, Attempts: 2}, 502, ""},
		{"refused by all, for nobody knows how long", &escalate.Error{Kind: escalate.RateLimit, Attempts: 6}, 429, ""},
		{"the same of several routes", &escalate.Error{Err: errors.Join(errors.New("x"), &escalate.Error{Kind: escalate.RateLimit})}, 429, ""},
		{"all are overloaded", &escalate.Error{Kind: escalate.Overloaded, Attempts: 6}, 503, ""},
		{"no credit", &escalate.Error{Kind: escalate.Quota, Attempts: 1}, 429, ""},
		{"no route can have it", &escalate.Error{Err: errors.New("x")}, 502, ""},
		{"cannot be reached", syscall.ECONNREFUSED, 502, ""},
		{"too late", fmt.Errorf("x: %w", context.DeadlineExceeded), 504, ""},
		{"a network's timeout", fmt.Errorf("x: %w", os.ErrDeadlineExceeded), 504, ""},
		{"the agent has gone", fmt.Errorf("x: %w", context.Canceled), 499, ""},
		{"anything else", errors.New("x"), 502, ""},
	} {
		w := httptest.NewRecorder()
		explain(c.err).write(w)
		if w.Code != c.status || w.Header().Get("Retry-After") != c.retryAfter {
			t.Errorf("%s: %d, Retry-After %q; want %d, %q", c.name, w.Code, w.Header().Get("Retry-After"), c.status, c.retryAfter)
		}
	}
}

func TestSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 1, -time.Second: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 65*time.Second + 700*time.Millisecond: 66, 1<<63 - 1: 9223372037,
	} {
		if got := wholeSeconds(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}

func TestAnUpstreamThatCannotBeReachedIsABadGateway(t *testing.T) {
	for _, c := range []struct {
		name   string
		base   http.RoundTripper
		status int
	}{
		{"refused", refusingConnections(), 502},
		{"timeout", roundTripper(func(req *http.Request) (*http.Response, error) {
			req.Body.Close()
			return nil, os.ErrDeadlineExceeded
		}), 504},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := started(t, toProvider(t), c.base)
			if a := s.do(t, request(t, t.Context(), "/", small)); a.status != c.status || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d %s, want %d", c.name, a.status, a.body, c.status)
			}
		})
	}
}

func refusingConnections() http.RoundTripper {
	return metertest.New(metertest.Config{Script: []metertest.Answer{{Fault: metertest.DialError, Times: -1}}}).Transport()
}
