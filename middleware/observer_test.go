package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
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

// recorder is an Observer that remembers.
type recorder struct {
	mu     sync.Mutex
	events []middleware.Event
}

func (o *recorder) Observe(_ context.Context, e middleware.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

func (o *recorder) kinds() []middleware.EventKind {
	o.mu.Lock()
	defer o.mu.Unlock()
	var kinds []middleware.EventKind
	for _, e := range o.events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestEventsTellTheStoryOfATurn(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, refusal("2"), metertest.Answer{Fault: metertest.ResetAfter}, refusal("100"))
		o := new(recorder)
		c, _ := r.stack(middleware.Config{
			Observer: o,
			Ladder:   policy(nil),
			Router:   r.router(escalate.Config{Backups: []escalate.Route{backup()}}),
		})
		r.wantServed(c, r.request("GET", nil))
		want := []middleware.EventKind{
			middleware.Sent, middleware.Refused, middleware.Held, middleware.Waited,
			middleware.Sent, middleware.Settled, middleware.Retried,
			middleware.Sent, middleware.Refused, middleware.Held, middleware.Escalated,
			middleware.Rerouted, middleware.Sent, middleware.Settled,
		}
		if got := o.kinds(); !slices.Equal(got, want) {
			r.Fatalf("got  %v\nwant %v", got, want)
		}
		for i, e := range o.events {
			if e.Key == "" || e.Route == "" {
				r.Errorf("event %d has no key or route: %+v", i, e)
			}
		}
		refused := o.events[1]
		if refused.Status != 429 || refused.Class != retryafter.RateLimited || refused.Wait != 2*time.Second || refused.Attempt != 1 {
			r.Errorf("%+v", refused)
		}
		if waited := o.events[3]; waited.Wait != 2*time.Second {
			r.Errorf("%+v", waited)
		}
		if last := o.events[len(o.events)-2]; last.Route != "backup" || last.Attempt != 4 {
			r.Errorf("%+v", last)
		}
	})
}

func TestAPanickingHookIsThatRequestsErrorAndLeaksNothing(t *testing.T) {
	boom := errors.New("boom")
	on := func(kind middleware.EventKind) middleware.Observer {
		return middleware.ObserverFunc(func(_ context.Context, e middleware.Event) {
			if e.Kind == kind {
				panic(boom)
			}
		})
	}
	limits := bucket.Config{MaxInFlight: 1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}}
	for name, config := range map[string]middleware.Config{
		"Observer on waited":  {Observer: on(middleware.Waited)},
		"Observer on sent":    {Observer: on(middleware.Sent)},
		"Observer on refused": {Observer: on(middleware.Refused)},
		"Observer on held":    {Observer: on(middleware.Held)},
		"PaceConfig.Cost":     {Pace: middleware.PaceConfig{Cost: func(*http.Request) (bucket.Cost, error) { panic(boom) }}},
		"PaceConfig.Key":      {Pace: middleware.PaceConfig{Key: func(*http.Request) string { panic(boom) }}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, scripted(refusal("1"), refusal("1"), ok200()), func(r rig) {
				config.Bucket = limits
				c, s := r.stack(config)
				body := text("{}")
				_, _, err := r.do(c, r.request("POST", body))
				if !errors.Is(err, boom) {
					r.Fatalf("got %v", err)
				}
				if body.closed != 1 {
					r.Errorf("the body was closed %d times", body.closed)
				}
				if n := r.Provider.OpenBodies(); n != 0 {
					r.Errorf("%d answers open", n)
				}
				for _, k := range s.Stats().Keys {
					if k.Budget.InFlight != 0 || k.Budget.Queued != 0 {
						r.Errorf("a slot is leaked: %+v", k.Budget)
					}
				}
			})
		})
	}
	t.Run("Route.Rewrite", func(t *testing.T) {
		virtual(t, metertest.Config{}, func(r rig) {
			router := r.router(escalate.Config{Primary: escalate.Route{Name: "p", Rewrite: func(*http.Request) error { panic(boom) }}})
			body := text("{}")
			c, s := r.stack(middleware.Config{Router: router})
			if _, _, err := r.do(c, r.request("POST", body)); !errors.Is(err, boom) {
				r.Fatalf("got %v", err)
			}
			if body.closed != 1 || r.Provider.Hits() != 0 {
				r.Errorf("closed %d times, sent %d times", body.closed, r.Provider.Hits())
			}
			if st := s.Stats().Routes[0]; st.State != "closed" || st.Counts.TotalFailures != 0 {
				r.Errorf("%+v", st)
			}
		})
	})
	t.Run("Observer on settled surfaces when the body is closed", func(t *testing.T) {
		virtual(t, metertest.Config{}, func(r rig) {
			c, s := r.stack(middleware.Config{Observer: on(middleware.Settled), Bucket: limits})
			resp, err := c.Do(r.request("GET", nil))
			if err != nil {
				r.Fatal(err)
			}
			if err := resp.Body.Close(); !errors.Is(err, boom) {
				r.Errorf("Close: %v", err)
			}
			if n := s.Stats().Keys[0].Budget.InFlight; n != 0 {
				r.Errorf("%d slots leaked", n)
			}
		})
	})
}

func TestSlogObserverSaysNothingAtInfoWhileAllIsWell(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		var out bytes.Buffer
		o := middleware.NewSlogObserver(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
			Level: slog.LevelInfo,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})))
		c, _ := r.stack(middleware.Config{Observer: o, Ladder: policy(nil), Bucket: bucket.Config{Headroom: 1, Limits: []bucket.Limit{
			{Unit: bucket.Requests, Amount: 1, Per: time.Second}}}})
		for range 3 {
			r.wantServed(c, r.request("GET", nil))
		}
		if out.Len() > 0 {
			r.Fatalf("a healthy client logged %s", out.String())
		}
		r.Provider.Script(refusal("2"))
		r.wantServed(c, r.request("GET", nil))
		want := `level=WARN msg=refused key=http://api.example.com:80 attempt=1 wait=2s status=429 class=rate_limited
level=WARN msg=held key=http://api.example.com:80 attempt=1 wait=2s
`
		if out.String() != want {
			r.Fatalf("got\n%swant\n%s", out.String(), want)
		}
	})
}

func TestARetryIsToldWithItsKey(t *testing.T) {
	virtual(t, scripted(metertest.Answer{Fault: metertest.DialError}, metertest.Reply(500, ""), ok200()), func(r rig) {
		o := new(recorder)
		c, _ := r.stack(middleware.Config{Observer: o})
		r.wantServed(c, r.request("GET", nil))
		for _, e := range o.events {
			if e.Key != "http://api.example.com:80" {
				r.Errorf("%v of %q", e.Kind, e.Key)
			}
		}
	})
}

func TestEventKindsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for k := middleware.Waited; k <= middleware.Doubted; k++ {
		if n := k.String(); n == "" || n == "unknown" || seen[n] || n != strings.ToLower(n) {
			t.Errorf("%d is %q", k, n)
		} else {
			seen[n] = true
		}
	}
	if n := middleware.EventKind(200).String(); n != "unknown" {
		t.Errorf("an unknown kind is %q", n)
	}
}
