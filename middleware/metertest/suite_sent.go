package metertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"sync"
	"testing/synctest"
)

// sent is a request of the caller, with bodies that count, and a picture of it as
// it was.
type sent struct {
	req        *http.Request
	payload    []byte
	replayable bool // GetBody works

	was *http.Request // a deep copy

	mu     sync.Mutex
	bodies []*countedBody // Body, and each that GetBody gave
}

// send makes a request that the suspect knows. An empty payload is no body.
func (b *suspect) send(ctx context.Context, method string, payload []byte, change ...func(*sent)) *sent {
	s := &sent{payload: payload, replayable: len(payload) > 0}
	b.mu.Lock()
	id := fmt.Sprint("call-", len(b.callers)+1)
	b.callers[id] = s
	b.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, method, "https://api.example.com:8443/v1/things%2Fa?q=1&q=2#part", nil)
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	req.Header = http.Header{
		callHeader:      {id},
		"Authorization": {"Bearer secret"},
		"Content-Type":  {"application/json"},
		"X-Two":         {"one", "two"},
	}
	if len(payload) > 0 {
		req.ContentLength = int64(len(payload))
		req.Body = s.body()
		req.GetBody = func() (io.ReadCloser, error) { return s.body(), nil }
	}
	s.req = req
	for _, f := range change {
		f(s)
	}
	s.was = req.Clone(ctx)
	return s
}

func (s *sent) body() *countedBody {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &countedBody{from: bytes.NewReader(s.payload)}
	s.bodies = append(s.bodies, c)
	return c
}

// through sends s and sees that an answer or an error comes out.
func (s *sent) through(t tb, rt http.RoundTripper) (*http.Response, error) {
	t.Helper()
	resp, err := rt.RoundTrip(s.req)
	switch {
	case err == nil && resp == nil:
		t.Fatalf("RoundTrip returned neither an answer nor an error")
	case err == nil && resp.Body == nil:
		t.Fatalf("RoundTrip returned an answer with a nil Body")
	case err != nil && resp != nil:
		t.Errorf("RoundTrip returned an answer and an error (%v)", err)
	}
	return resp, err
}

// readAll reads an answer to its end and closes it.
func readAll(t tb, resp *http.Response) string {
	t.Helper()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("reading the answer's body: %v", err)
	}
	resp.Body.Close()
	return string(all)
}

// over waits until all is quiet and sees that the request was left as it was and
// that each of its bodies was closed once.
func (s *sent) over(t tb) {
	t.Helper()
	synctest.Wait()
	s.unchanged(t, "in the end")
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.bodies {
		if closes := c.count(); closes != 1 {
			name := "the request's body"
			if i > 0 {
				name = "a body from GetBody"
			}
			t.Errorf("%s was closed %d times, want once", name, closes)
		}
	}
}

// unchanged holds the request against what it was.
func (s *sent) unchanged(t tb, when string) {
	t.Helper()
	is, was := s.req, s.was
	for _, f := range []struct {
		name     string
		is, want any
	}{
		{"Method", is.Method, was.Method},
		{"URL", is.URL, was.URL},
		{"Header", is.Header, was.Header},
		{"Host", is.Host, was.Host},
		{"ContentLength", is.ContentLength, was.ContentLength},
		{"TransferEncoding", is.TransferEncoding, was.TransferEncoding},
		{"Close", is.Close, was.Close},
		{"Trailer", is.Trailer, was.Trailer},
		{"Form", is.Form, was.Form},
		{"RequestURI", is.RequestURI, was.RequestURI},
	} {
		if !reflect.DeepEqual(f.is, f.want) {
			t.Errorf("%s the caller's request has another %s: %v, want %v", when, f.name, f.is, f.want)
		}
	}
	if is.Body != was.Body {
		t.Errorf("%s the caller's request has another Body", when)
	}
	if reflect.ValueOf(is.GetBody).Pointer() != reflect.ValueOf(was.GetBody).Pointer() {
		t.Errorf("%s the caller's request has another GetBody", when)
	}
	if is.Context() != was.Context() {
		t.Errorf("%s the caller's request has another context", when)
	}
}

// countedBody is a request's body.
type countedBody struct {
	from io.Reader

	mu     sync.Mutex
	reads  int
	closes int
}

func (c *countedBody) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if c.closes > 0 {
		return 0, http.ErrBodyReadAfterClose
	}
	return c.from.Read(p)
}

func (c *countedBody) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closes++
	return nil
}

func (c *countedBody) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closes
}

func (c *countedBody) touched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads > 0
}
