// Package readahead looks at the beginning of a body that is still arriving.
package readahead

import (
	"io"
	"time"
)

// Body is a body of which a prefix has been read and put back. A read that took
// too long to wait for stays pending, and the next Read gets its result. It is
// for one goroutine at a time.
type Body struct {
	rc      io.ReadCloser
	head    []byte // read, not yet read by the caller
	err     error  // what followed head
	pending chan chunk
}

type chunk struct {
	data []byte
	err  error
}

// Of is rc, of which nothing has been read.
func Of(rc io.ReadCloser) Body { return Body{rc: rc} }

// Head is what has been read ahead. It must not be changed, and holds until the
// next Read.
func (b *Body) Head() []byte { return b.head }

// Err is what ended the body behind Head, or nil.
func (b *Body) Err() error { return b.err }

// More waits for one read of n bytes at most, and reports whether it has come
// before late or done did. It must not be called after the body's end.
func (b *Body) More(n int, late <-chan time.Time, done <-chan struct{}) bool {
	if b.pending == nil {
		b.pending = make(chan chunk, 1)
		go read(b.rc, make([]byte, n), b.pending)
	}
	select {
	case c := <-b.pending:
		b.pending = nil
		b.head, b.err = append(b.head, c.data...), c.err
		return true
	case <-late:
	case <-done:
	}
	return false
}

func read(r io.Reader, buf []byte, to chan<- chunk) {
	n, err := r.Read(buf)
	to <- chunk{buf[:n], err}
}

func (b *Body) Read(p []byte) (int, error) {
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

func (b *Body) Close() error { return b.rc.Close() }
