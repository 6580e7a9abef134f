package meteredretryable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/internal/testrig"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// One refusing server costs MaxRetries + 1 sends, whatever retryablehttp is told
// to retry; the answer comes back as it came from the server.
func TestMultiply_RefusalsAreRetriedByTheLadderAlone(t *testing.T) {
	for name, prepare := range map[string]func(*retryablehttp.Client){
		"by default":         func(*retryablehttp.Client) {},
		"always":             func(c *retryablehttp.Client) { c.CheckRetry = always },
		"propagating errors": func(c *retryablehttp.Client) { c.CheckRetry = retryablehttp.ErrorPropagatedRetryPolicy },
		"passed through":     func(c *retryablehttp.Client) { c.ErrorHandler = retryablehttp.PassthroughErrorHandler },
		"with a timeout":     func(c *retryablehttp.Client) { c.HTTPClient.Timeout = time.Hour },
	} {
		for _, status := range []int{429, 503, 529} {
			t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
				virtual(t, func(r rig) {
					client := r.bare(4)
					prepare(client)
					r.install(client, patient(2))
					r.want(status, "slow down")(r.do(client, r.request("POST", payload1())))
					r.WantHits(3)
					r.WantSameBodies(len(payload))
					r.WantElapsed(0, 1)
					r.want(status, "slow down")(r.read(client.StandardClient().Post(apiURL, "application/json", opaque(payload))))
					r.WantHits(6)
					r.WantNothingOpen()
				}, times(-1, metertest.Reply(status, "slow down", "Retry-After", "0")))
			})
		}
	}
}

func payload1() []byte { return []byte(payload) }

// What the comparison is with: the same stack, put under retryablehttp by hand.
func TestMultiply_ByHandForComparison(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.bare(4)
		client.HTTPClient.Transport = testrig.Stack(r, patient(2)).Transport(client.HTTPClient.Transport)
		if _, _, err := r.get(client); err == nil || !strings.Contains(err.Error(), "giving up after 5 attempt(s)") {
			r.Fatalf("got %v", err)
		}
		r.WantHits(5 * 3)
	}, times(-1, refusal("0")))
}

// A refusal by another status, which only the Stack knows for one.
func TestMultiply_AsTheProviderMeansIt(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.bare(4)
		client.CheckRetry = always
		client.HTTPClient.Timeout = time.Hour
		c := patient(2)
		c.Reader = retryafter.Reader{Hosts: map[string]string{"api.example.com": "github"}}
		r.install(client, c)
		status, _, err := r.get(client)
		if err != nil || status != 403 {
			r.Fatalf("got %v, %v", status, err)
		}
		r.WantHits(3)
	}, times(-1, metertest.Reply(403, `{"message":"You have exceeded a secondary rate limit."}`, "Retry-After", "1")))
}

