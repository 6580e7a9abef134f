package middleware_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
	"pgregory.net/rapid"
)

// Sends of a turn <= routes + MaxRetries + RetryPolicy.MaxRetries, whatever the
// servers do, and whatever happens the turn ends, the caller's body is closed
// once and no answer stays open.
func TestATurnIsBoundedWhateverTheServersDo(t *testing.T) {
	answers := []metertest.Answer{
		refusal("0"), refusal("1"), refusal("70"), refusal("soon"), metertest.Reply(429, ""),
		metertest.Reply(503, ""), metertest.Reply(529, "", "Retry-After", "2"), metertest.Reply(500, "x"), metertest.Reply(502, ""),
		metertest.Reply(404, "no"), metertest.Reply(429, `{"error":{"type":"insufficient_quota"}}`),
		{Fault: metertest.ResetBefore}, {Fault: metertest.ResetAfter}, {Fault: metertest.DialError},
		{Status: 200, Body: "half of it", Fault: metertest.ResetDuringBody}, ok200(),
	}
	rapid.Check(t, func(rt *rapid.T) {
		backups := rapid.IntRange(0, 2).Draw(rt, "backups")
		ladder := policy(func(p *retryafter.Policy) {
			p.MaxRetries = rapid.IntRange(1, 6).Draw(rt, "MaxRetries")
			p.FallbackAfterRetries = rapid.IntRange(0, 4).Draw(rt, "FallbackAfterRetries")
		})
		retry := middleware.RetryPolicy{MaxRetries: rapid.IntRange(-1, 4).Draw(rt, "RetryPolicy.MaxRetries"), AllMethods: rapid.Bool().Draw(rt, "AllMethods")}
		script := rapid.SliceOfN(rapid.SampledFrom(answers), 40, 40).Draw(rt, "answers")
		method := rapid.SampledFrom([]string{"GET", "POST"}).Draw(rt, "method")
		kind := rapid.SampledFrom([]string{"none", "replayable", "opaque", "huge"}).Draw(rt, "body")

		var problems []string
		virtual(t, metertest.Config{}, func(r rig) {
			r.Provider.Script(script...)
			c := middleware.Config{Ladder: ladder, Retry: retry}
			if backups > 0 {
				routes := escalate.Config{Backups: []escalate.Route{backup(), {Name: "third", Header: http.Header{"X-Route": {"3"}}}}[:backups]}
				c.Router = r.router(routes)
			}
			client, stack := r.stack(c)
			var body *opaque
			var req *http.Request
			switch kind {
			case "none":
				req = r.request(method, nil)
			case "replayable":
				req = r.request(method, strings.NewReader("{}"))
			case "opaque":
				body = text("{}")
				req = r.request(method, body)
			case "huge":
				body = &opaque{Reader: bytes.NewReader(make([]byte, 2*middleware.ReplayLimit))}
				req = r.request(method, body)
			}
			if resp, err := client.Do(req); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if max := 1 + backups + ladder.MaxRetries + max(0, retry.MaxRetries) + zeroMeans(retry.MaxRetries, 3); r.Provider.Hits() > max {
				problems = append(problems, "too many sends")
			}
			if kind == "huge" && r.Provider.Hits() > 1 {
				for _, e := range r.Provider.Ledger() {
					if e.BodyLen != 0 && e.BodyLen != 2*middleware.ReplayLimit {
						problems = append(problems, "a part of a body was sent")
					}
				}
			}
			if body != nil && body.closed != 1 {
				problems = append(problems, "the body was not closed exactly once")
			}
			if r.Provider.OpenBodies() != 0 {
				problems = append(problems, "an answer stays open")
			}
			for _, k := range stack.Stats().Keys {
				if k.Budget.InFlight != 0 || k.Budget.Queued != 0 {
					problems = append(problems, "a grant is leaked")
				}
			}
			for _, route := range stack.Stats().Routes {
				if route.Probes != 0 {
					problems = append(problems, "a permit is leaked")
				}
			}
		})
		if len(problems) > 0 {
			rt.Fatal(problems)
		}
	})
}

func zeroMeans(n, def int) int {
	if n == 0 {
		return def
	}
	return 0
}

