package middleware_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/sony/gobreaker/v2"
)

func TestEveryAnswerIsJudgedForItself(t *testing.T) {
	again := func(next http.RoundTripper) http.RoundTripper { // a stranger's retry
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && resp.StatusCode == 429 {
				resp.Body.Close()
				return next.RoundTrip(req)
			}
			return resp, err
		})
	}
	virtual(t, scripted(refusal("1"), refusal("30"), ok200()), func(r rig) {
		c := r.chain(middleware.Ladder(policy(nil)), again, lazyPace(bucket.Config{}))
		r.wantServed(c, r.request("GET", nil))
		r.WantElapsed(31*time.Second, 31*time.Second+1)
	})
}

func TestAnAnswerInANewWrappingIsWaitedForOnce(t *testing.T) {
	for name, stranger := range map[string]middleware.Middleware{
		"a copy of the answer": func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err != nil {
					return nil, err
				}
				again := *resp
				return &again, nil
			})
		},
		"a context of its own": func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				return next.RoundTrip(req.WithContext(context.Background()))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, scripted(refusal("10"), ok200()), func(r rig) {
				c := r.chain(stranger, middleware.Retry(middleware.RetryPolicy{}), stranger, middleware.Ladder(policy(nil)), stranger, lazyPace(bucket.Config{}), stranger)
				body := text("abc")
				r.wantServed(c, r.request("POST", body))
				r.WantHits(2)
				r.WantElapsed(10*time.Second, 11*time.Second)
				if body.closed != 1 {
					r.Errorf("the body was closed %d times", body.closed)
				}
			})
		})
	}
}

func TestASpentTokenWindowIsWaitedOutWhereNobodyCountsTokens(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		r.Provider.Script(metertest.Reply(429, "{}",
			"x-ratelimit-limit-tokens", "30000", "x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "30s",
			"x-ratelimit-limit-requests", "500", "x-ratelimit-remaining-requests", "499", "x-ratelimit-reset-requests", "120ms"), ok200())
		c, _ := r.stack(middleware.Config{Ladder: policy(nil)})
		req, err := newRequest(r, "https://api.openai.com/v1/chat/completions")
		if err != nil {
			r.Fatal(err)
		}
		r.wantServed(c, req)
		r.WantElapsed(30*time.Second, 31*time.Second)
	})
}

func TestTheWaitBeginsWhenTheAnswerComes(t *testing.T) {
	trickle := metertest.Answer{Status: 429, Header: http.Header{"Retry-After": {"2"}}, Body: "x", Endless: true, Every: 100 * time.Millisecond}
	ways(t, policy(nil), func(t *testing.T, layers ...middleware.Middleware) {
		virtual(t, scripted(trickle, ok200()), func(r rig) {
			r.wantServed(r.chain(layers...), r.request("GET", nil))
			r.WantElapsed(2*time.Second, 2*time.Second+1)
		})
		virtual(t, scripted(trickle, ok200()), func(r rig) { // what the drain takes does not pass the deadline
			ctx, cancel := context.WithTimeout(r.Context(), 2300*time.Millisecond)
			defer cancel()
			r.wantServed(r.chain(layers...), r.request("GET", nil).WithContext(ctx))
		})
	})
}

func TestTheLastAnswerIsHandedBackByteForByte(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		big := strings.Repeat("0123456789", 30_000)
		r.Provider.Script(times(-1, metertest.Reply(429, big, "Retry-After", "1")))
		c, s := r.stack(middleware.Config{Ladder: policy(nil), Bucket: bucket.Config{MaxInFlight: 1}})
		req, err := newRequest(r, "https://api.openai.com/v1/chat/completions")
		if err != nil {
			r.Fatal(err)
		}
		if status, body, err := r.do(c, req); status != 429 || body != big || err != nil {
			r.Errorf("got %d, %d bytes, %v", status, len(body), err)
		}
		r.WantHits(6)
		r.wantNoSlotTaken(s)
	})
}

func TestAFailedAnswerWhoseBodyBreaksOffCountsOnce(t *testing.T) {
	virtual(t, scripted(metertest.Answer{Status: 500, Body: "half of it and some more", Fault: metertest.ResetDuringBody}), func(r rig) {
		c, s := r.routed(escalate.Config{}, policy(nil))
		resp, err := c.Do(r.request("POST", strings.NewReader("x")))
		if err != nil {
			r.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			r.Error("want a reset")
		}
		resp.Body.Close()
		if st := s.Stats().Routes[0]; st.Counts.TotalFailures != 1 || st.Late != 0 {
			r.Errorf("%+v", st)
		}
	})
}

func TestLeavingAStreamIsNoFailureOfTheRoutes(t *testing.T) {
	stream := metertest.Answer{Status: 200, Body: "x", Endless: true, Every: 100 * time.Millisecond}
	for name, leave := range map[string]func(body io.Closer, cancel func()){
		"by closing it":                            func(body io.Closer, _ func()) { body.Close() },
		"by closing it from both sides":            func(body io.Closer, _ func()) { go body.Close(); body.Close() },
		"by a cancel of the request within a turn": func(_ io.Closer, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, scripted(times(-1, stream)), func(r rig) {
				c, s := r.stack(middleware.Config{Router: r.router(escalate.Config{}), Bucket: bucket.Config{MaxInFlight: 5}})
				var calls sync.WaitGroup
				for range 5 {
					calls.Go(func() {
						turn, end := s.Turn(r.Context())
						defer end()
						ctx, cancel := context.WithCancel(turn)
						defer cancel()
						resp, err := c.Do(r.request("GET", nil).WithContext(ctx))
						if err != nil {
							r.Error(err)
							return
						}
						time.AfterFunc(time.Second, func() { leave(resp.Body, cancel) })
						if _, err := io.Copy(io.Discard, resp.Body); err == nil {
							r.Error("an endless stream has ended")
						}
						resp.Body.Close()
					})
				}
				calls.Wait()
				if st := s.Stats().Routes[0]; st.Late != 0 || st.Counts.TotalFailures != 0 {
					r.Errorf("%+v", st)
				}
				r.wantNoSlotTaken(s)
			})
		})
	}
}

// slowly is a body that wakes its reader before its Close returns.
type slowly struct{ *io.PipeReader }

func (s slowly) Close() error {
	s.PipeReader.Close()
	time.Sleep(time.Millisecond)
	return nil
}

func TestAReadThatACloseInterruptsIsNoFailureOfTheRoutes(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		c, s := r.over(middleware.Config{Router: r.router(escalate.Config{})}, func(req *http.Request) (*http.Response, error) {
			resp := reply(req, 200, "")
			body, _ := io.Pipe()
			resp.Body, resp.ContentLength = slowly{body}, -1
			return resp, nil
		})
		resp, err := c.Do(r.request("GET", nil))
		if err != nil {
			r.Fatal(err)
		}
		var closing sync.WaitGroup
		closing.Go(func() {
			time.Sleep(time.Second)
			resp.Body.Close()
		})
		if _, err := io.ReadAll(resp.Body); err == nil {
			r.Error("the read was not interrupted")
		}
		closing.Wait()
		if st := s.Stats().Routes[0]; st.Late != 0 {
			r.Errorf("%+v", st)
		}
	})
}

func TestStatsAddUpWhateverComesBack(t *testing.T) {
	virtual(t, scripted(refusal("0"), metertest.Answer{Fault: metertest.ResetAfter}, metertest.Answer{Fault: metertest.DialError},
		metertest.Reply(500, ""), ok200(), metertest.Reply(404, "x")), func(r rig) {
		c, s := r.stack(middleware.Config{Ladder: policy(nil)})
		for range 4 {
			r.get(c)
		}
		k := s.Stats().Keys[0]
		refused := int64(0)
		for _, n := range k.Refused {
			refused += n
		}
		if k.Sends != 8 || refused != 1 || k.Failed != 2 || k.Sends != k.Served+refused+k.Failed {
			r.Errorf("%+v", k)
		}
	})
}

func TestAPercentileIsAtMostAQuarterTooHigh(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		c, s := r.stack(middleware.Config{Bucket: bucket.Config{MaxWait: -1}})
		wait := func(d time.Duration) {
			s.Limiter().(*bucket.Local).Hold(apiKey, time.Now().Add(d))
			r.wantServed(c, r.request("GET", nil))
		}
		const most = 1 << 20 * time.Microsecond // the lower end of its bucket
		for range 9 {
			wait(most)
		}
		wait(10 * time.Second)
		if p50 := s.Stats().Keys[0].WaitP50; p50 < most || p50 > most*5/4 {
			r.Errorf("half waited %v at most, the figure is %v", most, p50)
		}
	})
}

