package middleware

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// ReplayLimit is how much of a request body without GetBody is kept while it is
// sent, so that it can be sent again: 512 KiB. A longer one is sent once, and
// whatever answer that brings is handed back.
const ReplayLimit = 512 << 10

var errNoReplay = errors.New("middleware: request body has no GetBody and is longer than is kept for a replay")

// sendBody is a request's body on its way to one send. It knows whether the
// transport has read from it, which tells whether anything can have been
// written, and closes what it wraps exactly once.
type sendBody struct {
	rc     io.ReadCloser
	read   atomic.Bool
	closed atomic.Bool
	handed atomic.Bool // it left this package with its request
}

func (b *sendBody) Read(p []byte) (int, error) {
	if !b.read.Load() {
		b.read.Store(true)
	}
	return b.rc.Read(p)
}

func (b *sendBody) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	return b.rc.Close()
}

// closeUnsent closes a body that never left this package.
func (b *sendBody) closeUnsent() {
	if b.rc != nil && !b.handed.Load() {
		b.Close()
	}
}

// end says that the call is over: a body that was never sent is closed, and
// one that was kept for replays is kept no longer.
func (b *sendBody) end() {
	b.closeUnsent()
	if r, ok := b.rc.(*copyReader); ok {
		r.copy.finish()
	}
}

func hasBody(req *http.Request) bool {
	return req.Body != nil && req.Body != http.NoBody
}

// replayable reports whether the body of req can be sent again now.
func replayable(req *http.Request) bool {
	if !hasBody(req) {
		return true
	}
	if b, ok := req.Body.(*sendBody); ok {
		if c, ok := b.rc.(*copyReader); ok {
			return c.copy.whole()
		}
	}
	return req.GetBody != nil
}

// adopt returns the body of req wrapped into b, with a GetBody that works: the
// caller's own, or one that replays what is kept while the body is sent.
func adopt(b *sendBody, req *http.Request) (io.ReadCloser, func() (io.ReadCloser, error)) {
	if !hasBody(req) {
		return req.Body, req.GetBody
	}
	if req.GetBody != nil {
		b.rc = req.Body
		return b, req.GetBody
	}
	c := &bodyCopy{source: req.Body}
	b.rc, _ = c.open()
	return b, c.open
}

// resend returns a deep copy of req with a fresh body, for another send.
func resend(req *http.Request) (*http.Request, error) {
	if !replayable(req) {
		return nil, errNoReplay
	}
	r := req.Clone(req.Context())
	if hasBody(req) {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		r.Body = &sendBody{rc: body}
	}
	return r, nil
}

// closeUnsent closes the body of a request that was made by resend and never
// left this package.
func closeUnsent(req *http.Request) {
	if b, ok := req.Body.(*sendBody); ok {
		b.closeUnsent()
	}
}

// unread reports whether req had a body of which nothing was read, so that
// nothing of the request can have been acted on.
func unread(req *http.Request) bool {
	b, ok := req.Body.(*sendBody)
	return ok && b.rc != nil && !b.read.Load()
}

// bodyCopy keeps what is read from a body that has no GetBody, up to
// ReplayLimit. Its readers start at the first byte; what none of them has read
// yet is drawn from the source. The source is closed once, when the turn is
// over and the last reader is closed: until then it may still be wanted.
type bodyCopy struct {
	source  io.ReadCloser
	reading sync.Mutex // held while the source is read; never together with mu

	mu      sync.Mutex
	kept    []byte
	total   int   // bytes read from the source
	lost    bool  // more than ReplayLimit was read: kept is given up
	err     error // how the source ended
	readers int
	over    bool
}

// open is the GetBody of the request.
func (c *bodyCopy) open() (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.wholeLocked() {
		return nil, errNoReplay
	}
	c.readers++
	return &copyReader{copy: c}, nil
}

// whole reports whether every byte read so far can be replayed.
func (c *bodyCopy) whole() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wholeLocked()
}

func (c *bodyCopy) wholeLocked() bool {
	return !c.lost && !c.over && (c.err == nil || c.err == io.EOF)
}

// finish says that nobody will open another reader.
func (c *bodyCopy) finish() {
	c.release(0, true)
}

func (c *bodyCopy) release(readers int, over bool) error {
	c.mu.Lock()
	was := c.over && c.readers == 0
	c.readers -= readers
	c.over = c.over || over
	closing := !was && c.over && c.readers == 0
	c.mu.Unlock()
	if closing {
		return c.source.Close()
	}
	return nil
}

// copyReader is one send's view of a bodyCopy.
type copyReader struct {
	copy   *bodyCopy
	at     int
	closed atomic.Bool
}

func (r *copyReader) Read(p []byte) (int, error) {
	if n, err, ok := r.readKept(p); ok {
		return n, err
	}
	c := r.copy
	c.reading.Lock()
	defer c.reading.Unlock()
	if n, err, ok := r.readKept(p); ok { // somebody else has read on meanwhile
		return n, err
	}
	n, err := c.source.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += n
	r.at = c.total
	c.err = err
	if c.total > ReplayLimit {
		c.lost, c.kept = true, nil
	} else {
		c.kept = append(c.kept, p[:n]...)
	}
	return n, err
}

// readKept reads what needs no read of the source; ok is false when only the
// source can tell.
func (r *copyReader) readKept(p []byte) (n int, err error, ok bool) {
	c := r.copy
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.closed.Load():
		return 0, http.ErrBodyReadAfterClose, true
	case r.at < len(c.kept):
		n = copy(p, c.kept[r.at:])
		r.at += n
		return n, nil, true
	case r.at < c.total:
		return 0, errNoReplay, true
	case c.err != nil:
		return 0, c.err, true
	}
	return 0, nil, len(p) == 0
}

func (r *copyReader) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	return r.copy.release(1, false)
}
