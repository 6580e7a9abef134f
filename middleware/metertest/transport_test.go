package metertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// call sends one POST with a context.
func call(ctx context.Context, rt http.RoundTripper, body io.Reader) (*http.Response, error) {
	req, _ := http.NewRequestWithContext(ctx, "POST", "https://a.test/", body)
	return rt.RoundTrip(req)
}

func TestEventsComeAtTheirInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Script: []Answer{{Status: 200, Events: []Event{
			{300 * time.Millisecond, SSE("", "one")}, {300 * time.Millisecond, SSE("error", "two")}, {0, "three"},
		}}}})
		resp, err := call(t.Context(), p.Transport(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ContentLength != -1 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("length %d, %v", resp.ContentLength, resp.Header)
		}
		start := time.Now()
		buf := make([]byte, 100)
		for _, want := range []struct {
			at   time.Duration
			data string
		}{{300 * time.Millisecond, "data: one\n\n"}, {600 * time.Millisecond, "event: error\ndata: two\n\n"}, {600 * time.Millisecond, "three"}} {
			n, err := resp.Body.Read(buf)
			if err != nil || string(buf[:n]) != want.data || time.Since(start) != want.at {
				t.Errorf("%q after %v, %v; want %q after %v", buf[:n], time.Since(start), err, want.data, want.at)
			}
		}
		if n, err := resp.Body.Read(buf); n != 0 || err != io.EOF {
			t.Errorf("behind the last event %d, %v", n, err)
		}
		if p.OpenBodies() != 1 || p.ConnsInUse() != 0 {
			t.Errorf("read to its end: %d bodies open, %d connections in use", p.OpenBodies(), p.ConnsInUse())
		}
		resp.Body.Close()
		resp.Body.Close()
		if p.OpenBodies() != 0 {
			t.Errorf("closed: %d bodies open", p.OpenBodies())
		}
		if _, err := resp.Body.Read(buf); !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("read after close: %v", err)
		}
	})
}

func TestFaultsInTheAnswersBody(t *testing.T) {
	events := []Event{{0, "a"}, {0, "b"}, {0, "c"}, {0, "d"}}
	for _, c := range []struct {
		name   string
		answer Answer
		want   string
		err    error
		length int64
	}{
		{"reset", Answer{Status: 200, Body: "12345678", Fault: ResetDuringBody}, "1234", syscall.ECONNRESET, 8},
		{"reset between events", Answer{Status: 200, Events: events, Fault: ResetDuringBody}, "ab", syscall.ECONNRESET, -1},
		{"metered reset", Answer{Body: "12345678", Fault: ResetDuringBody}, "1234", syscall.ECONNRESET, 8},
		{"hang", Answer{Status: 200, Body: "12345678", Fault: HangDuringBody}, "1234", context.DeadlineExceeded, 8},
		{"promises more", Answer{Status: 200, Body: "1234", Length: 9}, "1234", io.ErrUnexpectedEOF, 9},
		{"promises less", Answer{Status: 200, Body: "12345678", Length: 3}, "123", nil, 3},
		{"promises nothing", Answer{Status: 200, Body: "1234", Length: -1}, "1234", nil, -1},
		{"empty", Answer{Status: 200}, "", nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{Script: []Answer{c.answer}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				resp, err := call(ctx, p.Transport(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if resp.ContentLength != c.length {
					t.Errorf("ContentLength %d, want %d", resp.ContentLength, c.length)
				}
				got, err := io.ReadAll(resp.Body)
				if string(got) != c.want || !errors.Is(err, c.err) {
					t.Errorf("%q, %v; want %q, %v", got, err, c.want, c.err)
				}
				if _, again := resp.Body.Read(make([]byte, 1)); c.err != nil && !errors.Is(again, c.err) {
					t.Errorf("then %v", again)
				}
				resp.Body.Close()
				if p.OpenBodies() != 0 || p.ConnsInUse() != 0 {
					t.Errorf("%d bodies, %d connections", p.OpenBodies(), p.ConnsInUse())
				}
			})
		})
	}
}

func TestEndlessBodiesEndWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Script: []Answer{{Status: 429, Body: "x", Endless: true, Every: time.Second}, {Status: 429, Body: "flood", Endless: true}}})
		rt := p.Transport()
		resp, _ := call(t.Context(), rt, nil)
		start := time.Now()
		time.AfterFunc(10*time.Second+time.Millisecond, func() { resp.Body.Close() })
		got, err := io.ReadAll(resp.Body)
		if string(got) != "xxxxxxxxxx" || !errors.Is(err, http.ErrBodyReadAfterClose) || time.Since(start) > 11*time.Second {
			t.Errorf("%q, %v after %v", got, err, time.Since(start))
		}
		resp, _ = call(t.Context(), rt, nil)
		if n, err := io.CopyN(io.Discard, resp.Body, 1<<20); n != 1<<20 || err != nil {
			t.Errorf("flood: %d, %v", n, err)
		}
		resp.Body.Close()
		if p.OpenBodies() != 0 {
			t.Errorf("%d bodies open", p.OpenBodies())
		}
	})
}

// Every place in which a call can wait, and its context's end there.
func TestCancelEndsTheCallWhereverItWaits(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		body   func() io.Reader
	}{
		{"on the way up", Config{Up: time.Hour}, nil},
		{"on the way down", Config{Latency: time.Hour}, nil},
		{"hanging", Config{Script: []Answer{{Fault: Hang}}}, nil},
		{"reading the request", Config{}, func() io.Reader { r, _ := io.Pipe(); return r }},
		{"for a connection", Config{MaxConns: 1}, nil},
		{"in the answer", Config{Script: []Answer{{Status: 200, Events: []Event{{time.Hour, "x"}}}}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(c.config)
				rt := p.Transport()
				if c.config.MaxConns > 0 {
					resp, _ := call(t.Context(), rt, nil)
					defer resp.Body.Close()
				}
				why := errors.New("why")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(why) })
				var body io.Reader
				if c.body != nil {
					body = c.body()
				}
				start := time.Now()
				resp, err := call(ctx, rt, body)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				if !errors.Is(err, why) || time.Since(start) != time.Second {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				ctx2, cancel2 := context.WithCancel(t.Context())
				cancel2()
				s := &countedBody{from: strings.NewReader("x")}
				if _, err := call(ctx2, rt, s); !errors.Is(err, context.Canceled) || s.count() != 1 || s.touched() {
					t.Errorf("cancelled before: %v, closed %d times", err, s.count())
				}
			})
		})
	}
}

func TestABodyOfTheWrongLengthIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		for _, length := range []int64{3, 100} {
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://a.test/", io.NopCloser(strings.NewReader("payload")))
			req.ContentLength = length
			if resp, err := p.Transport().RoundTrip(req); err == nil {
				t.Errorf("length %d for 7 bytes: %v", length, resp.Status)
			}
		}
		for _, req := range []*http.Request{{}, {URL: mustURL(t)}} {
			s := &countedBody{from: strings.NewReader("x")}
			req.Body = s
			if _, err := p.Transport().RoundTrip(req); err == nil || s.count() != 1 {
				t.Errorf("half a request: %v, closed %d times", err, s.count())
			}
		}
		if p.Hits() != 0 {
			t.Errorf("%d hits", p.Hits())
		}
	})
}

func TestAConnectionIsBusyUntilItsBodyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{MaxConns: 1, Respond: func(*http.Request, []byte) Answer { return Reply(200, "four") }})
		rt := p.Transport()
		first, _ := call(t.Context(), rt, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := call(ctx, rt, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second call beside an open body: %v", err)
		}
		var wg sync.WaitGroup
		for range 10 { // in line, and each frees the next
			wg.Go(func() {
				resp, err := call(t.Context(), rt, nil)
				if err != nil {
					t.Error(err)
					return
				}
				io.ReadAll(resp.Body)
				resp.Body.Close()
			})
		}
		synctest.Wait()
		io.ReadAll(first.Body)
		wg.Wait()
		if p.Dials() != 1 {
			t.Errorf("%d connections for answers that were read to their ends", p.Dials())
		}
		first.Body.Close()
		half, _ := call(t.Context(), rt, nil)
		half.Body.Read(make([]byte, 2))
		half.Body.Close()
		next, _ := call(t.Context(), rt, nil)
		if p.Dials() != 2 {
			t.Errorf("%d connections, want a new one after an answer that was cut", p.Dials())
		}
		io.ReadAll(next.Body)
		next.Body.Close()
		rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
		next, _ = call(t.Context(), rt, nil)
		next.Body.Close()
		if p.Dials() != 3 {
			t.Errorf("%d connections, want a new one after CloseIdleConnections", p.Dials())
		}
		if p.OpenBodies() != 0 || p.ConnsInUse() != 0 {
			t.Errorf("%d bodies, %d connections", p.OpenBodies(), p.ConnsInUse())
		}
	})
}

func TestEarlyAnswersLeaveTheBodyUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Script: []Answer{{Status: 413, Early: true, Body: "no"}}})
		s := &countedBody{from: strings.NewReader("payload")}
		resp, err := call(t.Context(), p.Transport(), s)
		if err != nil || resp.StatusCode != 413 || s.touched() || s.count() != 1 {
			t.Fatalf("%v %v, touched %v, closed %d times", resp, err, s.touched(), s.count())
		}
		resp.Body.Close()
	})
}

func TestHeadTrailersDateAndTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Script: []Answer{
			Reply(200, "four"),
			{Status: 200, Body: "four", Trailer: http.Header{"X-Sum": {"42"}}, Header: http.Header{"Date": nil}},
		}})
		rt := p.Transport()
		req, _ := http.NewRequestWithContext(t.Context(), "HEAD", "https://a.test/", nil)
		resp, _ := rt.RoundTrip(req)
		if b, err := io.ReadAll(resp.Body); len(b) != 0 || err != nil || resp.ContentLength != 4 || resp.Request != req {
			t.Errorf("HEAD: %q, %v, length %d", b, err, resp.ContentLength)
		}
		if got := resp.Header.Get("Date"); got != "Sat, 01 Jan 2000 00:00:00 GMT" {
			t.Errorf("Date %q", got)
		}
		resp.Body.Close()

		var seen []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			WroteHeaders:         func() { seen = append(seen, "headers") },
			WroteRequest:         func(httptrace.WroteRequestInfo) { seen = append(seen, "request") },
			GotFirstResponseByte: func() { seen = append(seen, "answer") },
		})
		resp, _ = call(ctx, rt, bytes.NewReader([]byte("x")))
		if got := strings.Join(seen, " "); got != "headers request answer" {
			t.Errorf("traced %s", got)
		}
		if v, announced := resp.Trailer["X-Sum"]; !announced || v != nil {
			t.Errorf("trailer before the end: %v", resp.Trailer)
		}
		io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.Trailer.Get("X-Sum") != "42" {
			t.Errorf("trailer: %v", resp.Trailer)
		}
		if _, ok := resp.Header["Date"]; ok {
			t.Errorf("a Date that was left out: %v", resp.Header)
		}
	})
}

func TestTheRequestsBodyIsClosedWhenItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Latency: time.Hour, Script: []Answer{{Status: 200}, {Fault: Hang}}})
		rt := p.Transport()
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			s := &countedBody{from: strings.NewReader("payload")}
			done := make(chan bool)
			go func() {
				defer close(done)
				call(ctx, rt, s)
			}()
			synctest.Wait()
			if s.count() != 1 {
				t.Errorf("while the answer is on its way the request's body was closed %d times", s.count())
			}
			cancel()
			<-done
			if s.count() != 1 {
				t.Errorf("in the end it was closed %d times", s.count())
			}
		}
	})
}

func TestABodyOfKnownLengthEndsWithItsLastBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp, _ := call(t.Context(), New(Config{Script: []Answer{Reply(200, "four")}}).Transport(), nil)
		defer resp.Body.Close()
		buf := make([]byte, 3)
		if n, err := resp.Body.Read(buf); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := resp.Body.Read(buf); n != 1 || err != io.EOF {
			t.Errorf("%d, %v; want the last byte and io.EOF", n, err)
		}
	})
}

// A connection is given to a call at the instant at which that call is cancelled.
func TestAConnectionIsNotLostToACancelledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{MaxConns: 1})
		rt := p.Transport()
		for range 50 {
			first, err := call(t.Context(), rt, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan bool)
			go func() {
				defer close(done)
				if resp, err := call(ctx, rt, nil); err == nil {
					resp.Body.Close()
				}
			}()
			synctest.Wait()
			first.Body.Close()
			cancel()
			<-done
			if n := p.ConnsInUse(); n != 0 {
				t.Fatalf("%d connections in use", n)
			}
		}
	})
}