// Refusals of ours and escalations end the call at once; they are found in what
// retryablehttp makes of them.
func TestTurn_RefusalsOfOursAreNotRetried(t *testing.T) {
	t.Run("no budget before the deadline", func(t *testing.T) {
		virtual(t, func(r rig) {
			c := patient(2)
			c.Bucket = bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}, Headroom: 1}
			client := r.bare(4)
			client.HTTPClient.Timeout = 10 * time.Second
			r.install(client, c)
			r.want(200, "ok")(r.get(client))
			_, _, err := r.get(client)
			var wait *bucket.WaitError
			var asURL *url.Error
			if !errors.As(err, &wait) || !errors.As(err, &asURL) || !errors.Is(err, context.DeadlineExceeded) {
				r.Fatalf("got %v", err)
			}
			if !strings.Contains(err.Error(), "giving up after 1 attempt(s)") {
				r.Errorf("got %v", err)
			}
			r.WantHits(1)
			r.WantElapsed(0, 1)
		}, ok200())
	})
	t.Run("every route rests", func(t *testing.T) {
		virtual(t, func(r rig) {
			router, err := escalate.New(escalate.Config{Primary: escalate.Route{Name: "primary"}})
			if err != nil {
				r.Fatal(err)
			}
			c := patient(1)
			c.Router = router
			client := r.client(4, c)
			for range 20 { // exhausted ladders, until the breaker opens
				if _, _, err = r.get(client); err != nil {
					break
				}
			}
			var escalated *escalate.Error
			if !errors.As(err, &escalated) {
				r.Fatalf("got %v", err)
			}
			hits, begin := r.Provider.Hits(), time.Now()
			if _, _, err := r.get(client); !errors.As(err, &escalated) || time.Since(begin) != 0 {
				r.Fatalf("got %v, after %v", err, time.Since(begin))
			}
			r.WantHits(hits)
		}, times(-1, refusal("0")))
	})
	t.Run("cancelled while waiting", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(4, patient(2))
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			_, _, err := r.do(client, r.request("GET", nil).WithContext(ctx))
			var refused *retryafter.RefusedError
			if !errors.Is(err, context.Canceled) || !errors.As(err, &refused) || refused.Status != 429 {
				r.Fatalf("got %v", err)
			}
			r.WantHits(1)
			r.WantElapsed(100*time.Millisecond, 100*time.Millisecond+1)
		}, times(-1, refusal("30")))
	})
}

// Transport faults are retryablehttp's to retry, by its own count, its own waits
// and the user's policy, beyond what the stack's own budget did.
func TestTurn_TransportFaultsStayTheHosts(t *testing.T) {
	reset := times(-1, fault(metertest.ResetAfter))
	t.Run("by default", func(t *testing.T) {
		virtual(t, func(r rig) {
			_, _, err := r.get(r.client(4, patient(2)))
			if err == nil || !strings.Contains(err.Error(), "giving up after 5 attempt(s)") {
				r.Fatalf("got %v", err)
			}
			r.WantHits(1 + 4)
			r.WantElapsed((1+2+4+8)*time.Second, (1+2+4+8)*time.Second+1)
		}, reset)
	})
	t.Run("the stack's budget once for all attempts", func(t *testing.T) {
		for _, timeout := range []time.Duration{0, time.Hour} {
			virtual(t, func(r rig) {
				c := patient(2)
				c.Retry = middleware.RetryPolicy{MaxRetries: 2}
				client := r.bare(4)
				client.HTTPClient.Timeout = timeout
				r.install(client, c)
				r.get(client)
				r.WantHits(1 + 2 + 4)
			}, reset)
		}
	})
	t.Run("as the policy says", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.bare(4)
			client.CheckRetry = never
			r.install(client, patient(2))
			r.get(client)
			r.WantHits(1)
		}, reset)
		virtual(t, func(r rig) {
			quota := errors.New("quota")
			client := r.bare(4)
			client.CheckRetry = func(context.Context, *http.Response, error) (bool, error) { return false, quota }
			r.install(client, patient(2))
			if _, _, err := r.get(client); !errors.Is(err, quota) {
				r.Fatalf("got %v", err)
			}
			r.WantHits(1)
		}, reset)
	})
	t.Run("which is asked, also about refusals, and may have its own error", func(t *testing.T) {
		mine := errors.New("mine")
		for _, c := range []struct {
			again bool
			err   error
			want  error
		}{{true, nil, nil}, {true, mine, nil}, {false, mine, mine}, {false, nil, nil}} {
			virtual(t, func(r rig) {
				asked := 0
				client := r.bare(4)
				client.CheckRetry = func(_ context.Context, resp *http.Response, err error) (bool, error) {
					if asked++; resp == nil || resp.StatusCode != 429 || err != nil {
						r.Errorf("asked about %v, %v", resp, err)
					}
					return c.again, c.err
				}
				r.install(client, patient(2))
				status, body, err := r.get(client)
				if !errors.Is(err, c.want) || c.want == nil && (status != 429 || body != "slow down") || asked != 1 {
					r.Errorf("%v: got %v %q, %v, asked %d times", c, status, body, err, asked)
				}
				r.WantHits(3)
				r.WantNothingOpen()
			}, times(-1, refusal("0")))
		}
	})
	t.Run("which sees the errors as they are", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.bare(2)
			cause := &cause{}
			client.HTTPClient.Transport = roundTripper(func(*http.Request) (*http.Response, error) { return nil, cause })
			seen := 0
			client.CheckRetry = func(_ context.Context, _ *http.Response, err error) (bool, error) {
				if u, ok := err.(*url.Error); !ok || u.Err != error(cause) || !u.Timeout() {
					r.Errorf("the policy sees %#v", err)
				}
				seen++
				return true, nil
			}
			r.install(client, patient(2))
			_, _, err := r.get(client)
			var u *url.Error
			if !errors.As(err, &u) || u.Err != error(cause) || seen != 3 {
				r.Errorf("got %v after %d", err, seen)
			}
			// Who uses the http.Client by itself sees it by errors.As.
			_, err = client.HTTPClient.Get(apiURL)
			if !errors.As(err, &u) || !u.Timeout() || !u.Temporary() || !errors.Is(err, cause) || u.Err.Error() != "cause" {
				r.Errorf("got %v", err)
			}
		})
	})
}

