package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
	"github.com/sony/gobreaker/v2"
)

// A primary and a backup, P and B of the reports, are two hosts of one
// in-memory provider.
const primaryHost, backupHost = "api.example.com", "backup.example.net"

func backup() escalate.Route {
	return escalate.Route{Name: "backup", URL: "http://" + backupHost, Header: http.Header{"Authorization": {"Bearer B"}}}
}

func (r rig) router(c escalate.Config) *escalate.Router {
	r.Helper()
	if c.Primary.Name == "" {
		c.Primary.Name = "primary"
	}
	router, err := escalate.New(c)
	if err != nil {
		r.Fatal(err)
	}
	return router
}

func (r rig) script(host string, answers ...metertest.Answer) {
	r.Provider.ScriptFor(metertest.Match{Host: host}, answers...)
}

// at counts the requests that a host saw.
func (r rig) at(host string) (n int) {
	for _, e := range r.Provider.Ledger() {
		if e.Host == host {
			n++
		}
	}
	return n
}

func (r rig) wantAt(host string, n int) {
	r.Helper()
	if got := r.at(host); got != n {
		r.Fatalf("%s saw %d requests, want %d", host, got, n)
	}
}

// routed is a whole stack over a router of these routes.
func (r rig) routed(c escalate.Config, p retryafter.Policy) (*http.Client, *middleware.Stack) {
	r.Helper()
	return r.stack(middleware.Config{Router: r.router(c), Ladder: p})
}

func TestFourthRefusalGoesToTheBackup(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, times(-1, refusal("1")))
		c, s := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, policy(nil))
		r.wantServed(c, r.request("POST", strings.NewReader("{}")))
		r.wantAt(primaryHost, 4)
		r.wantAt(backupHost, 1)
		r.WantElapsed(3*time.Second, 3*time.Second+1)
		if st := s.Stats(); st.Routes[0].State != "open" || st.Routes[1].State != "closed" {
			r.Fatalf("gates: %+v", st.Routes)
		}
	})
}

func TestSendsOfATurnAreBounded(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.Provider.Script(times(-1, refusal("0")))
		c, _ := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, policy(nil))
		status, _, err := r.do(c, r.request("POST", strings.NewReader("{}")))
		if status != 429 || err != nil { // the last route's answer, unread
			r.Fatalf("got %d, %v", status, err)
		}
		r.WantHits(2 + 5) // routes + MaxRetries
	})
}

func TestFieldReport_F6_OutOfCreditGoesStraightToTheBackup(t *testing.T) {
	spent := metertest.Reply(429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`)
	virtual(t, metertest.Config{}, func(r rig) {
		r.script("api.openai.com", times(-1, spent))
		c, s := r.routed(escalate.Config{
			Primary: escalate.Route{Name: "openai", URL: "https://api.openai.com"},
			Backups: []escalate.Route{backup()},
		}, policy(nil))
		for range 3 {
			r.wantServed(c, r.request("POST", strings.NewReader("{}")))
		}
		r.wantAt("api.openai.com", 1)
		r.wantAt(backupHost, 3)
		r.WantElapsed(0, 1)
		if n := s.Stats().Routes[0].Counts.TotalFailures; n != 0 {
			r.Fatalf("%d failures counted for a spent quota", n)
		}
	})
}

func tripAfter(n uint32) escalate.Settings {
	return escalate.Settings{Timeout: time.Minute, ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= n }}
}

func TestFieldReport_G1_AbsorbedRefusalsAreNeutral(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		c, s := r.routed(escalate.Config{Settings: tripAfter(3)}, policy(nil))
		for range 10 {
			r.Provider.Script(refusal("0"), ok200())
			r.wantServed(c, r.request("GET", nil))
		}
		if st := s.Stats().Routes[0]; st.State != "closed" || st.Counts.TotalFailures != 0 {
			r.Fatalf("%+v", st)
		}
		r.Provider.Script(times(-1, refusal("0")))
		for range 3 {
			if status, _, err := r.get(c); status != 429 || err != nil {
				r.Fatalf("got %d, %v", status, err)
			}
		}
		hits := r.Provider.Hits()
		_, _, err := r.get(c)
		var open *escalate.Error
		if !errors.As(err, &open) || !errors.Is(err, gobreaker.ErrOpenState) || open.RetryAfter <= 0 {
			r.Fatalf("got %v", err)
		}
		r.WantHits(hits)
	})
	virtual(t, metertest.Config{}, func(r rig) { // another key on the same host has its own gate
		route := func(key string) escalate.Route {
			return escalate.Route{Name: key, Quota: key, Header: http.Header{"Authorization": {"Bearer " + key}}}
		}
		bad, _ := r.routed(escalate.Config{Primary: route("one"), Settings: tripAfter(1)}, policy(nil))
		good, _ := r.routed(escalate.Config{Primary: route("two"), Settings: tripAfter(1)}, policy(nil))
		r.Provider.Script(times(6, refusal("0")))
		r.get(bad)
		if _, _, err := r.get(bad); err == nil {
			r.Fatal("the first key's gate is closed")
		}
		r.wantServed(good, r.request("GET", nil))
	})
}

func TestFieldReport_G2_ProbesAlwaysGiveTheirSlotBack(t *testing.T) {
	open := func(r rig) (*http.Client, *middleware.Stack) {
		c, s := r.routed(escalate.Config{Settings: tripAfter(1)}, policy(nil))
		r.Provider.Script(times(6, refusal("0")))
		r.get(c)
		if st := s.Stats().Routes[0].State; st != "open" {
			r.Fatalf("the gate is %s", st)
		}
		time.Sleep(time.Minute)
		return c, s
	}
	virtual(t, metertest.Config{Latency: time.Second}, func(r rig) {
		c, s := open(r)
		ctx, cancel := context.WithTimeout(r.Context(), 500*time.Millisecond)
		defer cancel()
		if _, _, err := r.do(c, r.request("GET", nil).WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
			r.Fatalf("probe A: %v", err)
		}
		r.wantServed(c, r.request("GET", nil))
		if st := s.Stats().Routes[0].State; st != "closed" {
			r.Fatalf("after a served probe the gate is %s", st)
		}
	})
	virtual(t, metertest.Config{}, func(r rig) {
		c, s := open(r)
		r.Provider.Script(refusal("5"))
		if status, _, err := r.get(c); status != 429 || err != nil {
			r.Fatalf("the refused probe: %d, %v", status, err)
		}
		if st := s.Stats().Routes[0]; st.State != "open" || st.Rest != 5*time.Second {
			r.Fatalf("%+v", st)
		}
		time.Sleep(5 * time.Second)
		r.wantServed(c, r.request("GET", nil))
	})
	virtual(t, metertest.Config{}, func(r rig) { // a body that is never closed
		c, _ := open(r)
		resp, err := c.Do(r.request("GET", nil))
		if err != nil {
			r.Fatal(err)
		}
		r.wantServed(c, r.request("GET", nil))
		resp.Body.Close()
	})
	virtual(t, metertest.Config{}, func(r rig) { // the transport panics under a probe
		c, _ := open(r)
		var once sync.Once
		panicking := middleware.Chain(roundTripper(func(req *http.Request) (*http.Response, error) {
			once.Do(func() { panic("boom") })
			return r.Provider.Transport().RoundTrip(req)
		}), middleware.Escalate(r.router(escalate.Config{Primary: escalate.Route{Quota: "q"}})))
		func() {
			defer func() { recover() }()
			panicking.RoundTrip(r.request("GET", nil))
		}()
		r.wantServed(&http.Client{Transport: panicking}, r.request("GET", nil))
		_ = c
	})
}

func TestFieldReport_G3_TheCallersLeavingIsNoFailure(t *testing.T) {
	virtual(t, metertest.Config{Latency: time.Second}, func(r rig) {
		c, s := r.routed(escalate.Config{Settings: tripAfter(3)}, policy(nil))
		for range 20 {
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(5*time.Millisecond, cancel)
			if _, _, err := r.do(c, r.request("GET", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
				r.Fatalf("got %v", err)
			}
			cancel()
		}
		if st := s.Stats().Routes[0]; st.State != "closed" || st.Counts.TotalFailures != 0 {
			r.Fatalf("%+v", st)
		}
		r.Provider.Script(times(-1, metertest.Answer{Fault: metertest.Hang}))
		perTry := middleware.Chain(timeout(100*time.Millisecond, r.Provider.Transport()), middleware.Escalate(r.router(escalate.Config{Settings: tripAfter(3)})))
		for range 3 {
			if _, _, err := r.get(&http.Client{Transport: perTry}); err == nil {
				r.Fatal("want a timeout")
			}
		}
		_, _, err := r.get(&http.Client{Transport: perTry})
		if !errors.Is(err, gobreaker.ErrOpenState) {
			r.Fatalf("after three timeouts of ours: %v", err)
		}
	})
}

// timeout is a stranger's per-try header timeout.
func timeout(d time.Duration, next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(req.Context(), d)
		defer cancel()
		return next.RoundTrip(req.WithContext(ctx))
	})
}

func TestFieldReport_H1_LongHintMeansBackupNow(t *testing.T) {
	two := policy(func(p *retryafter.Policy) { p.EscalateOver, p.Jitter = 2*time.Second, time.Second })
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, refusal("47"))
		c, _ := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, two)
		r.wantServed(c, r.request("POST", strings.NewReader("{}")))
		r.WantElapsed(0, 1)
		r.wantAt(primaryHost, 1)
		for range 10 {
			time.Sleep(4 * time.Second)
			r.wantServed(c, r.request("POST", strings.NewReader("{}")))
		}
		r.wantAt(primaryHost, 1)
		time.Sleep(8 * time.Second)
		r.wantServed(c, r.request("POST", strings.NewReader("{}")))
		r.wantAt(primaryHost, 2)
		r.wantAt(backupHost, 11)
	})
}

func TestFieldReport_H2_NoSecretGoesToTheBackup(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, refusal("100"))
		c, _ := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, policy(nil))
		req := r.request("POST", strings.NewReader(`{"model":"a"}`))
		req.Header = http.Header{"Authorization": {"Bearer P"}, "X-Api-Key": {"P"}, "Cookie": {"s=P"}, "X-Other": {"kept"}}
		r.wantServed(c, req)
		for _, e := range r.Provider.Ledger() {
			switch e.Host {
			case backupHost:
				if e.Header.Get("Authorization") != "Bearer B" || e.Header.Get("X-Api-Key") != "" || e.Header.Get("Cookie") != "" || e.Header.Get("X-Other") != "kept" {
					r.Errorf("the backup saw %v", e.Header)
				}
			default:
				if e.Header.Get("Authorization") != "Bearer P" || e.Header.Get("X-Api-Key") != "P" {
					r.Errorf("the primary saw %v", e.Header)
				}
			}
		}
		if req.Header.Get("Authorization") != "Bearer P" || req.URL.Host != primaryHost {
			r.Error("the caller's request was changed")
		}
		time.Sleep(2 * time.Minute)
		later := r.request("POST", strings.NewReader(`{"model":"a"}`))
		later.Header = req.Header
		r.wantServed(c, later)
		r.wantAt(primaryHost, 2)
	})
}

func TestFieldReport_H3_TheSoonestRouteIsInTheError(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		third := escalate.Route{Name: "third", URL: "http://third.example.org"}
		router := r.router(escalate.Config{Backups: []escalate.Route{backup(), third}})
		rest := func(i int, d time.Duration) {
			p, err := router.Allow(i)
			if err != nil {
				r.Fatal(err)
			}
			p.Done(escalate.Outcome{Verdict: escalate.Escalated, RetryAfter: d, HasHint: true})
		}
		rest(0, 12200*time.Millisecond)
		rest(1, 90*time.Second)
		rest(2, 91*time.Second)
		c, _ := r.stack(middleware.Config{Router: router})
		body := text("{}")
		_, _, err := r.do(c, r.request("POST", body))
		var e *escalate.Error
		if !errors.As(err, &e) || e.RetryAfter != 12200*time.Millisecond || !errors.Is(err, gobreaker.ErrOpenState) {
			r.Fatalf("got %v", err)
		}
		if body.closed != 1 {
			r.Fatalf("the body was closed %d times", body.closed)
		}
		r.WantHits(0)
	})
}

func TestAnOpeningGateEndsTheWaitsOfItsTurns(t *testing.T) {
	for name, limits := range map[string][]bucket.Limit{
		"waiting for a hold":  nil,
		"waiting for a token": {bucket.PerMinute(bucket.Requests, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				r.script(primaryHost, refusal("30"), metertest.Reply(429, "", "Retry-After", "100"))
				c, _ := r.stack(middleware.Config{
					Router: r.router(escalate.Config{Backups: []escalate.Route{backup()}}),
					Ladder: policy(nil),
					Bucket: bucket.Config{Headroom: 1, MaxWait: -1, LimitsFor: func(key string) []bucket.Limit {
						if key == "primary" {
							return limits
						}
						return []bucket.Limit{}
					}},
				})
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() { r.wantServed(c, r.request("POST", strings.NewReader("{}"))) })
					synctest.Wait()
				}
				wg.Wait()
				// All eight are at the backup as soon as the second refusal says 100 s.
				r.wantAt(backupHost, 8)
				r.wantAt(primaryHost, 2)
				if limits == nil {
					r.WantElapsed(30*time.Second, 31*time.Second)
				}
			})
		})
	}
}

func TestServerErrorsAndFaultsRerouteWhereAResendIsAllowed(t *testing.T) {
	broken := map[string]metertest.Answer{"500": metertest.Reply(500, "broken"), "reset": {Fault: metertest.ResetAfter}}
	for name, a := range broken {
		t.Run(name, func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				r.script(primaryHost, times(-1, a))
				c, _ := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, policy(nil))
				r.wantServed(c, r.request("GET", nil))
				r.wantAt(primaryHost, 4)
				r.wantAt(backupHost, 1)
			})
			virtual(t, metertest.Config{}, func(r rig) {
				r.script(primaryHost, times(-1, a))
				c, _ := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, policy(nil))
				status, _, err := r.do(c, r.request("POST", strings.NewReader("{}")))
				if status == 200 || (err == nil) != (name == "500") {
					r.Fatalf("got %d, %v", status, err)
				}
				r.WantHits(1)
			})
		})
	}
}

func TestLocalRefusalsRerouteOnlyWhenAsked(t *testing.T) {
	for _, reroute := range []bool{false, true} {
		virtual(t, metertest.Config{}, func(r rig) {
			c, s := r.stack(middleware.Config{
				Router: r.router(escalate.Config{Backups: []escalate.Route{backup()}, RerouteLocal: reroute}),
				Bucket: bucket.Config{Headroom: 1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}},
			})
			c.Timeout = 10 * time.Second
			r.wantServed(c, r.request("GET", nil))
			_, _, err := r.get(c)
			var wait *bucket.WaitError
			if reroute != (err == nil) || !reroute && !errors.As(err, &wait) {
				r.Fatalf("RerouteLocal %v: %v", reroute, err)
			}
			if st := s.Stats().Routes[0]; st.State != "closed" || st.Counts.TotalFailures != 0 {
				r.Fatalf("%+v", st)
			}
		})
	}
}

func TestABrokenStreamIsBookedApart(t *testing.T) {
	half := metertest.Answer{Status: 200, Body: "half of it", Fault: metertest.ResetDuringBody}
	for name, layers := range map[string][]middleware.Middleware{
		"with pace":    {lazyPace(bucket.Config{})},
		"without pace": nil,
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, scripted(half, ok200()), func(r rig) {
				router := r.router(escalate.Config{})
				c := r.chain(append([]middleware.Middleware{middleware.Escalate(router)}, layers...)...)
				resp, err := c.Do(r.request("GET", nil))
				if err != nil {
					r.Fatal(err)
				}
				if _, err := io.ReadAll(resp.Body); err == nil {
					r.Fatal("want a reset")
				}
				resp.Body.Close()
				r.wantServed(c, r.request("GET", nil))
				if st := router.Snapshot()[0]; st.Late != 1 || st.Counts.TotalSuccesses != 2 || st.Counts.TotalFailures != 1 {
					r.Fatalf("%+v", st)
				}
			})
		})
	}
}

// A backup that cannot have the request is passed over; what the routes before it
// ended with is not lost.
func TestABackupThatCannotHaveTheRequestIsPassedOver(t *testing.T) {
	model := escalate.Route{Name: "another model", Model: "small"} // wants a JSON body
	for _, backups := range [][]escalate.Route{{model}, {model, backup()}} {
		virtual(t, metertest.Config{}, func(r rig) {
			r.script(primaryHost, refusal("100"))
			c, s := r.routed(escalate.Config{Backups: backups}, policy(nil))
			status, _, err := r.do(c, r.request("POST", strings.NewReader("not JSON")))
			if len(backups) == 2 {
				if status != 200 || err != nil {
					r.Errorf("got %d, %v", status, err)
				}
				r.wantAt(backupHost, 1)
				return
			}
			var escalated *escalate.Error
			var refused *retryafter.RefusedError
			if !errors.As(err, &escalated) || !errors.As(err, &refused) || !errors.Is(err, escalate.ErrNotJSON) || escalated.RetryAfter <= 0 {
				r.Errorf("got %v", err)
			}
			if st := s.Stats().Routes[1]; st.State != "closed" || st.Probes != 0 {
				r.Errorf("%+v", st)
			}
			_, _, err = r.do(c, r.request("POST", strings.NewReader("not JSON"))) // while the primary rests
			if !errors.As(err, &escalated) || !errors.Is(err, escalate.ErrNotJSON) || escalated.RetryAfter != 100*time.Second {
				r.Errorf("got %v", err)
			}
		})
	}
}
