package middleware_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Faults that people reported against other clients, each with the case that
// shows that ours has not got it.

func TestFieldReport_A1_EnormousDelayNeverWraps(t *testing.T) {
	for _, n := range []string{"9223372036", "9223372037", "9223372036854775807", "99999999999999999999", "1767225600"} {
		stop := policy(func(p *retryafter.Policy) { p.MaxDelay, p.OverCap = 30*time.Second, retryafter.Stop })
		ways(t, stop, func(t *testing.T, layers ...middleware.Middleware) {
			virtual(t, scripted(refusal(n), ok200()), func(r rig) {
				resp, err := r.chain(layers...).Do(r.request("GET", nil))
				if err != nil {
					r.Fatal(err)
				}
				defer resp.Body.Close()
				r.WantHits(1)
				r.WantElapsed(0, 1)
				if d, ok := retryafter.Parse(resp.Header, time.Now()); !ok || d <= 0 {
					r.Fatalf("%s: the answer exposes %v, %v", n, d, ok)
				}
			})
		})
		clamp := policy(func(p *retryafter.Policy) { p.MaxDelay = 30 * time.Second })
		ways(t, clamp, func(t *testing.T, layers ...middleware.Middleware) {
			virtual(t, scripted(refusal(n), ok200()), func(r rig) {
				r.wantServed(r.chain(layers...), r.request("GET", nil))
				r.WantHits(2)
				r.WantElapsed(30*time.Second, 30*time.Second+1)
			})
		})
	}
}

func TestFieldReport_A2_PastDateIsNowAndNegativeIsAbsent(t *testing.T) {
	jittered := policy(func(p *retryafter.Policy) { p.Jitter = time.Second })
	ways(t, jittered, func(t *testing.T, layers ...middleware.Middleware) {
		virtual(t, scripted(refusal("Wed, 21 Oct 1998 07:28:00 GMT"), ok200()), func(r rig) {
			r.wantServed(r.chain(layers...), r.request("GET", nil))
			r.WantHits(2)
			r.WantElapsed(0, time.Second)
		})
	})
	ways(t, policy(nil), func(t *testing.T, layers ...middleware.Middleware) {
		virtual(t, scripted(refusal("-5"), ok200()), func(r rig) {
			r.wantServed(r.chain(layers...), r.request("GET", nil))
			r.WantHits(2)
			r.WantElapsed(5*time.Second, 5*time.Second+1)
		})
	})
}

func TestFieldReport_A3_AllThreeDateForms(t *testing.T) {
	for _, layout := range []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		ways(t, policy(nil), func(t *testing.T, layers ...middleware.Middleware) {
			virtual(t, metertest.Config{}, func(r rig) {
				time.Sleep(400 * time.Millisecond)
				begin := time.Now()
				at := begin.Truncate(time.Second).Add(7 * time.Second).UTC().Format(layout)
				a := refusal(at)
				a.Header["Date"] = nil
				r.Provider.Script(a, ok200())
				r.wantServed(r.chain(layers...), r.request("GET", nil))
				if d := time.Since(begin); d < 6600*time.Millisecond || d >= 8*time.Second {
					r.Fatalf("%q: waited %v", at, d)
				}
			})
		})
	}
}

func TestFieldReport_A6_CeilingHoldsAndEqualityWaits(t *testing.T) {
	for _, c := range []struct {
		header string
		cap    retryafter.OverCap
		hits   int
		wait   time.Duration
	}{
		{"60", retryafter.Clamp, 2, 60 * time.Second},
		{"60", retryafter.Stop, 2, 60 * time.Second},
		{"61", retryafter.Stop, 1, 0},
		{"61", retryafter.Clamp, 2, 60 * time.Second},
		{"0", retryafter.Clamp, 2, 0},
	} {
		p := policy(func(p *retryafter.Policy) { p.OverCap = c.cap })
		ways(t, p, func(t *testing.T, layers ...middleware.Middleware) {
			virtual(t, scripted(refusal(c.header), ok200()), func(r rig) {
				resp, err := r.chain(layers...).Do(r.request("GET", nil))
				if err != nil {
					r.Fatal(err)
				}
				resp.Body.Close()
				r.WantHits(c.hits)
				r.WantElapsed(c.wait, c.wait+1)
				if d, ok := retryafter.Parse(resp.Header, time.Now()); c.hits == 1 && (!ok || d != 61*time.Second) {
					r.Fatalf("the answer exposes %v, %v", d, ok)
				}
			})
		})
	}
}

func TestFieldReport_B2_SecondaryLimitBy403(t *testing.T) {
	github := "https://api.github.com/repos"
	secondary := `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
	ways(t, policy(nil), func(t *testing.T, layers ...middleware.Middleware) {
		virtual(t, scripted(metertest.Reply(403, secondary), ok200()), func(r rig) {
			req, _ := http.NewRequestWithContext(r.Context(), "GET", github, nil)
			r.wantServed(r.chain(layers...), req)
			r.WantHits(2)
			r.WantElapsed(60*time.Second, 60*time.Second+1)
		})
		virtual(t, scripted(metertest.Reply(403, "Must have admin rights")), func(r rig) {
			req, _ := http.NewRequestWithContext(r.Context(), "GET", github, nil)
			if status, body, err := r.do(r.chain(layers...), req); status != 403 || body != "Must have admin rights" || err != nil {
				r.Fatalf("got %d %q %v", status, body, err)
			}
			r.WantHits(1)
			r.WantElapsed(0, 1)
		})
	})
}

func TestFieldReport_C1_NoSleepTowardsADeadline(t *testing.T) {
	ways(t, policy(nil), func(t *testing.T, layers ...middleware.Middleware) {
		virtual(t, scripted(refusal("600"), ok200()), func(r rig) {
			ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
			defer cancel()
			resp, err := r.chain(layers...).Do(r.request("GET", nil).WithContext(ctx))
			if err != nil {
				r.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 429 {
				r.Fatalf("got %d", resp.StatusCode)
			}
			r.WantHits(1)
			r.WantElapsed(0, 1)
		})
		virtual(t, scripted(refusal("20"), ok200()), func(r rig) { // http.Client.Timeout is a deadline too
			c := r.chain(layers...)
			c.Timeout = 5 * time.Second
			if status, _, err := r.get(c); status != 429 || err != nil {
				r.Fatalf("got %d, %v", status, err)
			}
			r.WantElapsed(0, 1)
		})
	})
	virtual(t, metertest.Config{}, func(r rig) {
		c, _ := r.stack(middleware.Config{Bucket: bucket.Config{Headroom: 1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}}})
		r.wantServed(c, r.request("GET", nil))
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		_, err := c.Do(r.request("GET", nil).WithContext(ctx))
		var wait *bucket.WaitError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &wait) || wait.Wait <= 0 {
			r.Fatalf("got %v", err)
		}
		r.WantHits(1)
		r.WantElapsed(0, 1)
	})
}

func TestFieldReport_C2_EveryWaitEndsWithTheCancel(t *testing.T) {
	ways(t, policy(nil), func(t *testing.T, layers ...middleware.Middleware) {
		virtual(t, scripted(refusal("30"), ok200()), func(r rig) {
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			_, err := r.chain(layers...).Do(r.request("GET", nil).WithContext(ctx))
			if !errors.Is(err, context.Canceled) {
				r.Fatalf("got %v", err)
			}
			var refused *retryafter.RefusedError
			if !errors.As(err, &refused) || refused.Status != 429 || string(refused.Body) != "x" {
				r.Fatalf("the refusal is lost: %v", err)
			}
			r.WantHits(1)
			r.WantElapsed(100*time.Millisecond, 101*time.Millisecond)
		})
	})
	virtual(t, metertest.Config{}, func(r rig) { // cancelled in the queue: the place goes to the next
		c, _ := r.stack(middleware.Config{Bucket: bucket.Config{Headroom: 1, MaxWait: -1,
			Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}}})
		r.wantServed(c, r.request("GET", nil))
		ctx, cancel := context.WithCancel(r.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.Do(r.request("GET", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
				r.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { r.wantServed(c, r.request("GET", nil)) })
		synctest.Wait()
		cancel()
		wg.Wait()
		r.WantHits(2)
		r.WantElapsed(time.Minute, time.Minute+1)
	})
}

func TestFieldReport_C3_LocalLimitMatchesDeadlineExceeded(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		c := r.chain(lazyPace(bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}}))
		r.wantServed(c, r.request("GET", nil))
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := c.Do(r.request("GET", nil).WithContext(ctx))
		var wait *bucket.WaitError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &wait) {
			r.Fatalf("got %v", err)
		}
		r.WantHits(1)
	})
}

func TestFieldReport_D1_EverySendHasTheWholeBody(t *testing.T) {
	payload := make([]byte, 1<<20)
	rand.Read(payload)
	want := sha256.Sum256(payload)
	answers := []metertest.Answer{refusal("0"), metertest.Reply(503, "x", "Retry-After", "0"), ok200()}
	ways(t, policy(nil), func(t *testing.T, layers ...middleware.Middleware) {
		virtual(t, scripted(answers...), func(r rig) {
			r.wantServed(r.chain(layers...), r.request("POST", bytes.NewReader(payload)))
			r.WantHits(3)
			for _, e := range r.Provider.Ledger() {
				if e.BodySHA256 != want || e.BodyLen != int64(len(payload)) {
					r.Fatalf("a send had %d bytes, %x", e.BodyLen, e.BodySHA256)
				}
			}
		})
		virtual(t, scripted(answers...), func(r rig) { // too long to keep, and no GetBody: one send
			pr, pw := io.Pipe()
			go func() { pw.Write(payload); pw.Close() }()
			if status, _, err := r.do(r.chain(layers...), r.request("POST", io.NopCloser(pr))); status != 429 || err != nil {
				r.Fatalf("got %d, %v", status, err)
			}
			r.WantHits(1)
		})
		virtual(t, scripted(answers...), func(r rig) { // short enough to keep
			pr, pw := io.Pipe()
			go func() { pw.Write(payload[:1000]); pw.Close() }()
			r.wantServed(r.chain(layers...), r.request("POST", io.NopCloser(pr)))
			r.WantHits(3)
			for _, e := range r.Provider.Ledger() {
				if e.BodySHA256 != sha256.Sum256(payload[:1000]) {
					r.Fatalf("a send had %d bytes", e.BodyLen)
				}
			}
		})
	})
}

func TestFieldReport_D3_EverySendHasAWorkingGetBody(t *testing.T) {
	stack := middleware.Config{Ladder: policy(nil)}
	for name, body := range map[string]func() io.Reader{
		"replayable": func() io.Reader { return strings.NewReader("payload") },
		"opaque":     func() io.Reader { return text("payload") },
	} {
		t.Run(name+", a transport that asks for it twice", func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				sends := 0
				c, _ := r.over(stack, func(req *http.Request) (*http.Response, error) {
					sends++
					sent, _ := io.ReadAll(req.Body)
					req.Body.Close()
					for range 2 {
						again, err := req.GetBody()
						if err != nil {
							r.Fatalf("send %d: %v", sends, err)
						}
						if b, _ := io.ReadAll(again); string(b) != "payload" || string(sent) != "payload" {
							r.Errorf("send %d: sent %q, GetBody gives %q", sends, sent, b)
						}
						again.Close()
					}
					if name == "replayable" && req.ContentLength != int64(len("payload")) {
						r.Errorf("send %d: ContentLength %d", sends, req.ContentLength)
					}
					if sends == 1 {
						return reply(req, 429, "", "Retry-After", "1"), nil
					}
					return reply(req, 200, "ok"), nil
				})
				r.wantServed(c, r.request("POST", body()))
				if sends != 2 {
					r.Errorf("%d sends", sends)
				}
			})
		})
		t.Run(name+", a 307 and a server that goes away", func(t *testing.T) {
			eachProtocol(t, func(r rig, serve func(http.HandlerFunc) *http.Transport, _ bool) {
				var hits atomic.Int32
				transport := serve(func(w http.ResponseWriter, req *http.Request) {
					b, _ := io.ReadAll(req.Body)
					switch hits.Add(1) {
					case 1:
						w.Header().Set("Connection", "close") // over HTTP/2: GOAWAY
						w.Write(b)
					case 2:
						http.Redirect(w, req, "/elsewhere", http.StatusTemporaryRedirect)
					default:
						w.Write(b)
					}
				})
				c, s := r.over(stack, transport.RoundTrip)
				for range 2 {
					if status, got, err := r.do(c, r.request("POST", body())); err != nil || name == "replayable" && (status != 200 || got != "payload") {
						r.Fatalf("got %d %q, %v", status, got, err)
					}
				}
				r.wantNoSlotTaken(s)
			})
		})
	}
}

func TestFieldReport_E1_RefusedAnswersAreClosedBeforeTheWait(t *testing.T) {
	ways(t, policy(nil), func(t *testing.T, layers ...middleware.Middleware) {
		c := scripted(refusal("1"), refusal("1"), ok200())
		c.MaxConns = 1
		virtual(t, c, func(r rig) {
			r.wantServed(r.chain(layers...), r.request("GET", nil))
			r.WantHits(3)
		})
		endless := refusal("1")
		endless.Endless, endless.Every, endless.Body = true, time.Second, "drip"
		flood := refusal("1")
		flood.Endless, flood.Body = true, strings.Repeat("x", 1000)
		virtual(t, scripted(endless, flood, ok200()), func(r rig) {
			r.wantServed(r.chain(layers...), r.request("GET", nil))
			r.WantHits(3)
			r.WantElapsed(2*time.Second, 6*time.Second)
		})
	})
}

func TestFieldReport_E3_HeaderTimeoutDoesNotCutTheStream(t *testing.T) {
	var events []metertest.Event
	var want string
	for i := range 10 {
		data := metertest.SSE("", fmt.Sprint("event ", i))
		events = append(events, metertest.Event{After: 300 * time.Millisecond, Data: data})
		want += data
	}
	virtual(t, scripted(metertest.Answer{Status: 200, Events: events}, metertest.Answer{Status: 200, Events: events}), func(r rig) {
		c, s := r.stack(middleware.Config{Bucket: bucket.Config{MaxInFlight: 1}})
		if status, body, err := r.get(c); status != 200 || body != want || err != nil {
			r.Fatalf("got %d %q %v", status, body, err)
		}
		resp, err := c.Do(r.request("GET", nil))
		if err != nil {
			r.Fatal(err)
		}
		if n := s.Stats().Keys[0].Budget.InFlight; n != 1 {
			r.Fatalf("%d in flight while a stream is open", n)
		}
		resp.Body.Close() // without reading: everything is freed
		if n := s.Stats().Keys[0].Budget.InFlight; n != 0 {
			r.Fatalf("%d in flight after Close", n)
		}
		if n := r.Provider.OpenBodies(); n != 0 {
			r.Fatalf("%d bodies open", n)
		}
	})
}

func TestFieldReport_F1_OursWrappedTwiceSpendsOneBudget(t *testing.T) {
	two := policy(func(p *retryafter.Policy) { p.MaxRetries = 2 })
	passing := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) { return next.RoundTrip(req.Clone(req.Context())) })
	}
	for name, layers := range map[string][]middleware.Middleware{
		"side by side":        {middleware.Ladder(two), middleware.Ladder(two), middleware.Retry(middleware.RetryPolicy{}), middleware.Retry(middleware.RetryPolicy{})},
		"a stranger between":  {middleware.Ladder(two), passing, middleware.Ladder(two)},
		"whole stacks":        {wholeStack(two), wholeStack(two)},
		"stacks and stranger": {wholeStack(two), passing, wholeStack(two)},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, scripted(times(-1, refusal("0"))), func(r rig) {
				if status, body, err := r.get(r.chain(layers...)); status != 429 || body != "x" || err != nil {
					r.Fatalf("got %d %q %v", status, body, err)
				}
				r.WantHits(3)
			})
		})
	}
}

func wholeStack(p retryafter.Policy) middleware.Middleware {
	return func(next http.RoundTripper) http.RoundTripper {
		s, err := middleware.New(middleware.Config{Ladder: p})
		if err != nil {
			panic(err)
		}
		return s.Transport(next)
	}
}

func TestFieldReport_F2_BudgetsAreApart(t *testing.T) {
	reset := metertest.Answer{Fault: metertest.ResetAfter}
	ten := policy(func(p *retryafter.Policy) { p.MaxRetries = 10 })
	one := middleware.RetryPolicy{MaxRetries: 1}
	virtual(t, scripted(reset, times(8, refusal("10")), ok200()), func(r rig) {
		c, _ := r.stack(middleware.Config{Ladder: ten, Retry: one})
		r.wantServed(c, r.request("GET", nil))
		r.WantHits(10)
		r.WantElapsed(80*time.Second, 81*time.Second)
	})
	virtual(t, scripted(reset, reset, ok200()), func(r rig) {
		c, _ := r.stack(middleware.Config{Ladder: ten, Retry: one})
		_, _, err := r.get(c)
		if err == nil {
			r.Fatal("want the transport error")
		}
		r.WantHits(2)
	})
	virtual(t, scripted(refusal("1"), reset, refusal("1"), refusal("1"), metertest.Reply(502, ""), ok200()), func(r rig) {
		c, _ := r.stack(middleware.Config{Ladder: policy(func(p *retryafter.Policy) { p.MaxRetries = 3 }), Retry: middleware.RetryPolicy{MaxRetries: 2}})
		r.wantServed(c, r.request("GET", nil))
		r.WantHits(6)
	})
}

func TestFieldReport_F3_NobodyComesBackAtTheSameInstant(t *testing.T) {
	const n = 50
	for name, pace := range map[string]bool{"ladder alone": false, "ladder over pace": true} {
		t.Run(name, func(t *testing.T) {
			c := scripted(times(n, refusal("10")))
			c.RefusedLatency, c.Latency = 20*time.Millisecond, 250*time.Millisecond // all are out before the first comes back
			virtual(t, c, func(r rig) {
				layers := []middleware.Middleware{middleware.Ladder(retryafter.DefaultPolicy())}
				if pace {
					l := mustLimiter(t, bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 100, Per: time.Second, Burst: n}}})
					layers = append(layers, middleware.Pace(l, middleware.PaceConfig{}))
				}
				c := r.chain(layers...)
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() { r.wantServed(c, r.request("GET", nil)) })
				}
				wg.Wait()
				var again []time.Duration
				for _, e := range r.Provider.Ledger()[n:] {
					again = append(again, e.At.Sub(r.Start))
				}
				sort.Slice(again, func(i, j int) bool { return again[i] < again[j] })
				if again[0] < 10*time.Second {
					r.Fatalf("one came back after %v", again[0])
				}
				if pace { // released by the bucket's ramp, never more than it holds at once
					for i := range again {
						j := sort.Search(len(again), func(j int) bool { return again[j] > again[i]+100*time.Millisecond })
						if j-i > n+10 {
							r.Fatalf("%d within 100 ms", j-i)
						}
					}
					if together := sort.Search(len(again), func(j int) bool { return again[j] > again[0]+200*time.Millisecond }); together != 1 {
						r.Fatalf("%d came back together at the end of the hold", together)
					}
					return
				}
				distinct := map[time.Duration]bool{}
				for _, at := range again {
					distinct[at] = true
				}
				if len(distinct) < 40 {
					r.Fatalf("only %d distinct instants", len(distinct))
				}
			})
		})
	}
}

func TestFieldReport_F5_PaidPostIsNotSentTwice(t *testing.T) {
	stack := func(r rig) *http.Client {
		c, _ := r.stack(middleware.Config{Ladder: policy(nil)})
		return c
	}
	virtual(t, scripted(metertest.Answer{Fault: metertest.ResetAfter}, ok200()), func(r rig) {
		if _, _, err := r.do(stack(r), r.request("POST", strings.NewReader("{}"))); err == nil {
			r.Fatal("want the connection's error")
		}
		r.WantHits(1)
	})
	virtual(t, scripted(metertest.Answer{Fault: metertest.DialError}, ok200()), func(r rig) {
		r.wantServed(stack(r), r.request("POST", strings.NewReader("{}")))
	})
	virtual(t, scripted(refusal("1"), ok200()), func(r rig) {
		r.wantServed(stack(r), r.request("POST", strings.NewReader("{}")))
		r.WantHits(2)
	})
	for _, status := range []int{500, 502, 504} {
		virtual(t, scripted(metertest.Reply(status, "broken"), ok200()), func(r rig) {
			if got, _, err := r.do(stack(r), r.request("POST", strings.NewReader("{}"))); got != status || err != nil {
				r.Fatalf("got %d, %v", got, err)
			}
			r.WantHits(1)
		})
	}
	virtual(t, scripted(metertest.Answer{Fault: metertest.ResetAfter}, ok200()), func(r rig) {
		req := r.request("POST", strings.NewReader("{}"))
		req.Header.Set("Idempotency-Key", "k-1")
		r.wantServed(stack(r), req)
		r.WantHits(2)
		for _, e := range r.Provider.Ledger() {
			if e.Header.Get("Idempotency-Key") != "k-1" {
				r.Fatalf("a send lost its key: %v", e.Header)
			}
		}
	})
	virtual(t, scripted(metertest.Answer{Fault: metertest.ResetAfter}, ok200()), func(r rig) {
		c, _ := r.stack(middleware.Config{Retry: middleware.RetryPolicy{AllMethods: true}})
		r.wantServed(c, r.request("POST", strings.NewReader("{}")))
		r.WantHits(2)
	})
}

func TestFieldReport_F6_OutOfCreditIsNotWaitedFor(t *testing.T) {
	spent := `{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","code":"insufficient_quota"}}`
	ways(t, policy(nil), func(t *testing.T, layers ...middleware.Middleware) {
		virtual(t, scripted(metertest.Reply(429, spent), ok200()), func(r rig) {
			req, _ := http.NewRequestWithContext(r.Context(), "POST", "https://api.openai.com/v1/chat/completions", strings.NewReader("{}"))
			if status, body, err := r.do(r.chain(layers...), req); status != 429 || body != spent || err != nil {
				r.Fatalf("got %d %q %v", status, body, err)
			}
			r.WantHits(1)
			r.WantElapsed(0, 1)
		})
	})
}

func TestFieldReport_I1_LargerThanTheBucket(t *testing.T) {
	cost := func(tokens int64) func(*http.Request) (bucket.Cost, error) {
		return func(*http.Request) (bucket.Cost, error) { return bucket.Cost{Requests: 1, InputTokens: tokens}, nil }
	}
	tpm := bucket.Config{Headroom: 1, MaxWait: -1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}}
	virtual(t, metertest.Config{}, func(r rig) {
		tokens := int64(1500)
		c, _ := r.stack(middleware.Config{Bucket: tpm, Pace: middleware.PaceConfig{Cost: func(req *http.Request) (bucket.Cost, error) { return cost(tokens)(req) }}})
		r.wantServed(c, r.request("GET", nil))
		r.WantElapsed(0, 1)
		tokens = 1
		r.wantServed(c, r.request("GET", nil))
		r.WantElapsed(30*time.Second, 31*time.Second)
	})
	refuse := tpm
	refuse.Oversize = bucket.OversizeRefuse
	virtual(t, metertest.Config{}, func(r rig) {
		c, _ := r.stack(middleware.Config{Bucket: refuse, Pace: middleware.PaceConfig{Cost: cost(1500)}})
		_, _, err := r.get(c)
		var over *bucket.OversizeError
		if !errors.As(err, &over) || over.Cost != 1500 || over.Capacity != 1000 {
			r.Fatalf("got %v", err)
		}
		r.WantHits(0)
		r.WantElapsed(0, 1)
	})
}

