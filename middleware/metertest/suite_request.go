package metertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// Clauses about the request and its body.

// refusals are answers after which a layer may well send again, then a served
// one.
func refusals() []step {
	return []step{
		gives(429, "slow down", "Retry-After", "0"),
		gives(503, "overloaded", "Retry-After", "1"),
		gives(500, "broken"),
		gives(200, "ok"),
	}
}

// noise is n bytes that are the same for the same n.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}).Read(b)
	return b
}

func requestArrivesAsSent(t tb, wrap wrapper) {
	b := newSuspect(t, gives(200, "ok"))
	rt := wrap(b)
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"} {
		var payload []byte
		if method != "GET" && method != "DELETE" {
			payload = []byte(`{"prompt":"hello"}`)
		}
		s := b.send(context.Background(), method, payload, func(s *sent) { s.req.Host = "virtual.example.com" })
		b.arrived = func(a *attempt) {
			if a.req.Method != method {
				t.Errorf("%s arrived as %s", method, a.req.Method)
			}
			if got, want := a.req.URL.String(), s.was.URL.String(); got != want {
				t.Errorf("the URL arrived as %s, want %s", got, want)
			}
			if a.req.Host != "virtual.example.com" {
				t.Errorf("the Host arrived as %q", a.req.Host)
			}
			for name, want := range s.was.Header {
				if got := a.req.Header[name]; !reflect.DeepEqual(got, want) {
					t.Errorf("header %s arrived as %q, want %q", name, got, want)
				}
			}
		}
		resp, err := s.through(t, rt)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		readAll(t, resp)
		s.over(t)
	}
}

func requestIsNeverChanged(t tb, wrap wrapper) {
	for _, steps := range [][]step{
		{gives(200, "ok")},
		refusals(),
		{fails(errors.New("lost")), gives(200, "ok")},
		{fails(errors.New("lost"))},
	} {
		for _, payload := range [][]byte{nil, []byte("payload")} {
			b := newSuspect(t, steps...)
			rt := wrap(b)
			method := "POST"
			if payload == nil {
				method = "GET"
			}
			s := b.send(context.Background(), method, payload)
			if resp, err := s.through(t, rt); err == nil {
				s.unchanged(t, "with the answer")
				readAll(t, resp)
			}
			s.over(t)
		}
	}
}

// requestIsLeftAloneWhileInUse answers early: the base still reads the request,
// header and body, until the answer's body is closed. Some of this only the race
// detector sees.
func requestIsLeftAloneWhileInUse(t tb, wrap wrapper) {
	early := step{lazy: true, do: func(b *suspect, a *attempt) (*http.Response, error) {
		resp := b.answer(a, 429, strings.NewReader("slow down"), 9, "Retry-After", "0")
		g := resp.Body.(*givenBody)
		go func() {
			defer a.req.Body.Close()
			buf := make([]byte, 16)
			for range 10_000 {
				select {
				case <-g.closed:
					return
				case <-time.After(time.Millisecond):
				}
				for name, values := range a.req.Header {
					_ = name + fmt.Sprint(values)
				}
				_ = a.req.URL.String()
				if _, err := a.req.Body.Read(buf); err != nil && err != io.EOF {
					b.t.Errorf("attempt %d: the body ended under the transport that reads it: %v", a.n+1, err)
					return
				}
			}
		}()
		return resp, nil
	}}
	b := newSuspect(t, early, early, gives(200, "ok"))
	rt := wrap(b)
	s := b.send(context.Background(), "POST", noise(4096))
	resp, err := s.through(t, rt)
	if err == nil {
		time.Sleep(10 * time.Millisecond)
		readAll(t, resp)
	}
	time.Sleep(time.Second)
	s.over(t)
}

func requestBodyIsClosedOnce(t tb, wrap wrapper) {
	unread := step{lazy: true, do: func(b *suspect, a *attempt) (*http.Response, error) {
		a.req.Body.Close()
		return b.answer(a, 413, strings.NewReader("too large"), 9), nil
	}}
	lost := step{lazy: true, do: func(_ *suspect, a *attempt) (*http.Response, error) {
		a.req.Body.Close()
		return nil, errors.New("lost")
	}}
	late := step{lazy: true, do: func(b *suspect, a *attempt) (*http.Response, error) {
		// A transport may close the body after RoundTrip has returned.
		go func() {
			time.Sleep(time.Millisecond)
			b.readBody(a)
		}()
		return b.answer(a, 200, strings.NewReader("ok"), 2), nil
	}}
	for _, steps := range [][]step{
		{gives(200, "ok")}, refusals(), {unread}, {lost}, {lost, gives(200, "ok")}, {late},
		{gives(429, "slow down", "Retry-After", "1")}, {gives(404, "nothing")}, {fails(errors.New("lost"))},
	} {
		for _, replayable := range []bool{true, false} {
			b := newSuspect(t, steps...)
			rt := wrap(b)
			s := b.send(context.Background(), "POST", []byte("payload"), func(s *sent) {
				if !replayable {
					s.req.GetBody, s.replayable = nil, false
				}
			})
			if resp, err := s.through(t, rt); err == nil {
				readAll(t, resp)
			}
			time.Sleep(time.Second)
			s.over(t)
		}
	}
}

func requestBodyIsClosedOnEarlyRefusal(t tb, wrap wrapper) {
	b := newSuspect(t, gives(200, "ok"))
	rt := wrap(b)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := b.send(ctx, "POST", []byte("payload"))
	resp, err := s.through(t, rt)
	if err == nil {
		readAll(t, resp)
		t.Errorf("a call with a cancelled context was served")
	}
	s.over(t)

	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	s = b.send(late, "POST", []byte("payload"))
	if resp, err := s.through(t, rt); err == nil {
		readAll(t, resp)
		t.Errorf("a call with a deadline in the past was served")
	}
	s.over(t)
}

func requestBodyErrorComesBack(t tb, wrap wrapper) {
	broken := errors.New("the disk is gone")
	b := newSuspect(t, step{do: func(b *suspect, a *attempt) (*http.Response, error) {
		if a.bodyErr != nil {
			return nil, a.bodyErr
		}
		return b.answer(a, 200, strings.NewReader("ok"), 2), nil
	}})
	rt := wrap(b)
	s := b.send(context.Background(), "POST", []byte("payload"), func(s *sent) {
		s.bodies[0].from = io.MultiReader(strings.NewReader("pay"), brokenReader{broken})
		s.req.GetBody, s.replayable = nil, false
	})
	resp, err := s.through(t, rt)
	if err == nil {
		readAll(t, resp)
		t.Errorf("a request whose body cannot be read was answered %d", resp.StatusCode)
	} else if !errors.Is(err, broken) {
		t.Errorf("the error of the body's Read is not in %v", err)
	}
	s.over(t)
}

type brokenReader struct{ err error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }

func replaysAreWhole(t tb, wrap wrapper) {
	for _, size := range []int{1, 1 << 10, 1 << 20} {
		b := newSuspect(t, refusals()...)
		rt := wrap(b)
		s := b.send(context.Background(), "POST", noise(size))
		if resp, err := s.through(t, rt); err == nil {
			readAll(t, resp)
		}
		s.over(t) // readBody holds every attempt against the payload
	}
}

// bodyWithoutGetBody allows a layer that keeps a copy, and one that does not.
func bodyWithoutGetBody(t tb, wrap wrapper) {
	for _, size := range []int{5, 4 << 20} {
		for _, known := range []bool{true, false} {
			b := newSuspect(t, gives(429, "slow down", "Retry-After", "0"), gives(503, "busy", "Retry-After", "0"), gives(200, "ok"))
			rt := wrap(b)
			s := b.send(context.Background(), "POST", noise(size), func(s *sent) {
				s.req.GetBody, s.replayable = nil, false
				if !known {
					s.req.ContentLength = -1
				}
			})
			resp, err := s.through(t, rt)
			if err != nil {
				t.Fatalf("a body without GetBody: %v, want an answer", err)
			}
			want := map[int]string{429: "slow down", 503: "busy", 200: "ok"}[resp.StatusCode]
			if got := readAll(t, resp); got != want || want == "" {
				t.Errorf("a body without GetBody: the answer is %d %q, want it as it was given", resp.StatusCode, got)
			}
			s.over(t)
		}
	}
}

func bodyWithFailingGetBody(t tb, wrap wrapper) {
	gone := errors.New("the file is gone")
	b := newSuspect(t, gives(429, "slow down", "Retry-After", "0"), gives(200, "ok"))
	rt := wrap(b)
	s := b.send(context.Background(), "POST", []byte("payload"), func(s *sent) {
		s.replayable = false
		s.req.GetBody = func() (io.ReadCloser, error) { return nil, gone }
	})
	resp, err := s.through(t, rt)
	switch {
	case err != nil && !errors.Is(err, gone):
		t.Errorf("the error of GetBody is not in %v", err)
	case err == nil && resp.StatusCode == 429:
		if got := readAll(t, resp); got != "slow down" {
			t.Errorf("the answer handed back has body %q, want %q", got, "slow down")
		}
	case err == nil:
		readAll(t, resp)
	}
	s.over(t)
}

func nilBodyAndNoBody(t tb, wrap wrapper) {
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		b := newSuspect(t, refusals()...)
		b.arrived = func(a *attempt) {
			// A length of 0 with any other body would be sent as chunks.
			if a.req.Body != nil && a.req.Body != http.NoBody || a.req.ContentLength != 0 {
				t.Errorf("attempt %d of a request without a body has Body %T and ContentLength %d", a.n+1, a.req.Body, a.req.ContentLength)
			}
		}
		rt := wrap(b)
		s := b.send(context.Background(), "POST", nil, func(s *sent) { s.req.Body = body })
		if resp, err := s.through(t, rt); err == nil {
			readAll(t, resp)
		}
		s.over(t)
	}
}

func headIsPassedOn(t tb, wrap wrapper) {
	b := newSuspect(t, step{do: func(b *suspect, a *attempt) (*http.Response, error) {
		return b.answer(a, 200, bytes.NewReader(nil), 1234), nil
	}})
	rt := wrap(b)
	s := b.send(context.Background(), "HEAD", nil)
	resp, err := s.through(t, rt)
	if err != nil {
		t.Fatalf("HEAD: %v", err)
	}
	if got := b.sends()[0].req.Method; got != "HEAD" {
		t.Errorf("HEAD arrived as %s", got)
	}
	if got := readAll(t, resp); got != "" || resp.ContentLength != 1234 {
		t.Errorf("HEAD: body %q and ContentLength %d, want none and 1234", got, resp.ContentLength)
	}
	s.over(t)
}

// expectIsPassedOn: whoever expects 100-continue does not want the body read
// before the server asks for it.
func expectIsPassedOn(t tb, wrap wrapper) {
	b := newSuspect(t, gives(200, "ok"))
	rt := wrap(b)
	s := b.send(context.Background(), "POST", []byte("payload"), func(s *sent) {
		s.req.Header.Set("Expect", "100-continue")
	})
	b.arrived = func(a *attempt) {
		if a.req.Header.Get("Expect") != "100-continue" {
			t.Errorf("the Expect header was lost")
		}
		if s.bodies[0].touched() {
			t.Errorf("the body was read before the transport asked for it")
		}
	}
	resp, err := s.through(t, rt)
	if err != nil {
		t.Fatalf("%v", err)
	}
	readAll(t, resp)
	s.over(t)
}

func requestTrailers(t tb, wrap wrapper) {
	b := newSuspect(t, refusals()...)
	b.arrived = func(a *attempt) {
		if got := a.req.Trailer.Get("X-Sum"); got != "42" {
			t.Errorf("attempt %d: the request's trailer arrived as %q, want 42", a.n+1, got)
		}
	}
	rt := wrap(b)
	s := b.send(context.Background(), "POST", []byte("payload"), func(s *sent) {
		s.req.Trailer = http.Header{"X-Sum": {"42"}}
	})
	if resp, err := s.through(t, rt); err == nil {
		readAll(t, resp)
	}
	s.over(t)
}

func redirectsKeepTheBody(t tb, wrap wrapper) {
	for _, status := range []int{307, 308} {
		b := newSuspect(t,
			gives(status, "over there", "Location", "/v1/elsewhere"),
			step{do: func(b *suspect, a *attempt) (*http.Response, error) {
				return b.answer(a, 200, bytes.NewReader(a.body), int64(len(a.body))), nil
			}})
		client := &http.Client{Transport: wrap(b)}
		s := b.send(context.Background(), "POST", []byte("payload"))
		resp, err := client.Do(s.req)
		if err != nil {
			t.Fatalf("a redirect with status %d: %v", status, err)
		}
		if got := readAll(t, resp); got != "payload" {
			t.Errorf("behind the redirect %q arrived, want the payload", got)
		}
		if got := resp.Request.URL.Path; got != "/v1/elsewhere" {
			t.Errorf("the answer is from %s, want from behind the redirect", got)
		}
		if n := len(b.sends()); n != 2 {
			t.Errorf("a redirect took %d sends, want 2", n)
		}
		s.unchanged(t, "in the end") // http.Client itself closes a redirected body again
	}
}
