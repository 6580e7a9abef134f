package metertest

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// pieces is the body of an Answer as a sequence: what comes when, and how it
// ends.
type pieces struct {
	list    []Event
	endless bool
	end     Fault // NoFault, ResetDuringBody or HangDuringBody
	length  int64 // Content-Length; -1: none
}

// pieces cuts a's body. A fault in the middle leaves the first half.
func (a *Answer) pieces() pieces {
	p := pieces{list: a.Events, end: a.Fault, length: -1}
	switch {
	case a.Events != nil:
	case a.Endless:
		p.endless = true
		p.list = []Event{{After: a.Every, Data: a.Body}}
	default:
		p.list = []Event{{Data: a.Body}}
		if a.Trailer == nil {
			p.length = int64(len(a.Body))
		}
	}
	if a.Length != 0 {
		p.length = a.Length
	}
	if a.Fault == ResetDuringBody || a.Fault == HangDuringBody {
		p.endless = false
		if a.Events != nil {
			p.list = p.list[:len(p.list)/2]
		} else {
			p.list[0].Data = a.Body[:len(a.Body)/2]
		}
	}
	return p
}

// at returns piece i.
func (p *pieces) at(i int) (Event, bool) {
	if i < len(p.list) {
		return p.list[i], true
	}
	if p.endless {
		return p.list[len(p.list)-1], true
	}
	return Event{}, false
}

// resetError is what a client reads from a connection that name has reset.
func resetError(name string) error {
	return &net.OpError{Op: "read", Net: "tcp", Addr: address(name), Err: os.NewSyscallError("read", syscall.ECONNRESET)}
}

// answerBody is the body of an in-memory answer. It has no goroutine: a Read
// sleeps until the next piece is due, reckoned from the headers on.
type answerBody struct {
	ctx    context.Context
	pieces pieces
	name   string              // of the provider
	done   func(reusable bool) // the connection is free; called once
	count  *conns
	closed chan struct{}

	reading sync.Mutex // held by Read
	next    int        // piece
	rest    string     // of the piece before
	due     time.Time
	sent    int64
	err     error // for good
	trailer http.Header
	fill    http.Header // trailer's values

	closing sync.Once
	freeing sync.Once
}

func (b *answerBody) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	select {
	case <-b.closed:
		return 0, http.ErrBodyReadAfterClose
	default:
	}
	if b.err != nil {
		return 0, b.err
	}
	if b.ctx.Err() != nil {
		return 0, b.fail(context.Cause(b.ctx))
	}
	if len(p) == 0 {
		return 0, nil
	}
	for b.rest == "" {
		piece, ok := b.pieces.at(b.next)
		if !ok || b.sent == b.pieces.length {
			return 0, b.ended()
		}
		b.next++
		b.due = b.due.Add(piece.After)
		if err := b.sleep(time.Until(b.due)); err != nil {
			return 0, err
		}
		b.rest = piece.Data
		if room := b.pieces.length - b.sent; b.pieces.length >= 0 && int64(len(b.rest)) > room {
			b.rest = b.rest[:room]
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	b.sent += int64(n)
	if b.rest == "" && b.pieces.length == b.sent && b.pieces.end == NoFault {
		return n, b.ended() // as a body of known length does
	}
	return n, nil
}

// ended is how the body ends behind its last piece.
func (b *answerBody) ended() error {
	switch {
	case b.pieces.end == ResetDuringBody:
		return b.fail(resetError(b.name))
	case b.pieces.end == HangDuringBody:
		select {
		case <-b.ctx.Done():
			return b.fail(context.Cause(b.ctx))
		case <-b.closed:
			return http.ErrBodyReadAfterClose
		}
	case b.pieces.length > b.sent:
		return b.fail(io.ErrUnexpectedEOF)
	}
	for name, values := range b.fill {
		b.trailer[name] = values
	}
	b.err = io.EOF
	b.free(true)
	return io.EOF
}

func (b *answerBody) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-b.ctx.Done():
		return b.fail(context.Cause(b.ctx))
	case <-b.closed:
		return http.ErrBodyReadAfterClose
	}
}

func (b *answerBody) fail(err error) error {
	b.err = err
	b.free(false)
	return err
}

func (b *answerBody) free(reusable bool) {
	b.freeing.Do(func() { b.done(reusable) })
}

// Close frees the connection and ends a Read that waits. It may be called again.
func (b *answerBody) Close() error {
	b.closing.Do(func() {
		close(b.closed)
		b.count.open.Add(-1)
		b.free(false)
	})
	return nil
}

// pause sleeps, or returns ctx's cause.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
