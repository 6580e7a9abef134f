package metertest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"
)

// Clauses about the answer and its body.

func servedIsSentOnce(t tb, wrap wrapper) {
	for _, status := range []int{200, 201, 204, 206, 302, 304} {
		for _, method := range []string{"GET", "POST"} {
			b := newSuspect(t, gives(status, ""))
			rt := wrap(b)
			var payload []byte
			if method == "POST" {
				payload = []byte("payload")
			}
			s := b.send(context.Background(), method, payload)
			resp, err := s.through(t, rt)
			if err != nil {
				t.Fatalf("%s answered %d: %v", method, status, err)
			}
			if resp.StatusCode != status {
				t.Errorf("an answer of %d came back as %d", status, resp.StatusCode)
			}
			readAll(t, resp)
			time.Sleep(10 * time.Minute)
			if n := len(b.sends()); n != 1 {
				t.Errorf("%s answered %d was sent %d times, want once", method, status, n)
			}
			s.over(t)
		}
	}
}

func answerComesBackWhole(t tb, wrap wrapper) {
	want := string(noise(300 << 10))
	state := &tls.ConnectionState{ServerName: "api.example.com"}
	b := newSuspect(t, step{do: func(b *suspect, a *attempt) (*http.Response, error) {
		resp := b.answer(a, 203, strings.NewReader(want), int64(len(want)), "X-Two", "one", "X-Two", "two", "Content-Type", "text/x-noise")
		resp.Proto, resp.ProtoMajor, resp.ProtoMinor = "HTTP/2.0", 2, 0
		resp.Uncompressed, resp.TLS = true, state
		return resp, nil
	}})
	rt := wrap(b)
	s := b.send(context.Background(), "POST", []byte("payload"))
	resp, err := s.through(t, rt)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if resp.StatusCode != 203 || resp.Status != "203 Non-Authoritative Information" {
		t.Errorf("status %q (%d), want 203", resp.Status, resp.StatusCode)
	}
	if resp.Proto != "HTTP/2.0" || resp.ProtoMajor != 2 || !resp.Uncompressed || resp.TLS != state {
		t.Errorf("protocol, Uncompressed or TLS of the answer were lost")
	}
	if got := resp.Header["X-Two"]; !slices.Equal(got, []string{"one", "two"}) || resp.Header.Get("Content-Type") != "text/x-noise" {
		t.Errorf("the answer's header came back as %v", resp.Header)
	}
	if resp.ContentLength != int64(len(want)) {
		t.Errorf("ContentLength %d, want %d", resp.ContentLength, len(want))
	}
	if got := readAll(t, resp); got != want {
		t.Errorf("the answer's body came back as %d other bytes, want %d", len(got), len(want))
	}
	s.over(t)
}

// errorAnswerComesBackWhole: a layer may look into an error's body, and must put
// back what it has read. A layer that retries may give up with an error of its
// own where there was something to retry.
func errorAnswerComesBackWhole(t tb, wrap wrapper) {
	want := string(noise(300 << 10))
	for _, status := range []int{400, 401, 403, 404, 413, 422, 429, 500, 503, 529} {
		b := newSuspect(t, gives(status, want, "X-Reason", "because"))
		rt := wrap(b)
		s := b.send(context.Background(), "POST", []byte("payload"))
		resp, err := s.through(t, rt)
		if err != nil {
			if status < 429 {
				t.Errorf("status %d came back as an error: %v", status, err)
			}
			s.over(t)
			continue
		}
		if resp.StatusCode != status || resp.Header.Get("X-Reason") != "because" {
			t.Errorf("status %d came back as %d with header %v", status, resp.StatusCode, resp.Header)
		}
		if got := readAll(t, resp); got != want {
			t.Errorf("the body of a %d came back as %d other bytes, want %d", status, len(got), len(want))
		}
		s.over(t)
	}
}

// answerOrError: through does the looking.
func answerOrError(t tb, wrap wrapper) {
	for _, last := range []step{gives(200, ""), gives(204, ""), gives(429, ""), gives(503, "x"), gives(500, ""), fails(errors.New("lost"))} {
		for _, first := range []step{gives(429, "x", "Retry-After", "0"), fails(errors.New("lost")), last} {
			b := newSuspect(t, first, last)
			rt := wrap(b)
			s := b.send(context.Background(), "GET", nil)
			if resp, err := s.through(t, rt); err == nil {
				readAll(t, resp)
			}
			s.over(t)
		}
	}
}

func answerHasItsRequest(t tb, wrap wrapper) {
	b := newSuspect(t, refusals()...)
	rt := wrap(b)
	s := b.send(context.Background(), "POST", []byte("payload"))
	resp, err := s.through(t, rt)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if resp.Request == nil {
		t.Errorf("the answer has no Request")
	} else if resp.Request.Method != "POST" || resp.Request.URL.String() != s.was.URL.String() {
		t.Errorf("the answer's Request is %s %s, want POST %s", resp.Request.Method, resp.Request.URL, s.was.URL)
	}
	readAll(t, resp)
	s.over(t)
}

func answerTrailers(t tb, wrap wrapper) {
	b := newSuspect(t, step{do: func(b *suspect, a *attempt) (*http.Response, error) {
		late := http.Header{"X-Sum": nil}
		resp := b.answer(a, 200, io.MultiReader(strings.NewReader("ok"), atEnd(func() { late["X-Sum"] = []string{"42"} })), -1)
		resp.Trailer = late
		return resp, nil
	}})
	rt := wrap(b)
	s := b.send(context.Background(), "GET", nil)
	resp, err := s.through(t, rt)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if _, announced := resp.Trailer["X-Sum"]; !announced {
		t.Errorf("the answer's trailer is not announced")
	}
	readAll(t, resp)
	if got := resp.Trailer.Get("X-Sum"); got != "42" {
		t.Errorf("the answer's trailer is %q, want 42", got)
	}
	s.over(t)
}

