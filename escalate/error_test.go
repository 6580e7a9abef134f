package escalate

import (
	"context"
	"errors"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/sony/gobreaker/v2"
)

func TestErrorsAreReachableThroughWrapping(t *testing.T) {
	cause := context.DeadlineExceeded
	err := error(&url.Error{Op: "Post", URL: "https://p", Err: &Error{Key: "p", Kind: Overloaded, Attempts: 4,
		RetryAfter: 1500 * time.Millisecond, Err: errors.Join(gobreaker.ErrTooManyRequests, cause)}})
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, gobreaker.ErrTooManyRequests) || !errors.Is(err, cause) {
		t.Fatal("not reachable")
	}
	want := "escalate: p: overloaded after 4 attempts, retry after 1.5s: too many requests\ncontext deadline exceeded"
	if e.Error() != want {
		t.Errorf("%q, want %q", e.Error(), want)
	}
	if got := (&Error{Attempts: 1}).Error(); got != "escalate: rate_limit after 1 attempt" {
		t.Errorf("%q", got)
	}
}

func TestNames(t *testing.T) {
	var got []string
	for k := RateLimit; k <= Transport+1; k++ {
		got = append(got, k.String())
	}
	for v := Success; v <= Refused+1; v++ {
		got = append(got, v.String())
	}
	want := []string{"rate_limit", "overloaded", "quota", "server", "transport", "kind(5)",
		"success", "neutral", "failure", "escalated", "quota_out", "refused", "verdict(?)"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}
