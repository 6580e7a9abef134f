package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

func TestAStackWrappedTwiceTakesItsBudgetOnce(t *testing.T) {
	for name, c := range map[string]bucket.Config{"one slot": {MaxInFlight: 1}, "two requests a minute": {Headroom: 1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 2)}}} {
		t.Run(name, func(t *testing.T) {
			virtual(t, scripted(refusal("1"), ok200()), func(r rig) {
				s, err := middleware.New(middleware.Config{Ladder: policy(nil), Bucket: c})
				if err != nil {
					r.Fatal(err)
				}
				client := &http.Client{Transport: s.Transport(s.Transport(r.Provider.Transport()))}
				r.wantServed(client, r.request("GET", nil))
				r.WantElapsed(time.Second, time.Second+1)
				if k := s.Stats().Keys[0]; k.Sends != 2 {
					r.Errorf("two sends are counted as %d", k.Sends)
				}
				r.wantNoSlotTaken(s)
			})
		})
	}
}

func TestAStackWrappedTwiceRoutesOnce(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.script(primaryHost, metertest.Answer{Fault: metertest.DialError})
		b := backup()
		b.URL += "/prefix"
		s, err := middleware.New(middleware.Config{Router: r.router(escalate.Config{Backups: []escalate.Route{b}}), Retry: middleware.RetryPolicy{MaxRetries: -1}})
		if err != nil {
			r.Fatal(err)
		}
		body := text("{}")
		r.wantServed(&http.Client{Transport: s.Transport(s.Transport(r.Provider.Transport()))}, r.request("PUT", body))
		if e := r.Provider.Ledger(); len(e) != 2 || e[1].Path != "/prefix/v1/things" {
			r.Errorf("%+v", e)
		}
		if body.closed != 1 {
			r.Errorf("the body was closed %d times", body.closed)
		}
		for _, route := range s.Stats().Routes {
			if route.Counts.Requests != 1 {
				r.Errorf("one call is counted as %d: %+v", route.Counts.Requests, route)
			}
		}
	})
}

func TestARequestMadeForAnotherOneIsACallOfItsOwn(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		asked := 0
		tokens, inner := r.over(middleware.Config{Ladder: policy(nil)}, func(req *http.Request) (*http.Response, error) {
			if asked++; asked == 1 {
				return reply(req, 429, "", "Retry-After", "1"), nil
			}
			return reply(req, 200, "token"), nil
		})
		c, _ := r.over(middleware.Config{Router: r.router(escalate.Config{})}, func(req *http.Request) (*http.Response, error) {
			refresh, err := http.NewRequestWithContext(req.Context(), "GET", "http://auth.example.com/token", nil)
			if err != nil {
				return nil, err
			}
			if status, body, err := r.do(tokens, refresh); status != 200 || body != "token" {
				return nil, fmt.Errorf("the token: %d, %w", status, err)
			}
			return reply(req, 200, "ok"), nil
		})
		r.wantServed(c, r.request("GET", nil))
		r.WantElapsed(time.Second, 2*time.Second)
		if keys := inner.Stats().Keys; len(keys) != 1 || keys[0].Key != "http://auth.example.com:80" {
			r.Errorf("charged to %+v", keys)
		}
	})
}

func TestARedirectedPostBringsItsBodyAlong(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		var got []string
		c, s := r.over(middleware.Config{Bucket: bucket.Config{MaxInFlight: 1}}, func(req *http.Request) (*http.Response, error) {
			defer req.Body.Close()
			b, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			if got = append(got, req.URL.Path+" "+string(b)); len(got) == 1 {
				return reply(req, 307, "", "Location", "/b"), nil
			}
			return reply(req, 200, "ok"), nil
		})
		r.wantServed(c, r.request("POST", strings.NewReader("body")))
		if len(got) != 2 || got[1] != "/b body" {
			r.Errorf("sent %q", got)
		}
		r.wantNoSlotTaken(s)
	})
}

func TestARequestWithoutAURLIsAnError(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		c, _ := r.stack(middleware.Config{})
		body := text("x")
		resp, err := c.Transport.RoundTrip(&http.Request{Method: "PUT", Header: http.Header{}, Body: body})
		if err == nil {
			resp.Body.Close()
			r.Error("no error")
		}
		if body.closed != 1 {
			r.Errorf("the body was closed %d times", body.closed)
		}
		r.WantHits(0)
	})
}

// byHeader charges a request to the key that its header K names.
func byHeader(req *http.Request) string { return req.Header.Get("K") }