func TestHandledKnowsARefusalThatOnlyTheProvidersRulesMakeOne(t *testing.T) {
	virtual(t, scripted(times(-1, metertest.Reply(403, `{"message":"You have exceeded a secondary rate limit."}`))), func(r rig) {
		c, s := r.stack(middleware.Config{Ladder: policy(nil)})
		turn, end := s.Turn(r.Context())
		defer end()
		ctx, cancel := context.WithTimeout(turn, 10*time.Second)
		defer cancel()
		req, err := newRequest(r, "https://api.github.com/repos")
		if err != nil {
			r.Fatal(err)
		}
		resp, err := c.Do(req.WithContext(ctx))
		if err != nil {
			r.Fatal(err)
		}
		resp.Body.Close()
		if !middleware.Handled(resp, nil) {
			r.Error("a refusal that the ladder gave up is not Handled")
		}
	})
}

func TestOddAnswersComeThroughAsTheyAre(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		server http.HandlerFunc
		want   func(r rig, resp *http.Response, body string, err error)
	}{
		"trailers": {"GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "42")
		}, func(r rig, resp *http.Response, body string, err error) {
			if resp.Trailer.Get("X-Sum") != "42" || body != "body" || err != nil {
				r.Errorf("%q, trailer %v, %v", body, resp.Trailer, err)
			}
		}},
		"compressed": {"GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			io.WriteString(z, strings.Repeat("gz", 1000))
			z.Close()
		}, func(r rig, resp *http.Response, body string, err error) {
			if len(body) != 2000 || !resp.Uncompressed || err != nil {
				r.Errorf("%d bytes, %v", len(body), err)
			}
		}},
		"shorter than it says": {"GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(429)
			io.WriteString(w, "short")
		}, func(r rig, resp *http.Response, body string, err error) {
			if resp.StatusCode != 429 || body != "short" || err == nil {
				r.Errorf("%d %q, %v", resp.StatusCode, body, err)
			}
		}},
		"a length without a body": {"HEAD", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
		}, func(r rig, resp *http.Response, body string, err error) {
			if resp.ContentLength != 1000 || body != "" || err != nil {
				r.Errorf("length %d, %q, %v", resp.ContentLength, body, err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eachProtocol(t, func(r rig, serve func(http.HandlerFunc) *http.Transport, _ bool) {
				client, s := r.over(middleware.Config{Bucket: bucket.Config{MaxInFlight: 1}, Ladder: policy(nil)}, serve(c.server).RoundTrip)
				resp, err := client.Do(r.request(c.method, nil))
				if err != nil {
					r.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				c.want(r, resp, string(body), err)
				r.wantNoSlotTaken(s)
			})
		})
	}
}

func TestInformationalAnswersReachTheCallersTrace(t *testing.T) {
	eachProtocol(t, func(r rig, serve func(http.HandlerFunc) *http.Transport, _ bool) {
		c, _ := r.over(middleware.Config{}, serve(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, "ok")
		}).RoundTrip)
		got := 0
		ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			got = code
			return nil
		}})
		r.wantServed(c, r.request("GET", nil).WithContext(ctx))
		if got != http.StatusEarlyHints {
			r.Errorf("traced %d", got)
		}
	})
}

func TestABodyThatWaitsForAGoAheadIsSentAgainWhole(t *testing.T) {
	eachProtocol(t, func(r rig, serve func(http.HandlerFunc) *http.Transport, _ bool) {
		var hits atomic.Int32
		transport := serve(func(w http.ResponseWriter, req *http.Request) {
			if hits.Add(1) == 1 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(429)
				return
			}
			io.Copy(w, req.Body)
		})
		transport.ExpectContinueTimeout = time.Second
		c, _ := r.over(middleware.Config{Ladder: policy(nil)}, transport.RoundTrip)
		req := r.request("POST", text("hello"))
		req.Header.Set("Expect", "100-continue")
		if status, body, err := r.do(c, req); status != 200 || body != "hello" || err != nil {
			r.Errorf("got %d %q, %v", status, body, err)
		}
	})
}

