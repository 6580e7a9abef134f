package retryafter

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
)

// localError is an error that says by its type that it is no server's.
type localError struct{ error }

func (localError) Local() bool { return true }

func TestDetect(t *testing.T) {
	limited := Signal{Class: RateLimited, Retryable: true}
	overloaded := Signal{Class: Overloaded, Retryable: true}
	quota := Signal{Class: QuotaExhausted}
	none := Signal{}
	for _, test := range []struct {
		name string
		err  error
		want Signal
	}{
		{"no error is none", nil, none},
		{"a nil RefusedError is none", (*RefusedError)(nil), none},
		{"an error of another kind is none", errors.New("connection refused"), none},
		{"a RefusedError is believed", &RefusedError{Signal: quota, Status: 429}, quota},
		{"a wrapped RefusedError is believed", &url.Error{Op: "Post", URL: "https://x", Err: fmt.Errorf("turn: %w", &RefusedError{Signal: overloaded})}, overloaded},
		{"a RefusedError outranks its cause", &RefusedError{Signal: quota, Err: context.Canceled}, quota},
		{"a RefusedError outranks the text", fmt.Errorf("429: %w", &RefusedError{Signal: quota}), quota},
		{"a joined RefusedError is found", errors.Join(errors.New("x"), &RefusedError{Signal: quota}), quota},
		{"a text with rate limit", errors.New("Rate limit exceeded"), limited},
		{"a text with rate limit and another status", errors.New("HTTP 503: rate limit exceeded"), limited},
		{"a text with the number", errors.New("server said 429"), limited},
		{"a text of the form HTTP 429", errors.New("HTTP 429: slow down"), limited},
		{"a text that is the number", errors.New("429"), limited},
		{"a status before the number", errors.New("status:429"), limited},
		{"a number in JSON", errors.New(`{"code":429,"x":1}`), limited},
		{"a number at the end of a sentence", errors.New("got status code 429."), limited},
		{"a text of the form HTTP 503", errors.New("HTTP 503: unavailable"), overloaded},
		{"a text of the form HTTP 529", errors.New("upstream: http 529: busy"), overloaded},
		{"a text that ends after the status", errors.New("HTTP 503"), overloaded},
		{"another status of that form", errors.New("HTTP 500: oops"), none},
		{"503 in another form", errors.New("503 widgets"), none},
		{"a longer status", errors.New("HTTP 5031: x"), none},
		{"a number within a longer one", errors.New("took 4290 ms, id 1429"), none},
		{"a number within a word", errors.New("req_429a"), none},
		{"a number with decimals", errors.New("429.5 seconds, 1.429 more"), none},
		{"a port", errors.New("dial tcp 10.0.0.1:429: connection refused"), none},
		{"a port of a name", errors.New("dial tcp api.example.com:429: i/o timeout"), none},
		{"a port of this machine", errors.New("dial tcp localhost:429: i/o timeout"), none},
		{"a path", errors.New(`Get "https://x/v1/429": EOF`), none},
		{"an issue", errors.New("see #429"), none},
		{"an identifier", errors.New("abc-429 and 429-abc"), none},
		{"later occurrences count", errors.New("request 14290 failed with 429"), limited},
		{"a stated wait is kept", errors.New("HTTP 429: please try again in 1m30s."), Signal{Class: RateLimited, Retryable: true, HasHint: true, RetryAfter: 90 * time.Second}},
		{"a cancelled wait is local", fmt.Errorf("waiting for the rate limit: %w", context.Canceled), none},
		{"a missed deadline is local", fmt.Errorf("rate limit wait: %w", context.DeadlineExceeded), none},
		{"a refusal of ours is local", fmt.Errorf("Post: %w", localError{errors.New("rate limit")}), none},
		{"a refusal of ours within others is local", errors.Join(errors.New("429"), localError{errors.New("full")}), none},
		{"another program's bucket is not ours", errors.New("bucket: my-bucket: HTTP 429: slow down"), limited},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := Detect(test.err)
			if ok != !reflect.DeepEqual(test.want, none) || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, %v; want %+v", got, ok, test.want)
			}
		})
	}
}

func TestRefusedErrorTellsItsStory(t *testing.T) {
	err := error(&RefusedError{
		Signal: Signal{Class: RateLimited, HasHint: true, RetryAfter: 61 * time.Second},
		Status: 429, Attempts: 2, Err: context.DeadlineExceeded,
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error("does not match its cause")
	}
	for _, part := range []string{"retryafter: ", "429", "rate_limited", "1m1s", "attempts 2", context.DeadlineExceeded.Error()} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	if errors.Unwrap(&RefusedError{}) != nil {
		t.Error("no cause is not nil")
	}
}