func TestABusyKeyKeepsItsFiguresAmongManyOthers(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		c, s := r.over(middleware.Config{Pace: middleware.PaceConfig{Key: byHeader}}, func(req *http.Request) (*http.Response, error) {
			return reply(req, 200, ""), nil
		})
		send := func(key string) {
			req := r.request("GET", nil)
			req.Header.Set("K", key)
			resp, err := c.Transport.RoundTrip(req)
			if err != nil {
				r.Fatal(err)
			}
			resp.Body.Close()
		}
		busy := int64(0)
		for i := range 30_000 {
			send(fmt.Sprint(i))
			if i%10 == 0 {
				send("busy")
				busy++
				time.Sleep(time.Microsecond)
			}
		}
		keys := s.Stats().Keys
		if len(keys) > 10_000 {
			r.Errorf("figures of %d keys", len(keys))
		}
		for _, k := range keys {
			if k.Key == "busy" && k.Sends == busy {
				return
			}
		}
		r.Error("the busy key's figures are gone")
	})
}

func TestManyHostsAndSpellingsTakeBoundedMemory(t *testing.T) {
	send := func(t *testing.T, rt http.RoundTripper, req *http.Request, host string) {
		req.URL.Host = host
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	ok := roundTripper(func(req *http.Request) (*http.Response, error) { return reply(req, 200, ""), nil })
	for name, c := range map[string]struct {
		room int // what is kept of them at most
		host func(i int) string
	}{
		"hosts": {10_000, func(i int) string { return fmt.Sprintf("%0200d.example.com", i) }},
		"spellings of one host": {20_000, func(i int) string {
			b := []byte(strings.Repeat("a", 200) + ".example.com")
			for bit := range 16 {
				if i>>bit&1 == 1 {
					b[bit] = 'A'
				}
			}
			return string(b)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := middleware.New(middleware.Config{})
			if err != nil {
				t.Fatal(err)
			}
			rt := s.Transport(ok)
			req, err := http.NewRequestWithContext(context.Background(), "GET", apiURL, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.room {
				send(t, rt, req, c.host(i))
			}
			before := heap()
			for i := range c.room {
				send(t, rt, req, c.host(c.room+i))
			}
			if more := heap() - before; more > 2<<20 {
				t.Errorf("as many again take %d KiB more", more>>10)
			}
			if n := len(s.Stats().Keys); n > 10_000 {
				t.Errorf("figures of %d keys", n)
			}
		})
	}
}

// A request that a stranger makes for another one, through another Stack, is a
// call of its own, wherever it is made and whatever it looks like.
func TestARefreshThroughAnotherStackIsACallOfItsOwn(t *testing.T) {
	for _, url := range []string{"http://auth.example.com/token", "http://auth.example.com", "http://auth.example.com/", "http://auth.example.com/things"} {
		for _, where := range []string{"base", "between", "between, after an answer"} {
			t.Run(url+" "+where, func(t *testing.T) {
				virtual(t, metertest.Config{}, func(r rig) {
					asked := 0
					tokens, inner := r.over(middleware.Config{Ladder: policy(nil)}, func(req *http.Request) (*http.Response, error) {
						if asked++; asked == 1 {
							return reply(req, 429, "", "Retry-After", "1"), nil
						}
						return reply(req, 200, "token"), nil
					})
					refreshing := func(next http.RoundTripper) http.RoundTripper {
						return roundTripper(func(req *http.Request) (*http.Response, error) {
							if strings.Contains(where, "after") {
								resp, err := next.RoundTrip(req)
								if err != nil {
									return nil, err
								}
								resp.Body.Close()
							}
							refresh, _ := http.NewRequestWithContext(req.Context(), "GET", url, nil)
							if status, body, err := r.do(tokens, refresh); status != 200 || body != "token" {
								return nil, fmt.Errorf("the token: %d, %v", status, err)
							}
							return next.RoundTrip(req)
						})
					}
					base := roundTripper(func(req *http.Request) (*http.Response, error) { return reply(req, 200, "ok"), nil })
					var rt http.RoundTripper
					router := r.router(escalate.Config{})
					if where == "base" {
						rt = middleware.Chain(base, middleware.Escalate(router), middleware.Ladder(policy(nil)), lazyPace(bucket.Config{}), refreshing)
					} else {
						rt = middleware.Chain(base, middleware.Escalate(router), middleware.Ladder(policy(nil)), refreshing, lazyPace(bucket.Config{}))
					}
					c := &http.Client{Transport: rt}
					if st, _, err := r.do(c, r.request("GET", nil)); st != 200 {
						r.Errorf("%d %v", st, err)
					}
					if keys := inner.Stats().Keys; len(keys) != 1 || keys[0].Key != "http://auth.example.com:80" {
						for _, k := range keys {
							r.Errorf("charged to %+v", k.Key)
						}
					}
				})
			})
		}
	}
}