type cause struct{}

func (*cause) Error() string   { return "cause" }
func (*cause) Timeout() bool   { return true }
func (*cause) Temporary() bool { return true }

// Answers that are no refusals are the policy's to judge, and its doing is
// retryablehttp's, as ever.
func TestTurn_OtherAnswersStayTheHosts(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(4, patient(2))
		r.want(200, "ok")(r.do(client, r.request("POST", payload1())))
		r.WantHits(4)
	}, metertest.Reply(500, ""), refusal("1"), metertest.Reply(502, ""), ok200())
	virtual(t, func(r rig) {
		client := r.client(2, patient(2))
		if _, _, err := r.get(client); err == nil || !strings.Contains(err.Error(), "giving up after 3 attempt(s)") {
			r.Fatalf("got %v", err)
		}
		r.WantHits(3)
		r.WantNothingOpen()
	}, times(-1, metertest.Reply(500, "x")))
	virtual(t, func(r rig) {
		client := r.bare(2)
		client.CheckRetry = func(_ context.Context, resp *http.Response, _ error) (bool, error) {
			return resp.StatusCode == 404, nil
		}
		r.install(client, patient(2))
		r.want(500, "x")(r.get(client))
		r.WantHits(3)
	}, times(2, metertest.Reply(404, "")), metertest.Reply(500, "x"))
}

// One turn for all attempts: what the first has spent of the rate-limit budget,
// the later ones have not. Hooks may be set when and to what they will.
func TestTurn_AttemptsShareTheBudget(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(*retryablehttp.Client)
		failure       metertest.Answer
	}{
		"no hooks":    {failure: fault(metertest.ResetAfter)},
		"an answer":   {failure: metertest.Reply(500, "")},
		"a policy's":  {failure: metertest.Reply(404, ""), before: func(c *retryablehttp.Client) { c.CheckRetry = always }},
		"time enough": {failure: fault(metertest.ResetAfter), after: func(c *retryablehttp.Client) { c.HTTPClient.Timeout = time.Hour }},
		"a RequestLogHook": {failure: fault(metertest.ResetAfter), after: func(c *retryablehttp.Client) {
			c.RequestLogHook = func(_ retryablehttp.Logger, req *http.Request, _ int) {
				*req = *req.WithContext(context.WithValue(req.Context(), key{}, 1))
				req.Header = req.Header.Clone()
			}
		}},
		"a PrepareRetry": {failure: fault(metertest.ResetAfter), after: func(c *retryablehttp.Client) {
			c.PrepareRetry = func(req *http.Request) error {
				req.Header = http.Header{"Authorization": {"again"}}
				req.URL.RawQuery = "again"
				return nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				client := r.bare(4)
				if c.before != nil {
					c.before(client)
				}
				r.install(client, patient(3))
				if c.after != nil {
					c.after(client)
				}
				r.want(429, "slow down")(r.get(client))
				r.WantHits(6)
			}, refusal("0"), refusal("0"), c.failure, refusal("0"), c.failure, times(-1, refusal("0")))
		})
	}
}