// A Retry-After of a server error is obeyed, up to MaxDelay.
func TestRetryObeysAHintWithinItsCap(t *testing.T) {
	for hint, want := range map[string]time.Duration{"7": 7 * time.Second, "3600": 10 * time.Second} {
		virtual(t, scripted(metertest.Reply(500, "", "Retry-After", hint), ok200()), func(r rig) {
			r.wantServed(r.chain(middleware.Retry(middleware.RetryPolicy{})), r.request("GET", nil))
			r.WantHits(2)
			r.WantElapsed(want, want+time.Second+1)
		})
	}
}

// A stranger that sends twice at once, between two of our layers, shares the
// turn without a race.
func TestAHedgeBetweenOurLayersIsSafe(t *testing.T) {
	hedge := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			type result struct {
				resp *http.Response
				err  error
			}
			results := make(chan result, 2)
			for range 2 {
				r := req.Clone(req.Context())
				if req.GetBody != nil {
					r.Body, _ = req.GetBody()
				}
				go func() {
					resp, err := next.RoundTrip(r)
					results <- result{resp, err}
				}()
			}
			if req.Body != nil {
				req.Body.Close()
			}
			first, second := <-results, <-results
			if second.resp != nil {
				second.resp.Body.Close()
			}
			return first.resp, first.err
		})
	}
	virtual(t, metertest.Config{Latency: time.Millisecond, Requests: 60, RequestBurst: 10}, func(r rig) {
		l := mustLimiter(r.T, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 6000)}})
		c := r.chain(middleware.Escalate(r.router(escalate.Config{Backups: []escalate.Route{backup()}})),
			middleware.Retry(middleware.RetryPolicy{}), middleware.Ladder(policy(nil)), hedge,
			middleware.Ladder(policy(nil)), middleware.Pace(l, middleware.PaceConfig{}))
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { r.do(c, r.request("POST", strings.NewReader("{}"))) })
		}
		wg.Wait()
		if n := r.Provider.OpenBodies(); n != 0 {
			r.Errorf("%d answers open", n)
		}
	})
}

// A context that outlives its turn does not join later calls to it.
func TestAFinishedTurnIsNotJoined(t *testing.T) {
	two := policy(func(p *retryafter.Policy) { p.MaxRetries = 2 })
	virtual(t, scripted(times(-1, refusal("0"))), func(r rig) {
		var inner *http.Request
		spy := func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				inner = req
				return next.RoundTrip(req)
			})
		}
		c := r.chain(middleware.Ladder(two), spy)
		r.get(c)
		r.WantHits(3)
		r.do(c, r.request("GET", nil).WithContext(inner.Context()))
		r.WantHits(6)
	})
}

// The answer's Request is the one that was asked with, and its context is the
// caller's.
func TestTheAnswersRequestIsTheCallers(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		_, s := r.stack(middleware.Config{})
		req := r.request("GET", nil)
		resp, err := s.Transport(r.Provider.Transport()).RoundTrip(req)
		if err != nil {
			r.Fatal(err)
		}
		resp.Body.Close()
		if resp.Request != req {
			r.Error("the answer's Request is a copy of ours")
		}
	})
}

// The resend of a refused call that its deadline refuses locally comes back as
// the refusal, with the reason wrapped.
func TestAResendRefusedLocallyKeepsTheRefusal(t *testing.T) {
	virtual(t, scripted(refusal("1"), ok200()), func(r rig) {
		l := mustLimiter(r.T, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}})
		c := r.chain(middleware.Ladder(policy(nil)), middleware.Pace(l, middleware.PaceConfig{}))
		c.Timeout = 10 * time.Second
		_, _, err := r.get(c)
		var refused *retryafter.RefusedError
		var wait *bucket.WaitError
		if !errors.As(err, &refused) || !errors.As(err, &wait) || refused.Status != 429 || string(refused.Body) != "x" {
			r.Fatalf("got %v", err)
		}
		r.WantHits(1)
	})
}

