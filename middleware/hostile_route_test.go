package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
	"github.com/sony/gobreaker/v2"
)

func TestACallWhoseLastGateOpensWhileItWaitsIsGivenUp(t *testing.T) {
	for name, backups := range map[string][]escalate.Route{"one route": nil, "two routes": {backup()}} {
		t.Run(name, func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				ctx, cancel := context.WithCancel(r.Context())
				defer cancel()
				rerouted := 0
				router := r.router(escalate.Config{Backups: backups})
				c, s := r.stack(middleware.Config{Router: router, Ladder: policy(nil), Observer: middleware.ObserverFunc(func(_ context.Context, e middleware.Event) {
					if e.Kind == middleware.Rerouted {
						if rerouted++; rerouted > 10 {
							cancel() // it goes round in circles
						}
					}
				})})
				for i := range router.Routes() {
					s.Limiter().(*bucket.Local).Hold(router.Quota(i), time.Now().Add(time.Hour))
					p, err := router.Allow(i)
					if err != nil {
						r.Fatal(err)
					}
					time.AfterFunc(time.Duration(1+i)*time.Second, func() { p.Done(escalate.Outcome{Verdict: escalate.QuotaOut}) })
				}
				_, _, err := r.do(c, r.request("GET", nil).WithContext(ctx))
				var e *escalate.Error
				if !errors.As(err, &e) {
					r.Errorf("got %v", err)
				}
				if rerouted != len(backups) {
					r.Errorf("rerouted %d times", rerouted)
				}
				last := time.Duration(1+len(backups)) * time.Second
				r.WantElapsed(last, last+1)
				r.WantHits(0)
			})
		})
	}
}

func TestAnEscalationFromBelowTheOnlyRouteIsHandedUp(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		never := escalate.Settings{Escalations: 1000, ReadyToTrip: func(gobreaker.Counts) bool { return false }}
		sent := 0
		rt := middleware.Chain(roundTripper(func(req *http.Request) (*http.Response, error) {
			if sent++; sent > 50 {
				return reply(req, 200, "no more"), nil
			}
			return nil, &escalate.Error{Key: "below", Err: errors.New("no route")}
		}), middleware.Escalate(r.router(escalate.Config{Settings: never})))
		_, err := rt.RoundTrip(r.request("GET", nil))
		var e *escalate.Error
		if sent != 1 || !errors.As(err, &e) {
			r.Fatalf("sent %d times, %v", sent, err)
		}
	})
}

func TestANearDeadlineMeansTheBackupNow(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, times(-1, refusal("30")))
		c, _ := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, policy(nil))
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		r.wantServed(c, r.request("GET", nil).WithContext(ctx))
		r.WantElapsed(0, 1)
	})
}

func TestTheBackupIsTriedWhereTheServerFailedAndAResendIsSafe(t *testing.T) {
	for name, c := range map[string]struct {
		method            string
		answer            metertest.Answer
		primaries, backup int // requests seen; a failed dial is seen by nobody
	}{
		"408 GET":       {"GET", metertest.Reply(408, "x"), 4, 1},
		"408 POST":      {"POST", metertest.Reply(408, "x"), 1, 0},
		"501 GET":       {"GET", metertest.Reply(501, "x"), 1, 0},
		"404 GET":       {"GET", metertest.Reply(404, "x"), 1, 0},
		"no dial, POST": {"POST", metertest.Answer{Fault: metertest.DialError}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				r.script(primaryHost, times(-1, c.answer))
				client, _ := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, policy(nil))
				var body io.Reader
				if c.method == "POST" {
					body = strings.NewReader("{}")
				}
				r.do(client, r.request(c.method, body))
				if c.primaries > 0 {
					r.wantAt(primaryHost, c.primaries)
				}
				r.wantAt(backupHost, c.backup)
			})
		})
	}
}

func TestAProbeCancelledInTheQueueGivesItsPermitBack(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, refusal("100"), times(-1, ok200()))
		c, s := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, policy(nil))
		r.wantServed(c, r.request("GET", nil))
		time.Sleep(101 * time.Second)
		s.Limiter().(*bucket.Local).Hold(s.Stats().Routes[0].Quota, time.Now().Add(20*time.Second))
		ctx, cancel := context.WithCancel(r.Context())
		time.AfterFunc(time.Second, cancel)
		if _, _, err := r.do(c, r.request("GET", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
			r.Errorf("got %v", err)
		}
		if st := s.Stats().Routes[0]; st.Probes != 0 {
			r.Errorf("%+v", st)
		}
		time.Sleep(30 * time.Second)
		r.wantServed(c, r.request("GET", nil))
		if st := s.Stats().Routes[0]; st.State != "closed" {
			r.Errorf("after a served probe: %+v", st)
		}
	})
}

func TestTwoCallsAtOnceInOneTurnGiveBothPermitsBack(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		slow := func(d time.Duration) metertest.Answer {
			return metertest.Answer{Status: 200, Body: "ok", Delay: d}
		}
		r.script(primaryHost, slow(2*time.Second), slow(time.Second))
		c, s := r.routed(escalate.Config{}, policy(nil))
		ctx, end := s.Turn(r.Context())
		defer end()
		done := make(chan struct{})
		for range 2 {
			go func() {
				defer func() { done <- struct{}{} }()
				if status, _, err := r.do(c, r.request("GET", nil).WithContext(ctx)); status != 200 {
					r.Errorf("got %d, %v", status, err)
				}
			}()
		}
		<-done
		<-done
		if n := s.Stats().Routes[0].Counts; n.Requests != 2 || n.TotalSuccesses != 2 {
			r.Errorf("%+v", n)
		}
	})
}

func TestACancelAtAnyMomentLeavesNothingBehind(t *testing.T) {
	slow := func(status int, d time.Duration, retryAfter string) metertest.Answer {
		a := metertest.Reply(status, "x")
		a.Delay = d
		if retryAfter != "" {
			a.Header = http.Header{"Retry-After": {retryAfter}}
		}
		return a
	}
	trickle := slow(429, 0, "3")
	trickle.Endless, trickle.Every = true, 90*time.Millisecond
	stream := metertest.Answer{Status: 200, Body: "abc", Delay: time.Second, Endless: true, Every: 100 * time.Millisecond}
	for step := range 60 {
		virtual(t, metertest.Config{}, func(r rig) {
			r.script(primaryHost, slow(500, 700*time.Millisecond, ""), trickle, slow(503, time.Second, ""),
				metertest.Answer{Fault: metertest.ResetAfter}, slow(429, 0, "100"))
			r.script(backupHost, stream)
			c, s := r.stack(middleware.Config{
				Router: r.router(escalate.Config{Backups: []escalate.Route{backup()}}), Ladder: policy(nil),
				Bucket: bucket.Config{MaxInFlight: 1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}},
			})
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(time.Duration(step)*311*time.Millisecond, cancel)
			done := make(chan struct{})
			for i := range 5 {
				go func() {
					defer func() { done <- struct{}{} }()
					ctx := ctx
					if i == 0 { // one goes on
						time.Sleep(20 * time.Millisecond)
						ctx = r.Context()
					}
					body := text("{}")
					if resp, err := c.Do(r.request("PUT", body).WithContext(ctx)); err == nil {
						io.ReadFull(resp.Body, make([]byte, 10))
						resp.Body.Close()
					}
					if body.closed != 1 {
						r.Errorf("step %d: the body was closed %d times", step, body.closed)
					}
				}()
			}
			for range 5 {
				<-done
			}
			if n := r.Provider.OpenBodies(); n != 0 {
				r.Errorf("step %d: %d answers open", step, n)
			}
			r.wantNoSlotTaken(s)
			for _, st := range s.Stats().Routes {
				if n := st.Counts; st.Probes != 0 || st.State == "closed" && n.Requests != n.TotalSuccesses+n.TotalFailures+n.TotalExclusions {
					r.Errorf("step %d: a permit is still out: %+v", step, st)
				}
			}
		})
	}
}

func TestAnEnormousHintDoesNotHoldUpTheProbes(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, refusal("999999999"), times(-1, ok200()))
		c, _ := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, policy(nil))
		r.wantServed(c, r.request("GET", nil))
		r.wantAt(primaryHost, 1)
		const rested = 24*time.Hour + time.Minute // past the longest rest of a gate
		time.Sleep(rested)
		r.wantServed(c, r.request("GET", nil))
		r.WantElapsed(rested, rested+time.Second)
		r.wantAt(primaryHost, 2)
	})
}

func TestALongHintHoldsNobodyForLongerThanTheLadderWaits(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, refusal("7200"), times(-1, ok200()))
		patient := escalate.Settings{Escalations: 3} // the gate stays closed
		c, _ := r.routed(escalate.Config{Backups: []escalate.Route{backup()}, Settings: patient}, policy(nil))
		r.wantServed(c, r.request("GET", nil))
		r.wantServed(c, r.request("GET", nil))
		r.WantElapsed(0, 61*time.Second)
	})
}

func TestTheGateOfAnOnlyRouteRestsAsTheWindowSays(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		spent := metertest.Reply(429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`, "Retry-After", "10")
		window := metertest.Reply(429, "", "x-ratelimit-limit-requests", "10", "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "200s")
		r.script("api.openai.com", spent, window)
		c, s := r.routed(escalate.Config{Primary: escalate.Route{Name: "openai", URL: "https://api.openai.com"}}, policy(nil))
		r.get(c)
		time.Sleep(11 * time.Second)
		if status, _, err := r.get(c); status != 429 || err != nil { // the probe
			r.Fatalf("got %d, %v", status, err)
		}
		if st := s.Stats().Routes[0]; st.Rest != 20*time.Second { // one of the ten is back then
			r.Errorf("the gate rests %v", st.Rest)
		}
	})
}

func TestTheGateIgnoresHintsWhereThePolicyDoes(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, times(4, refusal("80000")), times(-1, ok200()))
		deaf := policy(func(p *retryafter.Policy) { p.RespectRetryAfter = false })
		c, s := r.routed(escalate.Config{Backups: []escalate.Route{backup()}}, deaf)
		r.wantServed(c, r.request("GET", nil))
		r.wantAt(backupHost, 1)
		if rest := s.Stats().Routes[0].Rest; rest <= 0 || rest > time.Minute {
			r.Errorf("the gate rests %v", rest)
		}
	})
}