// So it is where http.Client's own Timeout ends the attempts, and hides which.
func TestTurn_TimedOutAttemptsShareTheBudget(t *testing.T) {
	virtual(t, func(r rig) {
		c := patient(2)
		c.Retry = middleware.RetryPolicy{MaxRetries: 2}
		client := r.client(3, c)
		client.HTTPClient.Timeout = 10 * time.Second
		r.get(client)
		r.WantHits(3 + 3)
	}, times(2, fault(metertest.ResetAfter)), times(2, fault(metertest.Hang)), times(-1, fault(metertest.ResetAfter)))
}

// A Request that is used again is another call, however the last one ended.
func TestTurn_AReusedRequestIsAnotherCall(t *testing.T) {
	reset := fault(metertest.ResetAfter)
	t.Run("refused", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(4, patient(2))
			req := r.request("POST", payload1())
			for i := range 3 {
				r.want(429, "slow down")(r.do(client, req))
				r.WantHits(3 * (i + 1))
			}
			r.WantSameBodies(len(payload))
		}, times(-1, refusal("0")))
	})
	again := func(name string, first func(r rig, client *retryablehttp.Client, req *retryablehttp.Request) error, answers ...metertest.Answer) {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				client := r.bare(1)
				req := r.request("GET", nil)
				if err := first(r, client, req); err == nil {
					r.Fatal("no error")
				}
				hits := r.Provider.Hits()
				r.want(429, "slow down")(r.do(client, req))
				r.WantHits(hits + 3)
			}, append(answers, times(-1, refusal("0")))...)
		})
	}
	again("after all attempts", func(r rig, client *retryablehttp.Client, req *retryablehttp.Request) error {
		r.install(client, patient(2))
		_, err := client.Do(req)
		return err
	}, refusal("0"), reset, refusal("0"), reset)
	again("after timeouts", func(r rig, client *retryablehttp.Client, req *retryablehttp.Request) error {
		c := patient(2)
		c.Retry = middleware.RetryPolicy{MaxRetries: 1}
		r.install(client, c)
		client.HTTPClient.Timeout = time.Second
		_, err := client.Do(req)
		r.WantHits(3)
		client.HTTPClient.Timeout = 0
		client.RetryMax = 0 // so that the next fault is the stack's
		_, _, _ = r.do(client, r.request("HEAD", nil))
		return err
	}, reset, fault(metertest.Hang), fault(metertest.Hang), ok200())
	again("after a policy's no", func(r rig, client *retryablehttp.Client, req *retryablehttp.Request) error {
		client.CheckRetry = never
		r.install(client, patient(2))
		_, err := client.Do(req)
		return err
	}, refusal("0"), reset)
	again("cancelled between attempts", func(r rig, client *retryablehttp.Client, req *retryablehttp.Request) error {
		r.install(client, patient(2))
		ctx, cancel := context.WithTimeout(r.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := client.Do(req.WithContext(ctx))
		return err
	}, refusal("0"), reset)
	again("ended by a deadline, where there is a Timeout too", func(r rig, client *retryablehttp.Client, req *retryablehttp.Request) error {
		r.install(client, patient(2))
		client.HTTPClient.Timeout = time.Hour
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		_, err := client.Do(req.WithContext(ctx))
		return err
	}, refusal("0"), fault(metertest.Hang))
	t.Run("what the answer's context sends", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(4, patient(2))
			ctx := r.Context()
			for i := range 3 {
				req, _ := retryablehttp.NewRequestWithContext(ctx, "GET", apiURL, nil)
				resp, err := client.Do(req)
				r.want(429, "slow down")(r.read(resp, err))
				r.WantHits(3 * (i + 1))
				ctx = resp.Request.Context()
			}
		}, times(-1, refusal("0")))
	})
}

