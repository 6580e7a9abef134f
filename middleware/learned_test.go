package middleware_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// An answer from a cache states what held when it was stored: it teaches nothing.
//
// Proved able to fail: read the windows of answers with an Age.
func TestOnlyFreshAnswersTeach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for age, want := range map[string]int{"": 1, "0": 1, "30": 0} {
			stack, err := middleware.New(middleware.Config{})
			if err != nil {
				t.Fatal(err)
			}
			rt := stack.Transport(answering(func(r *http.Request) *http.Response {
				h := http.Header{"X-Ratelimit-Limit-Requests": {"60"}, "X-Ratelimit-Remaining-Requests": {"59"}, "X-Ratelimit-Reset-Requests": {"1s"}}
				if age != "" {
					h.Set("Age", age)
				}
				return &http.Response{StatusCode: 200, Header: h, Body: http.NoBody, Request: r}
			}))
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			time.Sleep(time.Second)
			levels := stack.Stats().Keys[0].Budget.Levels
			if len(levels) != want {
				t.Errorf("Age %q: learned %+v", age, levels)
			}
			if want == 1 && (levels[0].Limit != bucket.PerMinute(bucket.Requests, 60) || levels[0].Capacity != 54 || levels[0].Own != 1) {
				t.Errorf("Age %q: learned %+v", age, levels[0])
			}
		}
	})
}

type answering func(*http.Request) *http.Response

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }
