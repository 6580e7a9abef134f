package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// takenAndLost reads body, as a server does that takes the call, and then loses
// the connection.
func takenAndLost(body io.ReadCloser, taken *int) (*http.Response, error) {
	defer body.Close()
	if b, _ := io.ReadAll(body); len(b) > 0 {
		*taken++
	}
	return nil, io.ErrUnexpectedEOF
}

func TestAPostTakenAndLostIsNotSentAgain(t *testing.T) {
	retry := middleware.Retry(middleware.RetryPolicy{})
	router := func(r rig) middleware.Middleware {
		return middleware.Escalate(r.router(escalate.Config{Backups: []escalate.Route{backup()}}))
	}
	refusedUnread := func(req *http.Request) (*http.Response, error) { // as with Expect: 100-continue
		req.Body.Close()
		return reply(req, 429, "", "Retry-After", "1"), nil
	}
	lostUnread := func(req *http.Request) (*http.Response, error) {
		req.Body.Close()
		return nil, errors.New("server closed idle connection")
	}
	for name, c := range map[string]struct {
		first  func(*http.Request) (*http.Response, error)
		layers func(r rig) []middleware.Middleware
	}{
		"after a refusal that left it unread": {refusedUnread, func(r rig) []middleware.Middleware {
			return []middleware.Middleware{retry, middleware.Ladder(policy(nil))}
		}},
		"after a refusal that left it unread, by the backup": {refusedUnread, func(r rig) []middleware.Middleware {
			return []middleware.Middleware{router(r), retry, middleware.Ladder(policy(nil)), lazyPace(bucket.Config{})}
		}},
		"after a connection that left it unread": {lostUnread, func(r rig) []middleware.Middleware {
			return []middleware.Middleware{retry}
		}},
		"after a connection that left it unread, by the backup": {lostUnread, func(r rig) []middleware.Middleware {
			return []middleware.Middleware{router(r), retry, lazyPace(bucket.Config{})}
		}},
	} {
		for kind, body := range map[string]func() io.Reader{
			"with GetBody": func() io.Reader { return strings.NewReader("pay") },
			"opaque":       func() io.Reader { return text("pay") },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				virtual(t, metertest.Config{}, func(r rig) {
					sent, taken := 0, 0
					rt := middleware.Chain(roundTripper(func(req *http.Request) (*http.Response, error) {
						if sent++; sent == 1 {
							return c.first(req)
						}
						return takenAndLost(req.Body, &taken)
					}), c.layers(r)...)
					if _, err := rt.RoundTrip(r.request("POST", body())); !errors.Is(err, io.ErrUnexpectedEOF) {
						r.Errorf("got %v", err)
					}
					if sent != 2 || taken != 1 {
						r.Errorf("sent %d times, taken %d times", sent, taken)
					}
				})
			})
		}
	}
}

func TestAPostThatTheTransportTookFromGetBodyIsNotSentAgain(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		taken := 0
		l := mustLimiter(r.T, bucket.Config{Headroom: 1, Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 10, Per: time.Hour, Shape: bucket.Window}}})
		rt := middleware.Chain(roundTripper(func(req *http.Request) (*http.Response, error) {
			req.Body.Close() // a connection that was stale
			again, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			return takenAndLost(again, &taken)
		}), middleware.Retry(middleware.RetryPolicy{}), middleware.Pace(l, middleware.PaceConfig{}))
		for _, body := range []io.Reader{strings.NewReader("pay"), text("pay")} {
			rt.RoundTrip(r.request("POST", body))
		}
		if taken != 2 {
			r.Errorf("two calls were taken %d times", taken)
		}
		if s, _ := l.Stats("http://api.example.com:80"); s.Levels[0].Available != 8 {
			r.Errorf("two of ten are spent, %v are left", s.Levels[0].Available)
		}
	})
}

// staleConn is a kept connection that net/http finds dead when it comes to write
// the next request to it: it then sends that over a new one, from GetBody.
type staleConn struct {
	net.Conn
	stale *atomic.Bool
}

func (c staleConn) Write(p []byte) (int, error) {
	if c.stale.Load() {
		return 0, errors.New("broken pipe")
	}
	return c.Conn.Write(p)
}

func TestAPostOverAStaleConnectionIsTakenOnce(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		var taken atomic.Int32
		transport := serve(r.T, false, func(w http.ResponseWriter, req *http.Request) {
			if req.Method == "POST" {
				if b, _ := io.ReadAll(req.Body); len(b) > 0 {
					taken.Add(1)
				}
				panic(http.ErrAbortHandler)
			}
		})
		dial := transport.DialContext
		var conns []*atomic.Bool
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			conns = append(conns, new(atomic.Bool))
			return staleConn{c, conns[len(conns)-1]}, err
		}
		c, _ := r.over(middleware.Config{}, transport.RoundTrip)
		r.wantServed(c, r.request("GET", nil))
		conns[0].Store(true)
		if _, err := c.Do(r.request("POST", strings.NewReader("pay"))); err == nil {
			r.Error("served")
		}
		if n := taken.Load(); n != 1 || len(conns) != 2 {
			r.Errorf("taken %d times over %d connections", n, len(conns))
		}
	})
}

func TestAnOldSendMayReadOnWhileTheCallWaits(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		sent := 0
		rt := middleware.Chain(roundTripper(func(req *http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				io.ReadFull(req.Body, make([]byte, 1000))
				go func() { // as net/http's write loop does, until it hears of the answer
					time.Sleep(100 * time.Millisecond)
					io.Copy(io.Discard, req.Body)
					req.Body.Close()
				}()
				return reply(req, 429, "slow down", "Retry-After", "1"), nil
			}
			defer req.Body.Close()
			if n, err := io.Copy(io.Discard, req.Body); n != 2*middleware.ReplayLimit || err != nil {
				return nil, fmt.Errorf("%d bytes: %w", n, err)
			}
			return reply(req, 200, "ok"), nil
		}), middleware.Ladder(policy(nil)))
		resp, err := rt.RoundTrip(r.request("POST", &opaque{Reader: bytes.NewReader(make([]byte, 2*middleware.ReplayLimit))}))
		if err != nil {
			r.Fatal(err)
		}
		resp.Body.Close()
		if sent != 2 || resp.StatusCode != 200 {
			r.Errorf("sent %d times, got %d", sent, resp.StatusCode)
		}
	})
}

func TestAnEarlyRefusalOfALongUploadIsNotLost(t *testing.T) {
	eachProtocol(t, func(r rig, serve func(http.HandlerFunc) *http.Transport, http2 bool) {
		transport := serve(func(w http.ResponseWriter, req *http.Request) {
			control := http.NewResponseController(w)
			if !http2 {
				control.EnableFullDuplex()
			}
			io.ReadFull(req.Body, make([]byte, 1000))
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
			io.WriteString(w, "slow down")
			control.Flush()
			if !http2 {
				io.Copy(io.Discard, req.Body)
			}
		})
		source, upload := io.Pipe()
		var uploading sync.WaitGroup
		uploading.Go(func() { // 1 MiB, within half a second
			for range 32 {
				if _, err := upload.Write(make([]byte, 32<<10)); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			upload.Close()
		})
		defer uploading.Wait()
		c, _ := r.over(middleware.Config{
			Ladder: policy(func(p *retryafter.Policy) { p.MaxRetries = 1 }),
			Retry:  middleware.RetryPolicy{MaxRetries: -1},
		}, transport.RoundTrip)
		if status, body, err := r.do(c, r.request("POST", source)); status != 429 || body != "slow down" || err != nil {
			r.Errorf("got %d %q, %v", status, body, err)
		}
	})
}

// source is a body that tells when it is closed. It goes on only as its pipe is
// written to.
type source struct {
	*io.PipeReader
	closed atomic.Int32
}

func (s *source) Close() error {
	s.closed.Add(1)
	return s.PipeReader.Close()
}

func TestACancelEndsACallWhoseBodyBlocks(t *testing.T) {
	eachProtocol(t, func(r rig, serve func(http.HandlerFunc) *http.Transport, http2 bool) {
		transport := serve(func(w http.ResponseWriter, req *http.Request) { io.Copy(io.Discard, req.Body) })
		pipe, upload := io.Pipe()
		defer upload.Close()
		body := &source{PipeReader: pipe}
		c, s := r.over(middleware.Config{Bucket: bucket.Config{MaxInFlight: 1}}, transport.RoundTrip)
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if _, _, err := r.do(c, r.request("POST", body).WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("got %v", err)
		}
		r.WantElapsed(time.Second, time.Second+1)
		synctest.Wait()
		if n := body.closed.Load(); n != 1 {
			r.Errorf("the source was closed %d times", n)
		}
		r.wantNoSlotTaken(s)
	})
}

func TestAnEarlyAnswerToABodyThatBlocksIsHandedBackOrSentAgain(t *testing.T) {
	for _, status := range []int{429, 500, 200} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			eachProtocol(t, func(r rig, serve func(http.HandlerFunc) *http.Transport, http2 bool) {
				var hits atomic.Int32
				transport := serve(func(w http.ResponseWriter, req *http.Request) {
					if hits.Add(1) > 1 {
						io.Copy(w, req.Body)
						return
					}
					if !http2 {
						http.NewResponseController(w).EnableFullDuplex()
					}
					w.Header().Set("Retry-After", "0")
					w.WriteHeader(status)
					io.WriteString(w, "early")
				})
				pipe, upload := io.Pipe()
				body := &source{PipeReader: pipe}
				go func() {
					upload.Write([]byte("a"))
					time.Sleep(300 * time.Millisecond)
					upload.Write([]byte("b"))
					upload.Close()
				}()
				c, s := r.over(middleware.Config{Ladder: policy(nil), Bucket: bucket.Config{MaxInFlight: 1}}, transport.RoundTrip)
				want := "ab"
				if status == 200 {
					want = "early"
				}
				if got, text, err := r.do(c, r.request("PUT", body)); got != 200 || text != want || err != nil {
					r.Errorf("got %d %q, %v", got, text, err)
				}
				r.wantNoSlotTaken(s)
				transport.CloseIdleConnections()
				time.Sleep(time.Second)
				if n := body.closed.Load(); n != 1 {
					r.Errorf("the source was closed %d times", n)
				}
			})
		})
	}
}

