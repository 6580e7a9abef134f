package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
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

var errBoom = errors.New("boom")

// panicsOn is an Observer that panics at events of this kind.
func panicsOn(kind middleware.EventKind, seen *bool) middleware.Observer {
	return middleware.ObserverFunc(func(_ context.Context, e middleware.Event) {
		if e.Kind == kind {
			*seen = true
			panic(errBoom)
		}
	})
}

func TestAPanicOfTheObserverSurfacesWhateverItIsToldOf(t *testing.T) {
	for kind := middleware.Waited; kind <= middleware.Settled; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				r.script(primaryHost, metertest.Reply(500, "x"), times(-1, refusal("1")))
				seen := false
				c, s := r.stack(middleware.Config{
					Bucket: bucket.Config{MaxInFlight: 1}, Ladder: policy(nil),
					Router:   r.router(escalate.Config{Backups: []escalate.Route{backup()}}),
					Observer: panicsOn(kind, &seen),
				})
				body := text("{}")
				resp, err := c.Do(r.request("PUT", body))
				if err == nil {
					io.Copy(io.Discard, resp.Body)
					err = resp.Body.Close()
				}
				if seen != errors.Is(err, errBoom) {
					r.Errorf("panicked: %v, got %v", seen, err)
				}
				if !seen && kind != middleware.Overdue { // nothing is overdue here
					r.Error("nothing of this kind was told")
				}
				if body.closed != 1 || r.Provider.OpenBodies() != 0 {
					r.Errorf("the body was closed %d times, %d answers are open", body.closed, r.Provider.OpenBodies())
				}
				r.wantNoSlotTaken(s)
			})
		})
	}
}

func TestAPanicOfTheObserverSurfacesInAHostsTurnAndOnlyOnce(t *testing.T) {
	virtual(t, scripted(refusal("100"), ok200()), func(r rig) {
		var seen bool
		c, s := r.stack(middleware.Config{Ladder: stopping(), Observer: panicsOn(middleware.Refused, &seen)})
		ctx, end := s.Turn(r.Context())
		defer end()
		if _, _, err := r.do(c, r.request("GET", nil).WithContext(ctx)); !errors.Is(err, errBoom) {
			r.Errorf("got %v", err)
		}
		s.Limiter().(*bucket.Local).Lift(apiKey)
		r.wantServed(c, r.request("GET", nil).WithContext(ctx))
	})
}

func TestAPanicOfOnStateChangeSurfacesWhenAnotherRouteAdmits(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, refusal("100"), times(-1, ok200()))
		c, _ := r.routed(escalate.Config{Backups: []escalate.Route{backup()}, Settings: escalate.Settings{
			OnStateChange: func(_ string, _, to gobreaker.State) {
				if to == gobreaker.StateHalfOpen {
					panic(errBoom)
				}
			},
		}}, policy(nil))
		r.wantServed(c, r.request("GET", nil))
		time.Sleep(200 * time.Second)
		_, _, err := r.get(c)
		var hook *escalate.PanicError
		if !errors.As(err, &hook) || !middleware.Handled(nil, err) {
			r.Errorf("got %v", err)
		}
	})
}

func TestAPanicOfAProviderIsThatRequestsErrorAndLeaksNothing(t *testing.T) {
	virtual(t, scripted(metertest.Reply(429, `{"a":1}`, "Content-Type", "application/json")), func(r rig) {
		mine := retryafter.Provider{Name: "mine", Hosts: []string{"api.example.com"}, Body: func(*retryafter.Signal, any) { panic(errBoom) }}
		c, s := r.stack(middleware.Config{Reader: retryafter.Reader{Providers: []retryafter.Provider{mine}}, Bucket: bucket.Config{MaxInFlight: 1}})
		if _, _, err := r.get(c); !errors.Is(err, errBoom) {
			r.Errorf("got %v", err)
		}
		if n := r.Provider.OpenBodies(); n != 0 {
			r.Errorf("%d answers open", n)
		}
		r.wantNoSlotTaken(s)
	})
}

func TestAPanicOfARewriteIsHandled(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		c, _ := r.routed(escalate.Config{Primary: escalate.Route{Name: "p", Rewrite: func(*http.Request) error { panic(errBoom) }}}, policy(nil))
		if _, _, err := r.get(c); !errors.Is(err, errBoom) || !middleware.Handled(nil, err) {
			r.Errorf("got %v", err)
		}
		r.WantHits(0)
	})
}

func TestATransportThatNeverReturnsGivesItsSlotAndPermitBack(t *testing.T) {
	for name, leave := range map[string]func(){
		"by a panic": func() { panic(errBoom) },
		"by Goexit":  runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				sent := 0
				c, s := r.over(middleware.Config{Router: r.router(escalate.Config{Backups: []escalate.Route{backup()}}), Bucket: bucket.Config{MaxInFlight: 1}, Ladder: policy(nil)},
					func(req *http.Request) (*http.Response, error) {
						defer req.Body.Close()
						if sent++; sent == 1 {
							return reply(req, 429, "", "Retry-After", "1"), nil
						}
						io.ReadAll(req.Body)
						leave()
						return nil, nil
					})
				body := text("x")
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					defer func() { recover() }()
					c.Transport.RoundTrip(r.request("POST", body))
				}()
				<-gone
				r.wantNoSlotTaken(s)
				st := s.Stats()
				if n := st.Routes[0].Counts; n.Requests != 1 || n.TotalExclusions != 1 {
					r.Errorf("%+v", n)
				}
				if st.Keys[0].Failed != 1 || body.closed != 1 {
					r.Errorf("%d sends failed, the body was closed %d times", st.Keys[0].Failed, body.closed)
				}
			})
		})
	}
}

// Some SDKs' GetBody rewinds the reader that is the body, and hands that out.
func TestAHookMayReadABodyThatGetBodyOnlyRewinds(t *testing.T) {
	virtual(t, scripted(refusal("1"), ok200()), func(r rig) {
		c, _ := r.stack(middleware.Config{Ladder: policy(nil), Pace: middleware.PaceConfig{Cost: func(req *http.Request) (bucket.Cost, error) {
			b, err := req.GetBody()
			if err != nil {
				return bucket.Cost{}, err
			}
			defer b.Close()
			n, err := io.Copy(io.Discard, b)
			return bucket.Cost{Requests: 1, InputTokens: n}, err
		}}})
		body := strings.NewReader("payload")
		req := r.request("POST", body)
		req.GetBody = func() (io.ReadCloser, error) {
			_, err := body.Seek(0, io.SeekStart)
			return io.NopCloser(body), err
		}
		r.wantServed(c, req)
		for _, e := range r.Provider.Ledger() {
			if e.BodyLen != int64(len("payload")) {
				r.Errorf("a send had %d bytes", e.BodyLen)
			}
		}
		r.WantHits(2)
	})
}
