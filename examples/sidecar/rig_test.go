package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inMemory is a network of net.Pipe: with it a sidecar, HTTP and all, runs on
// virtual time.
func inMemory() (net.Listener, func(context.Context, string, string) (net.Conn, error), error) {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	return p, p.dial, nil
}

type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, errRefused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var errRefused = errors.New("connection refused")

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func upstreamAt(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// toProvider are the options of a sidecar for api.example.com.
func toProvider(t *testing.T) options {
	return options{upstream: upstreamAt(t, "https://api.example.com"), wait: 2 * time.Minute}
}

// started returns a sidecar over base, which ends with the test. Call it in a
// bubble.
func started(t *testing.T, o options, base http.RoundTripper) *sidecar {
	t.Helper()
	s, err := start(context.Background(), o, base, inMemory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func request(t *testing.T, ctx context.Context, path string, body []byte) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sidecar"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// got is an answer that was read to its end.
type got struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (s *sidecar) do(t *testing.T, req *http.Request) got {
	t.Helper()
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return got{resp.StatusCode, resp.Header, string(body), err}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
