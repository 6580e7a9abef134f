package middleware

import (
	"io"
	"net/http"
	"time"
)

// What is read of an answer that is thrown away, so that its connection can be
// used again, and what is looked at of a refused answer's body: no more bytes,
// and no longer, than this. RefusedError.Body holds at most peekBytes.
const (
	peekBytes  = 64 << 10
	drainBytes = 64 << 10 // beyond what was peeked at
	drainTime  = 500 * time.Millisecond
)

// peekedBody is an answer's body of which a prefix has been read and put back.
// The server may still be in the middle of sending it: a read that took too
// long to wait for stays pending, and the next Read gets its result.
type peekedBody struct {
	rc      io.ReadCloser
	head    []byte // read, not yet read by the caller
	err     error  // what followed head
	pending chan chunk
	slow    bool // it has been waited for long enough
}

type chunk struct {
	data []byte
	err  error
}

// peek reads a prefix of resp.Body, bounded in bytes and time, and puts it
// back. The returned bytes must not be changed.
func peek(resp *http.Response) []byte {
	if resp.Body == http.NoBody {
		return nil
	}
	b, ok := resp.Body.(*peekedBody)
	if !ok {
		b = &peekedBody{rc: resp.Body}
		resp.Body = b
	}
	b.fill(peekBytes)
	return b.head
}

// discard drains resp.Body within bounds and closes it.
func discard(resp *http.Response) {
	if resp.Body == http.NoBody {
		return
	}
	b, ok := resp.Body.(*peekedBody)
	if !ok {
		b = &peekedBody{rc: resp.Body}
	}
	b.fill(len(b.head) + drainBytes)
	b.Close()
}

// fill reads ahead until head holds n bytes, the body ends, or drainTime is
// over; that is spent once.
func (b *peekedBody) fill(n int) {
	if b.err != nil || b.slow || len(b.head) >= n {
		return
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	for len(b.head) < n && b.err == nil {
		if b.pending == nil {
			b.pending = make(chan chunk, 1)
			go read(b.rc, make([]byte, min(n-len(b.head), 8<<10)), b.pending)
		}
		select {
		case c := <-b.pending:
			b.pending = nil
			b.head = append(b.head, c.data...)
			b.err = c.err
		case <-timer.C:
			b.slow = true
			return
		}
	}
}

func read(r io.Reader, buf []byte, to chan<- chunk) {
	n, err := r.Read(buf)
	to <- chunk{buf[:n], err}
}

func (b *peekedBody) Read(p []byte) (int, error) {
	if len(b.head) == 0 && b.pending != nil {
		c := <-b.pending
		b.pending = nil
		b.head, b.err = c.data, c.err
	}
	if len(b.head) > 0 {
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rc.Read(p)
}

func (b *peekedBody) Close() error { return b.rc.Close() }
