package metertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// Transport returns a new RoundTripper that reaches p in memory. It behaves as an
// http.Transport over HTTP/1.1 does towards its callers: it reads the request's
// body to the end and closes it exactly once, before RoundTrip returns; a body of
// another length than ContentLength is an error; the call and the reads of the
// answer's body end with the request's context, in its cause; connections are
// kept and used again, see Provider.Dials and Config.MaxConns. WroteHeaders,
// WroteRequest and GotFirstResponseByte of an httptrace are called; its other
// hooks are not. Times are virtual in a synctest bubble, and no goroutine is left
// when RoundTrip has returned, unless a Read of the request's body goes on after
// its Close.
//
// It ignores the URL's scheme and host: see Hosts for more than one provider.
func (p *Provider) Transport() http.RoundTripper {
	return &transport{provider: p, pool: pool{count: &p.conns, limit: p.cfg.MaxConns}}
}

type transport struct {
	provider *Provider
	pool     pool
}

// CloseIdleConnections forgets the connections that are kept.
func (t *transport) CloseIdleConnections() { t.pool.closeIdle() }

func (t *transport) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	ctx := req.Context()
	body := &sentBody{from: req.Body}
	defer body.Close()
	switch {
	case req.URL == nil:
		return nil, errors.New("metertest: nil Request.URL")
	case req.Header == nil:
		return nil, errors.New("metertest: nil Request.Header")
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	if err := t.pool.take(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if resp == nil {
			t.pool.give(false)
		}
	}()
	if err := pause(ctx, t.provider.up()); err != nil {
		return nil, err
	}
	r, decided := t.provider.beforeBody(req, func() (string, bool) { return peekModel(req) })
	if decided && r.Fault == DialError {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(hostOf(req)), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	trace := httptrace.ContextClientTrace(ctx)
	t.pool.connect()
	if trace != nil && trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
	if !decided {
		content, err := body.readAll(ctx, req.ContentLength)
		if trace != nil && trace.WroteRequest != nil {
			trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
		}
		if err != nil {
			return nil, err
		}
		r = t.provider.decide(req, content)
	}
	body.Close()
	if r.Fault == Hang {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if err := pause(ctx, r.down); err != nil {
		return nil, err
	}
	if r.silent() {
		return nil, resetError(t.provider.cfg.Name)
	}
	if trace != nil && trace.GotFirstResponseByte != nil {
		trace.GotFirstResponseByte()
	}
	return t.response(ctx, req, r), nil
}

// response is the answer, whose body has the connection now.
func (t *transport) response(ctx context.Context, req *http.Request, r reply) *http.Response {
	cut := r.pieces()
	r.finish(cut.length)
	resp := &http.Response{
		Status:        strconv.Itoa(r.Status) + " " + http.StatusText(r.Status),
		StatusCode:    r.Status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        r.Header,
		ContentLength: cut.length,
		Request:       req,
	}
	if req.Method == http.MethodHead {
		cut = pieces{}
	}
	b := &answerBody{
		ctx:    ctx,
		pieces: cut,
		name:   t.provider.cfg.Name,
		done:   t.pool.give,
		count:  &t.provider.conns,
		closed: make(chan struct{}),
		due:    time.Now(),
	}
	if r.Trailer != nil {
		resp.Trailer = make(http.Header)
		b.trailer, b.fill = resp.Trailer, make(http.Header)
		for name, values := range r.Trailer {
			name = http.CanonicalHeaderKey(name)
			resp.Trailer[name] = nil
			b.fill[name] = append([]string(nil), values...)
		}
	}
	t.provider.conns.open.Add(1)
	resp.Body = b
	return resp
}

// finish adds the headers that a server adds.
func (r *reply) finish(length int64) {
	if date, ok := r.Header["Date"]; !ok {
		r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	} else if date == nil {
		delete(r.Header, "Date")
	}
	if r.Header.Get("Content-Type") == "" {
		if r.Events != nil {
			r.Header.Set("Content-Type", "text/event-stream")
		} else if r.Body != "" {
			r.Header.Set("Content-Type", "text/plain; charset=utf-8")
		}
	}
	// RFC 9110 section 8.6 has none in a 204; a 304 speaks of another answer.
	if length >= 0 && r.Status != http.StatusNoContent && r.Status != http.StatusNotModified {
		r.Header.Set("Content-Length", strconv.FormatInt(length, 10))
	}
}

// peekModel looks for the model without touching the body.
func peekModel(req *http.Request) (string, bool) {
	var content []byte
	if req.Body != nil && req.Body != http.NoBody {
		if req.GetBody == nil {
			model := modelOf(req, nil)
			return model, model != ""
		}
		again, err := req.GetBody()
		if err != nil {
			return "", false
		}
		content, err = io.ReadAll(again)
		again.Close()
		if err != nil {
			return "", false
		}
	}
	return modelOf(req, content), true
}

// address is a host, or a name, as a net.Addr.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// sentBody closes a request's body exactly once.
type sentBody struct {
	from   io.ReadCloser
	closed atomic.Bool
}

func (b *sentBody) Close() error {
	if b.from == nil || !b.closed.CompareAndSwap(false, true) {
		return nil
	}
	return b.from.Close()
}

// readAll reads the body; a length above 0 must be the right one. It ends with
// ctx, and then closes the body, which ends a Read that waits.
func (b *sentBody) readAll(ctx context.Context, length int64) ([]byte, error) {
	if b.from == nil {
		return nil, nil
	}
	if ctx.Done() == nil {
		return readSent(b.from, length)
	}
	type result struct {
		content []byte
		err     error
	}
	read := make(chan result, 1)
	go func() {
		content, err := readSent(b.from, length)
		read <- result{content, err}
	}()
	select {
	case r := <-read:
		return r.content, r.err
	case <-ctx.Done():
		b.Close()
		return nil, context.Cause(ctx)
	}
}

func readSent(from io.Reader, length int64) ([]byte, error) {
	if length <= 0 {
		return io.ReadAll(from)
	}
	content, err := io.ReadAll(io.LimitReader(from, length+1))
	if err == nil && int64(len(content)) != length {
		err = fmt.Errorf("metertest: ContentLength=%d with Body length %d", length, len(content))
	}
	return content, err
}