// A host client's own loop, within one turn, spends one budget.
func TestAHostsLoopWithinATurnSpendsOneBudget(t *testing.T) {
	virtual(t, scripted(times(-1, refusal("0"))), func(r rig) {
		c, s := r.stack(middleware.Config{Ladder: policy(func(p *retryafter.Policy) { p.MaxRetries = 2 })})
		ctx, end := s.Turn(r.Context())
		for range 4 {
			resp, err := c.Do(r.request("GET", nil).WithContext(ctx))
			if err != nil {
				r.Fatal(err)
			}
			resp.Body.Close()
			if !middleware.Handled(resp, nil) {
				r.Error("a refusal is not handled")
			}
		}
		r.WantHits(3 + 3) // three by the ladder; each later attempt of the host is one send, unwaited
		end()
		end()
		r.do(c, r.request("GET", nil).WithContext(ctx))
		r.WantHits(6 + 3)
	})
	virtual(t, scripted(times(-1, metertest.Answer{Fault: metertest.ResetAfter})), func(r rig) {
		c, s := r.stack(middleware.Config{Retry: middleware.RetryPolicy{MaxRetries: 2}, Router: r.router(escalate.Config{})})
		ctx, end := s.Turn(r.Context())
		defer end()
		for range 4 {
			if _, err := c.Do(r.request("GET", nil).WithContext(ctx)); middleware.Handled(nil, err) {
				r.Error("a reset is handled")
			}
		}
		r.WantHits(3 + 3)
	})
}

// A host's loop may send a POST again only while no server can have acted on it.
func TestResendableGoesByWhatReachedAServer(t *testing.T) {
	for _, c := range []struct {
		name, method string
		body         io.Reader
		fault        metertest.Fault
		all, key     bool
		want         bool
	}{
		{name: "GET, cut after it was read", method: "GET", fault: metertest.ResetAfter, want: true},
		{name: "POST, cut after it was read", method: "POST", body: strings.NewReader("{}"), fault: metertest.ResetAfter, want: false},
		{name: "POST of an opaque body, cut after it was read", method: "POST", body: text("{}"), fault: metertest.ResetAfter, want: false},
		{name: "POST, cut before its body was read", method: "POST", body: strings.NewReader("{}"), fault: metertest.ResetBefore, want: true},
		{name: "POST without a body, cut", method: "POST", fault: metertest.ResetBefore, want: false},
		{name: "POST, never connected", method: "POST", body: strings.NewReader("{}"), fault: metertest.DialError, want: true},
		{name: "POST with an idempotency key, cut", method: "POST", body: strings.NewReader("{}"), fault: metertest.ResetAfter, key: true, want: true},
		{name: "POST under AllMethods, cut", method: "POST", body: strings.NewReader("{}"), fault: metertest.ResetAfter, all: true, want: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, scripted(metertest.Answer{Fault: c.fault}, ok200()), func(r rig) {
				_, s := r.stack(middleware.Config{Retry: middleware.RetryPolicy{MaxRetries: -1, AllMethods: c.all}})
				ctx, end := s.Turn(r.Context())
				defer end()
				req := r.request(c.method, c.body).WithContext(ctx)
				if c.key {
					req.Header.Set("Idempotency-Key", "k")
				}
				rt := s.Transport(r.Provider.Transport())
				_, err := rt.RoundTrip(req)
				if err == nil {
					r.Fatal("no fault")
				}
				if got := s.Resendable(req, err); got != c.want {
					r.Errorf("Resendable is %v after %v", got, err)
				}
				again := r.request(c.method, nil).WithContext(ctx)
				resp, err := rt.RoundTrip(again)
				if err != nil {
					r.Fatal(err)
				}
				resp.Body.Close()
				if got, want := s.Resendable(again, nil), c.method == "GET" || c.all; got != want {
					r.Errorf("Resendable is %v after an answer", got)
				}
			})
		})
	}
}

func TestLayeredKnowsOurOwn(t *testing.T) {
	s, err := middleware.New(middleware.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if !middleware.Layered(s.Transport(nil)) || !middleware.Layered(middleware.Ladder(retryafter.Policy{})(nil)) {
		t.Error("a layer of ours is not known")
	}
	if middleware.Layered(http.DefaultTransport) || middleware.Layered(nil) {
		t.Error("a stranger passes for a layer of ours")
	}
}