// A ResponseHandler decides about an answer only after CheckRetry has; the turn
// goes on if it has another attempt made.
func TestTurn_ResponseHandlers(t *testing.T) {
	notYet := errors.New("not yet")
	t.Run("another attempt", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(4, patient(2))
			req := r.request("POST", payload1())
			req.SetResponseHandler(func(resp *http.Response) error {
				b, _ := io.ReadAll(resp.Body)
				resp.Body = io.NopCloser(strings.NewReader(string(b)))
				if string(b) != "ready" {
					return notYet
				}
				return nil
			})
			r.want(200, "ready")(r.do(client, req))
			r.WantHits(4)
		}, ok200(), refusal("0"), ok200(), metertest.Reply(200, "ready"))
	})
	t.Run("the turn is the same", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(4, patient(2))
			req := r.request("GET", nil)
			req.SetResponseHandler(func(resp *http.Response) error {
				if resp.StatusCode == 200 {
					return notYet
				}
				return nil
			})
			r.want(429, "slow down")(r.do(client, req))
			r.WantHits(6)
		}, ok200(), refusal("0"), ok200(), refusal("0"), ok200(), refusal("0"))
	})
	t.Run("a refusal it does not like", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(4, patient(2))
			req := r.request("GET", nil)
			req.SetResponseHandler(func(resp *http.Response) error { return notYet })
			if _, _, err := r.do(client, req); !errors.Is(err, notYet) {
				r.Fatalf("got %v", err)
			}
			r.WantHits(3)
			r.WantNothingOpen()
		}, times(-1, refusal("0")))
	})
}

// The hooks stay the user's: set before Install or after, they run as they do
// without a stack, with the same things.
func TestTurn_HooksStayTheUsers(t *testing.T) {
	hooks := func(c *retryablehttp.Client, log *[]string) {
		c.RequestLogHook = func(_ retryablehttp.Logger, req *http.Request, n int) {
			*log = append(*log, fmt.Sprint("request ", n, " ", req.Context().Value(key{})))
		}
		c.ResponseLogHook = func(_ retryablehttp.Logger, resp *http.Response) {
			*log = append(*log, fmt.Sprint("response ", resp.StatusCode, " ", resp.Request.Context().Value(key{})))
		}
		c.PrepareRetry = func(req *http.Request) error {
			*log = append(*log, fmt.Sprint("prepare ", req.Context().Value(key{})))
			return nil
		}
		c.Backoff = func(min, max time.Duration, n int, resp *http.Response) time.Duration {
			*log = append(*log, fmt.Sprint("backoff ", n))
			return time.Second
		}
		c.ErrorHandler = func(resp *http.Response, err error, n int) (*http.Response, error) {
			*log = append(*log, fmt.Sprint("error ", n))
			return resp, err
		}
	}
	script := []metertest.Answer{fault(metertest.ResetAfter), metertest.Reply(500, ""), metertest.Reply(404, "no"), times(-1, fault(metertest.ResetAfter))}
	run := func(prepare func(r rig, log *[]string) *retryablehttp.Client) (log []string) {
		virtual(t, func(r rig) {
			client := prepare(r, &log)
			ctx := context.WithValue(r.Context(), key{}, "mine")
			r.want(404, "no")(r.do(client, r.request("GET", nil).WithContext(ctx)))
			if _, _, err := r.do(client, r.request("GET", nil).WithContext(ctx)); err == nil {
				r.Error("no error")
			}
		}, script...)
		return log
	}
	want := run(func(r rig, log *[]string) *retryablehttp.Client {
		client := r.bare(2)
		hooks(client, log)
		return client
	})
	if len(want) != 6+1+2+7+1 {
		t.Fatalf("without a stack they ran as %q", want)
	}
	for name, after := range map[string]bool{"set before": false, "set after": true} {
		got := run(func(r rig, log *[]string) *retryablehttp.Client {
			client := r.bare(2)
			if !after {
				hooks(client, log)
			}
			r.install(client, patient(2))
			if after {
				hooks(client, log)
			}
			return client
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s they ran as %q, want %q", name, got, want)
		}
	}
}

// Redirects stay within the call's turn, in each attempt.
func TestTurn_Redirects(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Hour} {
		virtual(t, func(r rig) {
			client := r.client(4, patient(2))
			client.HTTPClient.Timeout = timeout
			r.want(429, "slow down")(r.do(client, r.request("PUT", payload1())))
			r.WantHits(7)
			r.WantSameBodies(len(payload))
		}, metertest.Reply(307, "", "Location", "/elsewhere"), refusal("0"), fault(metertest.ResetAfter),
			metertest.Reply(307, "", "Location", "/elsewhere"), refusal("0"), fault(metertest.ResetAfter), refusal("0"), ok200())
	}
}