func TestHedgesReadOneOpaqueBodyAtOnce(t *testing.T) {
	hedge := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			var sends sync.WaitGroup
			var got [3]*http.Response
			var errs [3]error
			for i := range got {
				r := req.Clone(req.Context())
				if i > 0 {
					r.Body, errs[i] = req.GetBody()
				}
				if errs[i] == nil {
					sends.Go(func() { got[i], errs[i] = next.RoundTrip(r) })
				}
			}
			sends.Wait()
			for _, resp := range got[1:] {
				if resp != nil {
					resp.Body.Close()
				}
			}
			return got[0], errors.Join(errs[:]...)
		})
	}
	want := bytes.Repeat([]byte("abcdefgh"), 5000)
	for range 50 {
		virtual(t, metertest.Config{}, func(r rig) {
			rt := middleware.Chain(roundTripper(func(req *http.Request) (*http.Response, error) {
				defer req.Body.Close()
				var b []byte
				for buf := make([]byte, 777); ; {
					n, err := req.Body.Read(buf)
					if b = append(b, buf[:n]...); err != nil {
						break
					}
				}
				if !bytes.Equal(b, want) {
					return nil, fmt.Errorf("got %d bytes", len(b))
				}
				return reply(req, 200, "ok"), nil
			}), middleware.Ladder(policy(nil)), hedge, lazyPace(bucket.Config{}))
			body := &opaque{Reader: bytes.NewReader(want)}
			resp, err := rt.RoundTrip(r.request("POST", body))
			if err != nil {
				r.Fatal(err)
			}
			resp.Body.Close()
			if body.closed != 1 {
				r.Errorf("the body was closed %d times", body.closed)
			}
		})
	}
}

func TestAnOpenAnswerDoesNotKeepTheRequestsBody(t *testing.T) {
	s, err := middleware.New(middleware.Config{})
	if err != nil {
		t.Fatal(err)
	}
	rt := s.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
		io.Copy(io.Discard, req.Body)
		req.Body.Close()
		return reply(req, 200, "stream"), nil
	}))
	const calls, size = 50, 400 << 10
	var open []*http.Response
	before := heap()
	for range calls {
		req, err := http.NewRequest("POST", apiURL, &opaque{Reader: io.LimitReader(endless{}, size)})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Request = nil
		open = append(open, resp)
	}
	if kept := heap() - before; kept > calls*size/4 {
		t.Errorf("%d open answers keep %d KiB", calls, kept>>10)
	}
	for _, resp := range open {
		resp.Body.Close()
	}
}

// heap is what is in use on the heap.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// endless is a source that holds nothing and never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }
