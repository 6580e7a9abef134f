package metertest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Clauses about the rest of a layer's life: bases that fail, idle connections,
// many callers.

func closeIdleConnections(t tb, wrap wrapper) {
	b := newSuspect(t, gives(200, "ok"))
	client := &http.Client{Transport: wrap(b)}
	client.CloseIdleConnections()
	if b.idle == 0 {
		t.Errorf("CloseIdleConnections did not reach the base")
	}
}

func baseErrorComesBack(t tb, wrap wrapper) {
	lost := errors.New("connection lost")
	for _, method := range []string{"GET", "POST"} {
		b := newSuspect(t, fails(&net.OpError{Op: "read", Net: "tcp", Err: lost}))
		client := &http.Client{Transport: wrap(b)}
		var payload []byte
		if method == "POST" {
			payload = []byte("payload")
		}
		s := b.send(context.Background(), method, payload)
		resp, err := client.Do(s.req)
		if err == nil {
			readAll(t, resp)
			t.Errorf("a %s that got no answer was answered %d", method, resp.StatusCode)
		} else if !errors.Is(err, lost) {
			t.Errorf("the base's error is not in %v", err)
		}
		s.over(t)
	}
}

// basePanicLeaksNothing: the panic comes out, or an error; and the layer works on.
func basePanicLeaksNothing(t tb, wrap wrapper) {
	mad := step{do: func(*suspect, *attempt) (*http.Response, error) { panic("metertest: the base panics") }}
	b := newSuspect(t, mad)
	rt := wrap(b)
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		s := b.send(ctx, "POST", []byte("payload"))
		func() {
			defer func() { recover() }()
			if resp, err := rt.RoundTrip(s.req); err == nil {
				if resp != nil && resp.Body != nil {
					resp.Body.Close()
				}
				t.Errorf("a base that panics gave neither a panic nor an error")
			}
		}()
		cancel()
		s.over(t)
	}
	// Whatever rests after faults has rested by then.
	time.Sleep(24 * time.Hour)
	b.steps = []step{gives(200, "ok")}
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		s := b.send(ctx, "POST", []byte("payload"))
		resp, err := s.through(t, rt)
		if err != nil {
			t.Errorf("after the base has panicked a good call fails: %v", err)
		} else {
			readAll(t, resp)
		}
		cancel()
		s.over(t)
	}
}

func concurrentUse(t tb, wrap wrapper) {
	b := newSuspect(t, step{do: func(b *suspect, a *attempt) (*http.Response, error) {
		time.Sleep(time.Duration(a.n%7) * time.Millisecond)
		if a.n%3 == 0 {
			return b.answer(a, 429, strings.NewReader("slow down"), 9, "Retry-After", "0"), nil
		}
		return b.answer(a, 200, bytes.NewReader(a.body), int64(len(a.body))), nil
	}})
	b.crowded = true
	rt := wrap(b)
	var wg sync.WaitGroup
	calls := make(chan *sent, 100)
	for i := range 100 {
		calls <- b.send(context.Background(), "POST", noise(i+1))
	}
	close(calls)
	var all sync.Map
	for range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for s := range calls {
				all.Store(s, true)
				resp, err := rt.RoundTrip(s.req)
				if err != nil || resp == nil {
					t.Errorf("one of many calls: %v, want an answer", err)
					continue
				}
				got := readAll(t, resp)
				if resp.StatusCode == 200 && got != string(s.payload) {
					t.Errorf("one of many calls got another's answer")
				}
			}
		}()
	}
	wg.Wait()
	all.Range(func(s, _ any) bool {
		s.(*sent).over(t)
		return true
	})
	for _, g := range b.bodies() {
		if !g.isClosed() {
			t.Errorf("a body was left open")
			return
		}
	}
}
