package meteredresty_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/internal/testrig"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// One refusing server costs MaxRetries + 1 sends, whatever resty is told to
// retry, and by whom; the answer comes back as it came from the server.
func TestMultiply_RefusalsAreRetriedByTheLadderAlone(t *testing.T) {
	onError := func(resp *resty.Response, err error) bool { return err != nil || resp.IsError() }
	for _, c := range []struct {
		name          string
		before, after func(*resty.Client)
		request       func(rig, *resty.Request)
	}{
		{name: "no conditions"},
		{name: "condition before Install", before: func(c *resty.Client) { c.AddRetryCondition(onError) }},
		{name: "condition after Install", after: func(c *resty.Client) { c.AddRetryCondition(onError) }},
		{name: "condition of the request", request: func(_ rig, req *resty.Request) { req.AddRetryCondition(onError) }},
		{name: "SetRetryAfter before Install", before: func(c *resty.Client) { c.AddRetryCondition(always).SetRetryAfter(now) }},
		{name: "SetRetryAfter after Install", after: func(c *resty.Client) { c.AddRetryCondition(always).SetRetryAfter(now) }},
		{name: "AddRetryAfterErrorCondition", after: func(c *resty.Client) { c.AddRetryAfterErrorCondition() }},
		{name: "trace", after: func(c *resty.Client) { c.AddRetryCondition(always).EnableTrace() }},
		{name: "a context of the user's", request: func(r rig, req *resty.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
			r.Cleanup(cancel)
			req.SetContext(ctx).AddRetryCondition(always)
		}},
		{name: "a value put over the context by a hook", after: func(c *resty.Client) {
			c.AddRetryCondition(always).OnBeforeRequest(func(_ *resty.Client, r *resty.Request) error {
				r.SetContext(context.WithValue(r.Context(), key{}, 1))
				return nil
			})
		}},
	} {
		for _, status := range []int{429, 503, 529} {
			t.Run(fmt.Sprint(c.name, " ", status), func(t *testing.T) {
				virtual(t, func(r rig) {
					client := r.bare(3)
					if c.before != nil {
						c.before(client)
					}
					hooked := 0
					client.AddRetryHook(func(*resty.Response, error) { hooked++ })
					r.install(client, patient(2))
					if c.after != nil {
						c.after(client)
					}
					req := client.R()
					if c.request != nil {
						c.request(r, req)
					}
					resp, err := req.Get(apiURL)
					r.wantStatus(resp, err, status)
					if resp.String() != "slow down" {
						r.Errorf("the body is %q", resp.String())
					}
					r.WantHits(3)
					if hooked != 0 {
						r.Errorf("retry hooks ran %d times, for no retry", hooked)
					}
					if err := req.Context().Err(); err != nil {
						r.Errorf("the request's context afterwards: %v", err)
					}
					r.WantNothingOpen()
				}, times(-1, metertest.Reply(status, "slow down", "Retry-After", "0")))
			})
		}
	}
}

type key struct{}

func now(*resty.Client, *resty.Response) (time.Duration, error) { return time.Nanosecond, nil }

// What the comparison is with: the same stack, put under resty by hand.
func TestMultiply_ByHandForComparison(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.bare(3).AddRetryCondition(always)
		client.SetTransport(testrig.Stack(r, patient(2)).Transport(client.GetClient().Transport))
		resp, err := client.R().Get(apiURL)
		r.wantStatus(resp, err, 429)
		r.WantHits(4 * 3)
	}, times(-1, refusal("0")))
}

// A hook that puts a context of its own with a deadline over the call's hides
// from resty that it must stop. Then the way out is an error, and still no send.
func TestMultiply_AForeignContextCostsAnError(t *testing.T) {
	for _, unparsed := range []bool{false, true} {
		virtual(t, func(r rig) {
			client := r.client(3, patient(2)).AddRetryCondition(always)
			client.OnBeforeRequest(func(_ *resty.Client, req *resty.Request) error {
				ctx, cancel := context.WithTimeout(req.Context(), time.Hour)
				r.Cleanup(cancel)
				req.SetContext(ctx)
				return nil
			})
			resp, err := client.R().SetDoNotParseResponse(unparsed).Get(apiURL)
			if !errors.Is(err, meteredresty.ErrNotRetried) || resp.StatusCode() != 429 {
				r.Fatalf("got %v, %v", resp.StatusCode(), err)
			}
			r.WantHits(3)
			r.WantNothingOpen()
		}, times(-1, refusal("0")))
	}
	virtual(t, func(r rig) {
		client := r.client(3, patient(2)).AddRetryCondition(always)
		client.OnBeforeRequest(func(_ *resty.Client, req *resty.Request) error {
			req.SetContext(r.Context())
			return nil
		})
		resp, err := client.R().Get(apiURL)
		if !errors.Is(err, meteredresty.ErrNotRetried) || resp.StatusCode() != 429 {
			r.Fatalf("got %v, %v", resp.StatusCode(), err)
		}
		r.WantHits(3)
	}, times(-1, refusal("0")))
}

// Refusals of ours and escalations end the call at once, as they are.
func TestTurn_RefusalsOfOursAreNotRetried(t *testing.T) {
	t.Run("no budget before the deadline", func(t *testing.T) {
		virtual(t, func(r rig) {
			c := patient(2)
			c.Bucket = bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}, Headroom: 1}
			client := r.client(3, c).SetTimeout(10 * time.Second)
			resp, err := client.R().Get(apiURL)
			r.wantStatus(resp, err, 200)
			_, err = client.R().AddRetryCondition(always).Get(apiURL)
			var wait *bucket.WaitError
			if !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) {
				r.Fatalf("got %v", err)
			}
			r.WantHits(1)
			r.WantElapsed(0, 1)
		})
	})
	t.Run("every route rests", func(t *testing.T) {
		virtual(t, func(r rig) {
			router, err := escalate.New(escalate.Config{Primary: escalate.Route{Name: "primary"}})
			if err != nil {
				r.Fatal(err)
			}
			c := patient(1)
			c.Router = router
			client := r.client(3, c).AddRetryCondition(always)
			for range 20 { // exhausted ladders, until the breaker opens
				if _, err = client.R().Get(apiURL); err != nil {
					break
				}
			}
			var escalated *escalate.Error
			if !errors.As(err, &escalated) {
				r.Fatalf("got %v", err)
			}
			hits, begin := r.Provider.Hits(), time.Now()
			if _, err := client.R().Get(apiURL); !errors.As(err, &escalated) || time.Since(begin) != 0 {
				r.Fatalf("got %v, after %v", err, time.Since(begin))
			}
			r.WantHits(hits)
		}, times(-1, refusal("0")))
	})
	t.Run("cancelled while waiting", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(3, patient(2)).AddRetryCondition(always)
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			_, err := client.R().SetContext(ctx).Get(apiURL)
			var refused *retryafter.RefusedError
			if !errors.Is(err, context.Canceled) || !errors.As(err, &refused) || refused.Status != 429 {
				r.Fatalf("got %v", err)
			}
			r.WantHits(1)
			r.WantElapsed(100*time.Millisecond, 100*time.Millisecond+1)
		}, times(-1, refusal("30")))
	})
}

// Transport faults are resty's to retry, by its own count, its own waits and the
// user's conditions and hooks, beyond what the stack's own budget did.
func TestTurn_TransportFaultsStayRestys(t *testing.T) {
	reset := times(-1, fault(metertest.ResetAfter))
	t.Run("by default", func(t *testing.T) {
		virtual(t, func(r rig) {
			hooked := 0
			client := r.bare(3).AddRetryHook(func(*resty.Response, error) { hooked++ })
			r.install(client, patient(2))
			if _, err := client.R().Get(apiURL); err == nil {
				r.Fatal("no error")
			}
			r.WantHits(1 + 3)
			if hooked != 4 { // as resty does, also after the last
				r.Errorf("retry hooks ran %d times", hooked)
			}
		}, reset)
	})
	t.Run("the stack's budget once for all attempts", func(t *testing.T) {
		virtual(t, func(r rig) {
			c := patient(2)
			c.Retry = middleware.RetryPolicy{MaxRetries: 2}
			r.client(3, c).R().Get(apiURL)
			r.WantHits(1 + 2 + 3)
		}, reset)
	})
	t.Run("as conditions say", func(t *testing.T) {
		virtual(t, func(r rig) {
			never := func(*resty.Response, error) bool { return false }
			r.client(3, patient(2)).AddRetryCondition(never).R().Get(apiURL)
			r.WantHits(1)
		}, reset)
	})
	t.Run("waits as SetRetryAfter says", func(t *testing.T) {
		for _, after := range []bool{false, true} {
			virtual(t, func(r rig) {
				asked := func(*resty.Client, *resty.Response) (time.Duration, error) { return 7 * time.Second, nil }
				client := r.bare(2).SetRetryMaxWaitTime(time.Minute)
				if !after {
					client.SetRetryAfter(asked)
				}
				r.install(client, patient(2))
				if after {
					client.SetRetryAfter(asked)
				}
				resp, err := client.R().Get(apiURL)
				r.wantStatus(resp, err, 200)
				r.WantElapsed(14*time.Second, 14*time.Second+1)
			}, times(2, fault(metertest.ResetAfter)), ok200())
		}
	})
	t.Run("not when SetRetryAfter refuses", func(t *testing.T) {
		virtual(t, func(r rig) {
			quota := errors.New("quota")
			client := r.bare(2).AddRetryCondition(always).SetRetryAfter(func(*resty.Client, *resty.Response) (time.Duration, error) { return 0, quota })
			r.install(client, patient(2))
			if _, err := client.R().Get(apiURL); !errors.Is(err, quota) {
				r.Fatalf("got %v", err)
			}
			r.WantHits(1)
		}, metertest.Reply(404, ""))
	})
}

// Answers that are no refusals are the conditions' to judge.
func TestTurn_OtherAnswersStayRestys(t *testing.T) {
	virtual(t, func(r rig) {
		var hooked []int
		client := r.bare(5).AddRetryHook(func(resp *resty.Response, _ error) { hooked = append(hooked, resp.StatusCode()) })
		r.install(client, patient(2))
		client.AddRetryCondition(func(resp *resty.Response, err error) bool { return resp.StatusCode() >= 400 })
		resp, err := client.R().SetBody("{}").Post(apiURL)
		r.wantStatus(resp, err, 200)
		r.WantHits(5)
		if !slices.Equal(hooked, []int{404, 500, 500}) {
			r.Errorf("retry hooks saw %v", hooked)
		}
	}, metertest.Reply(404, ""), refusal("1"), metertest.Reply(500, ""), metertest.Reply(500, ""), ok200())
}

// One turn for all of resty's attempts: what the first has spent of the
// rate-limit budget, the later ones have not.
func TestTurn_AttemptsShareTheBudget(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(3, patient(3))
		resp, err := client.R().Get(apiURL)
		r.wantStatus(resp, err, 429)
		r.WantHits(6)
	}, refusal("0"), refusal("0"), fault(metertest.ResetAfter), refusal("0"), fault(metertest.ResetAfter), times(-1, refusal("0")))
}

// A Request that is used again is another call; so is a call made by a hook.
func TestTurn_EachCallIsATurnOfItsOwn(t *testing.T) {
	t.Run("a reused request", func(t *testing.T) {
		virtual(t, func(r rig) {
			req := r.client(3, patient(2)).AddRetryCondition(always).R()
			for i := range 3 {
				resp, err := req.Get(apiURL)
				r.wantStatus(resp, err, 429)
				r.WantHits(3 * (i + 1))
			}
		}, times(-1, refusal("0")))
	})
	t.Run("a reused request of one attempt", func(t *testing.T) {
		virtual(t, func(r rig) {
			req := r.client(0, patient(2)).R().EnableTrace()
			for i := range 3 {
				resp, err := req.Get(apiURL)
				r.wantStatus(resp, err, 429)
				r.WantHits(3 * (i + 1))
			}
		}, times(-1, refusal("0")))
	})
	t.Run("a call from a hook", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(1, patient(2))
			inner := 0
			client.OnAfterResponse(func(c *resty.Client, resp *resty.Response) error {
				if resp.Request.Header.Get("Inner") == "" {
					c.R().SetContext(resp.Request.Context()).SetHeader("Inner", "1").Get(apiURL)
					inner = r.Provider.Hits()
				}
				return nil
			})
			resp, err := client.R().Get(apiURL)
			r.wantStatus(resp, err, 429)
			if inner != 6 {
				r.Errorf("%d sends, want 3 of each call", inner)
			}
		}, times(-1, refusal("0")))
	})
	t.Run("also after a panic", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(3, patient(2)).AddRetryCondition(always)
			req := client.R()
			explode := true
			client.OnAfterResponse(func(*resty.Client, *resty.Response) error {
				if explode {
					panic("hook")
				}
				return nil
			})
			func() {
				defer func() { recover() }()
				req.Get(apiURL)
			}()
			r.WantHits(3)
			explode = false
			req.Get(apiURL)
			r.WantHits(6)
			r.WantNothingOpen()
		}, times(-1, refusal("0")))
	})
}

// Hooks run in their order, once for each attempt or call, and find the context
// that the user gave.
func TestTurn_HooksKeepTheirOrder(t *testing.T) {
	virtual(t, func(r rig) {
		var log []string
		note := func(s string) { log = append(log, s) }
		hooks := func(c *resty.Client, name string) {
			c.OnBeforeRequest(func(_ *resty.Client, req *resty.Request) error {
				note(name + "before")
				if req.Context().Value(key{}) != "mine" {
					r.Error("the context's value is gone")
				}
				return nil
			})
			c.OnAfterResponse(func(_ *resty.Client, resp *resty.Response) error {
				note(name + "after")
				if err := resp.Request.Context().Err(); err != nil {
					r.Errorf("OnAfterResponse finds the context ended: %v", err)
				}
				return nil
			})
			c.OnSuccess(func(*resty.Client, *resty.Response) { note(name + "success") })
			c.OnError(func(*resty.Request, error) { note(name + "error") })
		}
		client := r.bare(3)
		hooks(client, "1")
		r.install(client, patient(1))
		hooks(client, "2")
		ctx := context.WithValue(r.Context(), key{}, "mine")
		req := client.R().SetContext(ctx)
		resp, err := req.Get(apiURL)
		r.wantStatus(resp, err, 429)
		if req.Context() != ctx {
			r.Error("the request has another context now")
		}
		if want := "1before 2before 1before 2before 1after 2after 1success 2success"; strings.Join(log, " ") != want {
			r.Errorf("hooks ran as %v", log)
		}
	}, fault(metertest.ResetAfter), times(-1, refusal("0")))
}