type atEnd func()

func (f atEnd) Read([]byte) (int, error) { f(); return 0, io.EOF }

func closeReachesTheBody(t tb, wrap wrapper) {
	b := newSuspect(t, gives(200, "some bytes"))
	rt := wrap(b)
	for _, read := range []int{0, 4, 10} {
		s := b.send(context.Background(), "POST", []byte("payload"))
		resp, err := s.through(t, rt)
		if err != nil {
			t.Fatalf("%v", err)
		}
		io.CopyN(io.Discard, resp.Body, int64(read))
		resp.Body.Close()
		resp.Body.Close() // which is allowed
		s.over(t)
		given := b.bodies()
		if !given[len(given)-1].isClosed() {
			t.Errorf("after %d bytes: Close did not reach the base's body", read)
		}
	}
}

func successBodyIsNotReadAhead(t tb, wrap wrapper) {
	for _, kind := range []string{"application/json", "text/event-stream", ""} {
		b := newSuspect(t, streams(200, func(*attempt) io.Reader { return bytes.NewReader(noise(64 << 10)) }, "Content-Type", kind))
		rt := wrap(b)
		s := b.send(context.Background(), "POST", []byte("payload"))
		resp, err := s.through(t, rt)
		if err != nil {
			t.Fatalf("%v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if reads, _ := b.bodies()[0].taken(); reads != 0 {
			t.Errorf("%q: the answer's body was read %d times before the caller read it", kind, reads)
		}
		io.ReadFull(resp.Body, make([]byte, 4))
		if _, n := b.bodies()[0].taken(); n > 4 {
			t.Errorf("%q: %d bytes were read of the answer's body when the caller had read 4", kind, n)
		}
		readAll(t, resp)
		s.over(t)
	}
}

// ticks gives one event every interval.
type ticks struct {
	every time.Duration
	left  int
	n     int
}

func (r *ticks) wait() time.Duration {
	if r.left == 0 {
		return 0
	}
	return r.every
}

func (r *ticks) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	r.n++
	return copy(p, SSE("", strconv.Itoa(r.n))), nil
}

func eventsFlow(t tb, wrap wrapper) {
	const every = 300 * time.Millisecond
	b := newSuspect(t, streams(200, func(*attempt) io.Reader { return &ticks{every: every, left: 10} }, "Content-Type", "text/event-stream"))
	rt := wrap(b)
	s := b.send(context.Background(), "POST", []byte("payload"))
	resp, err := s.through(t, rt)
	if err != nil {
		t.Fatalf("%v", err)
	}
	start := time.Now()
	buf := make([]byte, 4096)
	for i := 1; i <= 10; i++ {
		n, err := resp.Body.Read(buf)
		if err != nil || string(buf[:n]) != SSE("", strconv.Itoa(i)) {
			t.Fatalf("event %d came as %q, %v", i, buf[:n], err)
		}
		if at := time.Since(start); at != time.Duration(i)*every {
			t.Errorf("event %d came after %v, want %v", i, at, time.Duration(i)*every)
		}
	}
	if rest := readAll(t, resp); rest != "" {
		t.Errorf("behind the last event came %q", rest)
	}
	s.over(t)
}

func switchedProtocol(t tb, wrap wrapper) {
	b := newSuspect(t, step{do: func(b *suspect, a *attempt) (*http.Response, error) {
		resp := b.answer(a, 101, strings.NewReader("welcome"), -1, "Connection", "Upgrade", "Upgrade", "echo")
		resp.Body = duplex{resp.Body.(*givenBody)}
		return resp, nil
	}})
	rt := wrap(b)
	s := b.send(context.Background(), "GET", nil, func(s *sent) {
		s.req.Header.Set("Connection", "Upgrade")
		s.req.Header.Set("Upgrade", "echo")
	})
	resp, err := s.through(t, rt)
	if err != nil {
		t.Fatalf("%v", err)
	}
	w, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("the body of a 101 is a %T and not an io.ReadWriteCloser", resp.Body)
	}
	if _, err := io.WriteString(w, "hello"); err != nil {
		t.Errorf("writing to a switched connection: %v", err)
	}
	if got := string(b.bodies()[0].written); got != "hello" {
		t.Errorf("%q arrived on the switched connection, want hello", got)
	}
	if got := readAll(t, resp); got != "welcome" {
		t.Errorf("%q came back on the switched connection, want welcome", got)
	}
	s.over(t)
}

func informationalAnswers(t tb, wrap wrapper) {
	b := newSuspect(t, step{do: func(b *suspect, a *attempt) (*http.Response, error) {
		trace := httptrace.ContextClientTrace(a.req.Context())
		if trace == nil || trace.Got1xxResponse == nil {
			t.Errorf("the caller's httptrace did not reach the base")
		} else if err := trace.Got1xxResponse(103, textproto.MIMEHeader{"Link": {"</style.css>"}}); err != nil {
			t.Errorf("Got1xxResponse: %v", err)
		}
		return b.answer(a, 200, strings.NewReader("ok"), 2), nil
	}})
	rt := wrap(b)
	var hints []int
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			hints = append(hints, code)
			return nil
		},
	})
	s := b.send(ctx, "GET", nil)
	resp, err := s.through(t, rt)
	if err != nil {
		t.Fatalf("%v", err)
	}
	readAll(t, resp)
	if !slices.Equal(hints, []int{103}) {
		t.Errorf("the caller's Got1xxResponse saw %v, want one 103", hints)
	}
	s.over(t)
}
