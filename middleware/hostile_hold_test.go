package middleware_test

import (
	"context"
	"errors"
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
)

const apiKey = "http://api.example.com:80"

func stopping() retryafter.Policy {
	return policy(func(p *retryafter.Policy) { p.OverCap = retryafter.Stop })
}

func TestJitterDoesNotPushAHintOverTheCeiling(t *testing.T) {
	p := stopping()
	p.Jitter = time.Second
	ways(t, p, func(t *testing.T, layers ...middleware.Middleware) {
		virtual(t, scripted(refusal("60"), ok200()), func(r rig) {
			r.wantServed(r.chain(layers...), r.request("GET", nil))
			r.WantElapsed(60*time.Second, 61*time.Second)
		})
	})
}

func TestStopRefusesNewCallsWhileTheHoldIsTooLong(t *testing.T) {
	virtual(t, scripted(refusal("600"), ok200()), func(r rig) {
		c, _ := r.stack(middleware.Config{Ladder: stopping()})
		if status, _, err := r.get(c); status != 429 || err != nil {
			r.Fatalf("got %d, %v", status, err)
		}
		_, _, err := r.get(c)
		var wait *bucket.WaitError
		if !errors.As(err, &wait) || wait.Wait != 600*time.Second {
			r.Errorf("got %v", err)
		}
		r.WantElapsed(0, 1)
		time.Sleep(550 * time.Second) // 50 s are left: those are borne
		r.wantServed(c, r.request("GET", nil))
		r.WantElapsed(600*time.Second, 601*time.Second)
	})
}

func TestStopGoesByTheHoldThatTheLimiterHas(t *testing.T) {
	virtual(t, scripted(refusal("600"), ok200()), func(r rig) { // lifted by hand
		c, s := r.stack(middleware.Config{Ladder: stopping()})
		r.get(c)
		s.Limiter().(*bucket.Local).Lift(apiKey)
		r.wantServed(c, r.request("GET", nil))
		r.WantElapsed(0, 1)
	})
	virtual(t, metertest.Config{}, func(r rig) { // held by hand
		c, s := r.stack(middleware.Config{Ladder: stopping()})
		s.Limiter().(*bucket.Local).Hold(apiKey, time.Now().Add(600*time.Second))
		_, _, err := r.get(c)
		var wait *bucket.WaitError
		if !errors.As(err, &wait) {
			r.Errorf("got %v", err)
		}
		r.WantElapsed(0, 1)
		r.WantHits(0)
	})
}

func TestNobodyIsSentWhileTheKeyIsHeld(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.Provider.Script(times(5, refusal("7")), times(-1, ok200()))
		c, _ := r.stack(middleware.Config{})
		var calls sync.WaitGroup
		for i := range 40 {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				r.wantServed(c, r.request("POST", strings.NewReader("{}")))
			})
		}
		calls.Wait()
		var until time.Time
		for _, e := range r.Provider.Ledger() {
			if e.At.Before(until) {
				r.Errorf("sent at %v, held to %v", e.At.Sub(r.Start), until.Sub(r.Start))
			}
			if e.Status == 429 {
				until = e.At.Add(7 * time.Second)
			}
		}
		r.WantHits(45)
	})
}

func TestPaceAloneHoldsTheKeyForTheNextCall(t *testing.T) {
	virtual(t, scripted(refusal("10"), ok200()), func(r rig) {
		c := r.chain(lazyPace(bucket.Config{}))
		if status, _, err := r.get(c); status != 429 || err != nil {
			r.Fatalf("got %d, %v", status, err)
		}
		r.wantServed(c, r.request("GET", nil))
		r.WantElapsed(10*time.Second, 11*time.Second)
	})
}

func TestClientTimeoutMeetsAHoldAtOnce(t *testing.T) {
	virtual(t, scripted(times(-1, refusal("600"))), func(r rig) {
		c, _ := r.stack(middleware.Config{Ladder: policy(func(p *retryafter.Policy) { p.MaxDelay = 1000 * time.Second })})
		c.Timeout = 5 * time.Second
		if status, _, err := r.get(c); status != 429 || err != nil {
			r.Errorf("got %d, %v", status, err)
		}
		_, _, err := r.get(c)
		var wait *bucket.WaitError
		if !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("got %v", err)
		}
		r.WantElapsed(0, 1)
		r.WantHits(1)
	})
}

// limiterFunc is a Limiter of somebody else's.
type limiterFunc func() (bucket.Grant, error)

func (f limiterFunc) Acquire(context.Context, string, bucket.Cost) (bucket.Grant, error) { return f() }

func TestTheLadderWaitsWhereTheLimiterHoldsNothing(t *testing.T) {
	virtual(t, scripted(refusal("10"), ok200()), func(r rig) {
		zero := limiterFunc(func() (bucket.Grant, error) { return bucket.Grant{}, nil })
		c, _ := r.stack(middleware.Config{Limiter: zero, Ladder: policy(nil)})
		r.wantServed(c, r.request("GET", nil))
		r.WantElapsed(10*time.Second, 10*time.Second+1)
	})
}

func TestWhatFailsBeforeTheSendIsNoFaultOfTheServers(t *testing.T) {
	boom := errors.New("boom")
	for name, config := range map[string]func(asked *int) middleware.Config{
		"a Limiter's error": func(asked *int) middleware.Config {
			return middleware.Config{Limiter: limiterFunc(func() (bucket.Grant, error) { *asked++; return bucket.Grant{}, boom })}
		},
		"a Cost's error": func(asked *int) middleware.Config {
			return middleware.Config{Pace: middleware.PaceConfig{Cost: func(*http.Request) (bucket.Cost, error) { *asked++; return bucket.Cost{}, boom }}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				asked := 0
				c := config(&asked)
				c.Router = r.router(escalate.Config{Backups: []escalate.Route{backup()}})
				client, s := r.stack(c)
				body := text("{}")
				_, _, err := r.do(client, r.request("PUT", body))
				if !errors.Is(err, boom) || !middleware.Handled(nil, err) || asked != 1 {
					r.Errorf("asked %d times, got %v", asked, err)
				}
				r.WantElapsed(0, 1)
				r.WantHits(0)
				if body.closed != 1 {
					r.Errorf("the body was closed %d times", body.closed)
				}
				for _, st := range s.Stats().Routes {
					if st.Counts.TotalFailures != 0 {
						r.Errorf("a failure is booked: %+v", st)
					}
				}
			})
		})
	}
}