func TestAnAnswerWithoutABodyTakesNoSlotWhileItIsOpen(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		status int
	}{"204": {"GET", 204}, "304": {"GET", 304}, "HEAD": {"HEAD", 200}} {
		t.Run(name, func(t *testing.T) {
			eachProtocol(t, func(r rig, serve func(http.HandlerFunc) *http.Transport, _ bool) {
				client, s := r.over(middleware.Config{Bucket: bucket.Config{MaxInFlight: 1}}, serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) }).RoundTrip)
				resp, err := client.Do(r.request(c.method, nil))
				if err != nil {
					r.Fatal(err)
				}
				r.wantNoSlotTaken(s)
				resp.Body.Close()
			})
		})
	}
}

func TestAnUpgradedConnectionTakesItsSlotUntilItIsClosed(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		c, s := r.over(middleware.Config{Bucket: bucket.Config{MaxInFlight: 1}}, serve(r.T, false, func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			rw.Flush()
			line, _ := rw.ReadString('\n')
			io.WriteString(rw, line)
			rw.Flush()
		}).RoundTrip)
		req := r.request("GET", nil)
		req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
		resp, err := c.Do(req)
		if err != nil {
			r.Fatal(err)
		}
		conn, ok := resp.Body.(io.ReadWriteCloser)
		if !ok {
			r.Fatalf("the body is a %T", resp.Body)
		}
		io.WriteString(conn, "hi\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hi\n" {
			r.Errorf("got %q, %v", line, err)
		}
		if n := s.Stats().Keys[0].Budget.InFlight; n != 1 {
			r.Errorf("%d slots taken", n)
		}
		conn.Close()
		r.wantNoSlotTaken(s)
	})
}

func TestCallsOutliveTheConnectionsOfAServerThatShutsThemDown(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		var hits atomic.Int32
		transport := serve(r.T, true, func(w http.ResponseWriter, req *http.Request) {
			b, _ := io.ReadAll(req.Body)
			if hits.Add(1)%5 == 0 {
				w.Header().Set("Connection", "close") // over HTTP/2: GOAWAY
			}
			w.Write(b)
		})
		c, s := r.over(middleware.Config{}, transport.RoundTrip)
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				want := strings.Repeat(string(rune('a'+i)), 100_000)
				var body io.Reader = strings.NewReader(want)
				if i%2 == 0 {
					body = text(want)
				}
				if status, got, err := r.do(c, r.request("POST", body)); status != 200 || got != want {
					r.Errorf("got %d, %d bytes, %v", status, len(got), err)
				}
			})
		}
		calls.Wait()
		r.wantNoSlotTaken(s)
	})
}

func TestATransportThatForgetsTheBodyOrTheAnswerIsBorne(t *testing.T) {
	layers := map[string]func(r rig) middleware.Middleware{
		"Escalate": func(r rig) middleware.Middleware {
			return middleware.Escalate(r.router(escalate.Config{Settings: escalate.Settings{ReadyToTrip: func(gobreaker.Counts) bool { panic(errBoom) }}}))
		},
		"Retry":  func(rig) middleware.Middleware { return middleware.Retry(middleware.RetryPolicy{}) },
		"Ladder": func(rig) middleware.Middleware { return middleware.Ladder(policy(nil)) },
		"Pace":   func(rig) middleware.Middleware { return lazyPace(bucket.Config{}) },
	}
	for name, layer := range layers {
		t.Run(name, func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				for _, status := range []int{200, 429, 500} {
					rt := middleware.Chain(roundTripper(func(req *http.Request) (*http.Response, error) {
						a := reply(req, status, "")
						a.Body = nil
						return a, nil
					}), layer(r))
					if resp, err := rt.RoundTrip(r.request("POST", nil)); err == nil && resp.Body == nil {
						r.Errorf("%d came without a body", status)
					}
				}
				rt := middleware.Chain(roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil }), layer(r))
				if resp, err := rt.RoundTrip(r.request("GET", nil)); resp != nil || err == nil {
					r.Errorf("of nothing became %v, %v", resp, err)
				}
			})
		})
	}
}
