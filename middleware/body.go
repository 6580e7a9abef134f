package middleware

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// ReplayLimit is how much of a request body without GetBody is kept while it is
// sent, so that it can be sent again: 512 KiB. A longer one is sent once, and
// whatever answer that brings is handed back.
const ReplayLimit = 512 << 10

var errNoReplay = errors.New("middleware: request body has no GetBody and is longer than is kept for a replay")

// sendBody is a request's body on its way down. It knows whether anybody has
// read from it, or from a body that was made from it for another send: that
// tells whether anything of the request can have been written. It closes what
// it wraps exactly once.
type sendBody struct {
	rc     io.ReadCloser
	fresh  func() (io.ReadCloser, error) // the GetBody of the request it came with
	from   *sendBody                     // the body it was made from
	read   atomic.Bool
	closed atomic.Bool
	handed atomic.Bool // it left this package with its request

	looking atomic.Int32 // hooks that are at work: what they open is not sent
	looked  atomic.Bool  // one of them has opened it
}

func (b *sendBody) Read(p []byte) (int, error) {
	for o := b; o != nil && !o.read.Load(); o = o.from {
		o.read.Store(true)
	}
	return b.rc.Read(p)
}

// again is the GetBody of the request that b is the body of.
func (b *sendBody) again() (io.ReadCloser, error) {
	if b.looking.Load() > 0 {
		return b.look()
	}
	rc, err := b.fresh()
	if err != nil {
		return nil, err
	}
	return &sendBody{rc: rc, fresh: b.fresh, from: b}, nil
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
	if b.rc, b.fresh = req.Body, req.GetBody; b.fresh == nil {
		c := &bodyCopy{ctx: req.Context(), source: req.Body}
		b.rc, _ = c.open()
		b.fresh = c.open
	}
	return b, b.again
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
		r.Body = body
		if b, ok := body.(*sendBody); ok {
			r.GetBody = b.again
		}
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
// yet is drawn from the source, on a goroutine, so that a reader can be closed,
// and a call cancelled, while the source blocks. The source is closed once, when
// the turn is over and the last reader is closed: until then it may be wanted.
type bodyCopy struct {
	ctx    context.Context // the request's
	source io.ReadCloser

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when anything below has changed
	kept    []byte        // the bytes from base to total
	base    int           // what lies before it is given up
	total   int           // bytes read from the source
	err     error         // how the source ended
	drawing bool          // a read of the source is under way
	readers []*copyReader // not closed yet
	over    bool          // nobody opens another
	closed  bool          // the source is
}

// open is the GetBody of the request.
func (c *bodyCopy) open() (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.wholeLocked() {
		return nil, errNoReplay
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	r := &copyReader{copy: c}
	c.readers = append(c.readers, r)
	return r, nil
}

// whole reports whether every byte read so far can be replayed.
func (c *bodyCopy) whole() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wholeLocked()
}

func (c *bodyCopy) wholeLocked() bool {
	return c.base == 0 && !c.over && (c.err == nil || c.err == io.EOF)
}

// announce wakes everybody who waits for a change. With mu held.
func (c *bodyCopy) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// draw reads from the source once.
func (c *bodyCopy) draw(buf []byte) {
	n, err := c.source.Read(buf)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, buf[:n]...)
	c.total += n
	c.err = err
	c.drawing = false
	c.announce()
}

// trim gives up what no reader is left for, once there is more than is kept for
// replays. With mu held.
func (c *bodyCopy) trim() {
	if c.total <= ReplayLimit {
		return
	}
	if behind := c.slowest(); behind > c.base {
		c.kept = append(c.kept[:0], c.kept[behind-c.base:]...)
		c.base = behind
	}
}

// slowest is how far the last of the readers has come. With mu held.
func (c *bodyCopy) slowest() int {
	at := c.total
	for _, r := range c.readers {
		at = min(at, r.at)
	}
	return at
}

// finish says that nobody will open another reader.
func (c *bodyCopy) finish() {
	c.mu.Lock()
	c.over = true
	c.closeIfDone()
}

// closeIfDone unlocks mu and closes the source if it is time to.
func (c *bodyCopy) closeIfDone() error {
	if c.closed || !c.over || len(c.readers) > 0 {
		c.mu.Unlock()
		return nil
	}
	c.closed, c.kept = true, nil
	c.mu.Unlock()
	return c.source.Close()
}

// copyReader is one send's view of a bodyCopy.
type copyReader struct {
	copy   *bodyCopy
	at     int
	closed bool
}

func (r *copyReader) Read(p []byte) (int, error) {
	c := r.copy
	if len(p) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	for {
		switch {
		case r.closed:
			c.mu.Unlock()
			return 0, http.ErrBodyReadAfterClose
		case r.at < c.total:
			n := copy(p, c.kept[r.at-c.base:])
			r.at += n
			c.trim()
			c.announce()
			c.mu.Unlock()
			return n, nil
		case c.err != nil:
			c.mu.Unlock()
			return 0, c.err
		}
		// Beyond what is kept, a reader does not run ahead of the others.
		if !c.drawing && (c.total <= ReplayLimit || c.slowest() == c.total) {
			c.drawing = true
			go c.draw(make([]byte, min(len(p), 32<<10)))
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-c.ctx.Done():
			return 0, context.Cause(c.ctx)
		}
		c.mu.Lock()
	}
}

func (r *copyReader) Close() error {
	c := r.copy
	c.mu.Lock()
	if r.closed {
		c.mu.Unlock()
		return nil
	}
	r.closed = true
	c.readers = slices.DeleteFunc(c.readers, func(o *copyReader) bool { return o == r })
	c.announce()
	return c.closeIfDone()
}