func TestFieldReport_I2_NothingSentGivesEverythingBack(t *testing.T) {
	config := middleware.Config{
		Bucket: bucket.Config{Headroom: 1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 100)}},
		Retry:  middleware.RetryPolicy{MaxRetries: -1},
		Pace:   middleware.PaceConfig{Cost: func(*http.Request) (bucket.Cost, error) { return bucket.Cost{Requests: 1, InputTokens: 60}, nil }},
	}
	available := func(s *middleware.Stack) float64 { return s.Stats().Keys[0].Budget.Levels[0].Available }
	virtual(t, scripted(metertest.Answer{Fault: metertest.DialError}), func(r rig) {
		c, s := r.stack(config)
		if _, _, err := r.get(c); err == nil {
			r.Fatal("want a dial error")
		}
		if got := available(s); got != 100 {
			r.Fatalf("%v available after a dial error", got)
		}
	})
	virtual(t, scripted(metertest.Answer{Fault: metertest.ResetAfter}), func(r rig) {
		c, s := r.stack(config)
		if _, _, err := r.get(c); err == nil {
			r.Fatal("want a reset")
		}
		if got := available(s); got != 40 {
			r.Fatalf("%v available after a call was sent and lost", got)
		}
	})
	virtual(t, metertest.Config{Latency: time.Second}, func(r rig) {
		c, _ := r.stack(config)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
				defer cancel()
				resp, err := c.Do(r.request("GET", nil).WithContext(ctx))
				if err == nil {
					resp.Body.Close()
				}
			})
		}
		wg.Wait()
		r.WantHits(1)
	})
}
