package middleware_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// The hostile_* tests hold the layers against servers, transports, bodies, hooks
// and hosts that do what they are allowed to do, and a little more. What they
// share is here.

// reply is a whole answer to req, with these pairs of header and value.
func reply(req *http.Request, status int, body string, headers ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}
}

// over is a client whose whole stack has rt below it.
func (r rig) over(c middleware.Config, rt roundTripper) (*http.Client, *middleware.Stack) {
	r.Helper()
	s, err := middleware.New(c)
	if err != nil {
		r.Fatal(err)
	}
	return &http.Client{Transport: s.Transport(rt)}, s
}

// wantNoSlotTaken checks that nobody is in line, and that no slot is taken.
func (r rig) wantNoSlotTaken(s *middleware.Stack) {
	r.Helper()
	for _, k := range s.Stats().Keys {
		if k.Budget.InFlight != 0 || k.Budget.Queued != 0 {
			r.Errorf("%s: %d slots taken, %d in line", k.Key, k.Budget.InFlight, k.Budget.Queued)
		}
	}
}

// eachProtocol runs f in a bubble for HTTP/1 and for HTTP/2, over net/http on
// both sides.
func eachProtocol(t *testing.T, f func(r rig, serve func(http.HandlerFunc) *http.Transport, http2 bool)) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, metertest.Config{}, func(r rig) {
				f(r, func(h http.HandlerFunc) *http.Transport { return serve(r.T, http2, h) }, http2)
			})
		})
	}
}

// serve is a transport to a net/http server of its own. They are joined by pipes
// in memory, so that both live on virtual time.
func serve(t *testing.T, http2 bool, h http.HandlerFunc) *http.Transport {
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	server := &http.Server{Handler: h, Protocols: protocols, ErrorLog: log.New(io.Discard, "", 0)}
	transport := &http.Transport{DialContext: l.dial, Protocols: protocols}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(l) })
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		serving.Wait()
	})
	return transport
}

// pipes is a listener whose connections are made by dial.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