// SetTimeout bounds an attempt with all that is waited for in it, and a wait that
// it would cut short is not begun.
func TestTurn_SetTimeoutCoversWaits(t *testing.T) {
	virtual(t, func(r rig) {
		resp, err := r.client(3, patient(5)).SetTimeout(10 * time.Second).R().Get(apiURL)
		r.wantStatus(resp, err, 429)
		r.WantHits(3)
		r.WantElapsed(8*time.Second, 8*time.Second+1)
	}, times(-1, refusal("4")))
	virtual(t, func(r rig) {
		_, err := r.client(1, patient(5)).SetTimeout(10 * time.Second).R().Get(apiURL)
		if !errors.Is(err, context.DeadlineExceeded) {
			r.Fatalf("got %v", err)
		}
		r.WantHits(2) // a fault, as resty sees it: it comes again
	}, times(-1, fault(metertest.Hang)))
}

// Streams that are left to the caller to read are not read ahead and not lost,
// refused ones neither.
func TestTurn_UnparsedStreams(t *testing.T) {
	t.Run("served", func(t *testing.T) {
		var events []metertest.Event
		for i := range 10 {
			events = append(events, metertest.Event{After: 300 * time.Millisecond, Data: metertest.SSE("", fmt.Sprint(i))})
		}
		virtual(t, func(r rig) {
			client := r.client(3, patient(2)).AddRetryCondition(func(resp *resty.Response, err error) bool { return err != nil || resp.IsError() })
			resp, err := client.R().SetDoNotParseResponse(true).SetBody("{}").Post(apiURL)
			r.wantStatus(resp, err, 200)
			r.WantElapsed(time.Second, time.Second+1)
			b := make([]byte, 64)
			n, err := resp.RawBody().Read(b)
			if err != nil || string(b[:n]) != metertest.SSE("", "0") {
				r.Fatalf("read %q, %v", b[:n], err)
			}
			r.WantElapsed(1300*time.Millisecond, 1300*time.Millisecond+1)
			rest, err := io.ReadAll(resp.RawBody())
			if err != nil || strings.Count(string(rest), "data:") != 9 {
				r.Fatalf("read %q, %v", rest, err)
			}
			resp.RawBody().Close()
			r.WantHits(2)
			r.WantNothingOpen()
		}, refusal("1"), metertest.Answer{Status: 200, Events: events})
	})
	t.Run("refused", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(3, patient(2)).AddRetryCondition(always)
			resp, err := client.R().SetDoNotParseResponse(true).Get(apiURL)
			r.wantStatus(resp, err, 429)
			r.WantHits(3)
			b, err := io.ReadAll(resp.RawBody())
			if err != nil || string(b) != "slow down" {
				r.Errorf("read %q, %v", b, err)
			}
			resp.RawBody().Close()
			r.WantNothingOpen()
		}, times(-1, refusal("0")))
	})
	t.Run("saved to a file", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(3, patient(2)).AddRetryCondition(always)
			resp, err := client.R().SetOutput(r.TempDir() + "/answer").Get(apiURL)
			r.wantStatus(resp, err, 429)
			r.WantHits(3)
			r.WantNothingOpen()
		}, times(-1, refusal("0")))
	})
}

// A plain http.Client over the installed transport has a turn as always.
func TestTurn_TheHTTPClientItself(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(3, patient(2))
		resp, err := client.GetClient().Get(apiURL)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests {
			r.Fatalf("got %v, %v", resp, err)
		}
		resp.Body.Close()
		r.WantHits(3)
	}, times(-1, refusal("0")))
}

// Many calls of a client at once keep out of each other's way.
func TestTurn_ConcurrentCalls(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(2, patient(2)).AddRetryCondition(always)
		done := make(chan error)
		for range 50 {
			go func() {
				resp, err := client.R().SetBody(opaque("{}")).Post(apiURL)
				if err == nil && resp.StatusCode() != 429 {
					err = errors.New(resp.Status())
				}
				done <- err
			}()
		}
		for range 50 {
			if err := <-done; err != nil {
				r.Error(err)
			}
		}
		r.WantHits(150)
		r.WantSameBodies(2)
	}, times(-1, refusal("0")))
}