// http.Client's Timeout bounds an attempt with all that is waited for in it, and
// a wait that it would cut short is not begun.
func TestTurn_TimeoutCoversWaits(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(4, patient(5))
		client.HTTPClient.Timeout = 10 * time.Second
		r.want(429, "slow down")(r.get(client))
		r.WantHits(3)
		r.WantElapsed(8*time.Second, 8*time.Second+1)
	}, times(-1, refusal("4")))
	virtual(t, func(r rig) {
		client := r.client(1, patient(5))
		client.HTTPClient.Timeout = 10 * time.Second
		_, _, err := r.get(client)
		var u *url.Error
		if !errors.As(err, &u) || !u.Timeout() {
			r.Fatalf("got %v", err)
		}
		r.WantHits(2) // a fault, as retryablehttp sees it: it comes again
	}, times(-1, fault(metertest.Hang)))
}

// A plain http.Client over the installed transport has a turn as always.
func TestTurn_TheHTTPClientItself(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(4, patient(2))
		r.want(429, "slow down")(r.read(client.HTTPClient.Get(apiURL)))
		r.WantHits(3)
	}, times(-1, refusal("0")))
}

// Many calls of a client at once keep out of each other's way.
func TestTurn_ConcurrentCalls(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(2, patient(2))
		done := make(chan error)
		for range 50 {
			go func() {
				status, _, err := r.do(client, r.request("PUT", payload1()))
				if err == nil && status != 429 {
					err = errors.New(http.StatusText(status))
				}
				done <- err
			}()
		}
		for range 50 {
			if err := <-done; err != nil {
				r.Error(err)
			}
		}
		r.WantHits(50 + 150)
		r.WantSameBodies(len(payload))
	}, times(50, fault(metertest.ResetAfter)), times(-1, refusal("0")))
}

// Calls that share one URL, between attempts all at once, end as they should.
func TestTurn_ConcurrentCallsWithOneURL(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(2, patient(2))
		shared := r.request("GET", nil)
		done := make(chan error)
		for range 50 {
			go func() {
				status, _, err := r.do(client, shared.WithContext(context.Background()))
				if err == nil && status != 429 {
					err = errors.New(http.StatusText(status))
				}
				done <- err
			}()
		}
		for range 50 {
			if err := <-done; err != nil {
				r.Error(err)
			}
		}
		r.WantHits(50 + 150)
	}, times(50, fault(metertest.ResetAfter)), times(-1, refusal("0")))
}

// A call that was cancelled while it waited for its budget ends as one that was
// cancelled without a stack.
func TestTurn_ACallCancelledInTheQueueSaysNoMore(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.client(2, patient(2))
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		_, err := client.Do(r.request("GET", nil).WithContext(ctx))
		if want := "GET " + apiURL + " giving up after 1 attempt(s): context canceled"; err == nil || err.Error() != want {
			r.Errorf("got %v, want %s", err, want)
		}
		r.WantHits(0)
	})
}
