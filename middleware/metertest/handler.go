package metertest

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// ServeHTTP does over a connection what Transport does in memory. Faults take the
// connection itself where they can (HTTP/1: it is reset), else they abort the
// handler with http.ErrAbortHandler (HTTP/2: the stream is reset). DialError is
// no different from ResetBefore here.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if pause(ctx, p.up()) != nil {
		return
	}
	to, decided := p.beforeBody(r, func() (string, bool) {
		model := modelOf(r, nil)
		return model, model != "" || r.ContentLength == 0
	})
	if !decided {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone, or sent nonsense
		}
		to = p.decide(r, content)
	}
	if to.Fault == Hang {
		<-ctx.Done()
		return
	}
	if pause(ctx, to.down) != nil {
		return
	}
	if to.silent() {
		reset(w)
		return
	}
	to.write(ctx, w, r)
}

func (r *reply) write(ctx context.Context, w http.ResponseWriter, req *http.Request) {
	cut := r.pieces()
	date, dated := r.Header["Date"]
	r.finish(cut.length)
	if dated && date == nil {
		r.Header["Date"] = nil // which is how a ResponseWriter is told
	}
	header := w.Header()
	for name, values := range r.Header {
		header[name] = values
	}
	for name := range r.Trailer {
		header.Add("Trailer", name)
	}
	w.WriteHeader(r.Status)
	if req.Method == http.MethodHead {
		return
	}
	flush := http.NewResponseController(w).Flush
	if cut.length < 0 || r.Fault != NoFault {
		flush()
	}
	sent := int64(0)
	due := time.Now()
	for i := 0; ; i++ {
		piece, ok := cut.at(i)
		if !ok {
			break
		}
		due = due.Add(piece.After)
		if pause(ctx, time.Until(due)) != nil {
			return
		}
		data := piece.Data
		if cut.length >= 0 && int64(len(data)) > cut.length-sent {
			data = data[:cut.length-sent]
		}
		if _, err := io.WriteString(w, data); err != nil {
			return
		}
		sent += int64(len(data))
		if cut.length < 0 || r.Fault != NoFault {
			flush()
		}
	}
	switch r.Fault {
	case ResetDuringBody:
		reset(w)
		return
	case HangDuringBody:
		<-ctx.Done()
		return
	}
	for name, values := range r.Trailer {
		header[http.CanonicalHeaderKey(name)] = values
	}
}

// reset cuts the connection as rudely as it can.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) // a reset, not a goodbye
	}
	conn.Close()
}
