package llm

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// FirstEventConfig configures FirstEvent. The zero value is the default.
type FirstEventConfig struct {
	// MaxBytes is how much of a stream is looked at for its first event; 0 means
	// 16 KiB. A longer first event is no error.
	MaxBytes int
	// MaxWait is how long is waited for the first event once the headers are
	// here; 0 means 10 s, negative as long as it takes. A stream that is slower
	// is passed on as it is.
	MaxWait time.Duration
	// Reader tells which provider a host speaks, and what its errors mean. Zero
	// knows the built-in providers; give it the one that the Stack has.
	Reader retryafter.Reader
}

// Validate names what is wrong with c, or returns nil.
func (c FirstEventConfig) Validate() error {
	if c.MaxBytes < 0 || c.MaxBytes > 1<<20 {
		return fmt.Errorf("llm: FirstEventConfig.MaxBytes: %d is not between 0 and 1 MiB", c.MaxBytes)
	}
	if err := c.Reader.Validate(); err != nil {
		return fmt.Errorf("llm: FirstEventConfig.Reader: %w", err)
	}
	return nil
}

// FirstEvent is a layer for providers that answer 200 and then send an error as
// the first event of the stream: nothing has been delivered, so it is a refusal
// like any other. It goes below Pace, next to the base transport, so that all
// layers above see that refusal:
//
//	stack.Transport(middleware.Chain(base, llm.FirstEvent(llm.FirstEventConfig{})))
//
// It looks at answers of status 200 that are a text/event-stream. Where the
// first event (comments and pings aside) is one of the provider's errors for a
// rate limit, overload or used-up quota, the answer becomes the one that the
// provider gives for it otherwise: status 429, 529 or the like, and the event's
// JSON as its body, so that layers and SDKs read it as ever. The header stays as
// it was, but for Content-Type, Content-Length and an
// X-Metered-Original-Status of 200. Every other stream, also one with other
// errors, passes on byte for byte.
//
// The price is that the headers of a stream reach the caller only with its
// first event, or after MaxWait. While it waits, a goroutine reads; it ends with
// that read. A refusal's body ends with the event even if the stream goes on; to
// Close it takes up to 100 ms then, in which the stream may end and free its
// connection. An answer that the caller's own Accept-Encoding has compressed is
// not looked at.
//
// A layer of an invalid configuration sends nothing, and returns Validate's error.
func FirstEvent(c FirstEventConfig) middleware.Middleware {
	err := c.Validate()
	if c.MaxBytes == 0 {
		c.MaxBytes = 16 << 10
	}
	if c.MaxWait == 0 {
		c.MaxWait = 10 * time.Second
	}
	return func(next http.RoundTripper) http.RoundTripper {
		if next == nil {
			next = http.DefaultTransport
		}
		return &firstEvent{next: next, config: c, err: err}
	}
}

type firstEvent struct {
	next   http.RoundTripper
	config FirstEventConfig
	err    error
}

func (l *firstEvent) RoundTrip(req *http.Request) (*http.Response, error) {
	if l.err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, l.err
	}
	resp, err := l.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Body == nil || resp.Body == http.NoBody ||
		encoded(resp.Header) || formOf(resp.Header.Get("Content-Type")) != events {
		return resp, err
	}
	if _, ok := resp.Body.(io.Writer); ok {
		return resp, nil
	}
	b := &openedBody{rc: resp.Body}
	resp.Body = b
	event := b.firstEvent(req, l.config)
	if event == nil {
		return resp, nil
	}
	l.refuse(resp, b, event, l.config.Reader.For(req.URL.Host))
	return resp, nil
}

// CloseIdleConnections passes http.Client.CloseIdleConnections on.
func (l *firstEvent) CloseIdleConnections() {
	if c, ok := l.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// refuse makes resp the refusal that event stands for, if it is one.
func (l *firstEvent) refuse(resp *http.Response, b *openedBody, event []byte, source *retryafter.Source) {
	status := refusedAs(source, event)
	if status == 0 {
		return
	}
	h := resp.Header.Clone()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(event)))
	h.Set("X-Metered-Original-Status", strconv.Itoa(resp.StatusCode))
	resp.Header = h
	resp.StatusCode, resp.Status = status, fmt.Sprintf("%d %s", status, statusText(status))
	resp.ContentLength = int64(len(event))
	resp.Body = &refusedBody{event: event, stream: b}
}

func statusText(status int) string {
	if status == statusOverloaded {
		return "Overloaded"
	}
	return http.StatusText(status)
}

const statusOverloaded = 529

// refusedAs returns the status under which a provider refuses with this document
// otherwise; 0 if it is no refusal.
func refusedAs(source *retryafter.Source, document []byte) int {
	class := signalOf(source, document).Class
	var statuses []int
	switch class {
	case retryafter.RateLimited:
		statuses = []int{http.StatusTooManyRequests}
	case retryafter.Overloaded:
		statuses = []int{statusOverloaded, http.StatusServiceUnavailable}
	case retryafter.QuotaExhausted:
		statuses = []int{http.StatusTooManyRequests, http.StatusPaymentRequired, http.StatusForbidden}
	}
	for _, status := range statuses { // whoever reads it again must come to the same
		if source.Classify(status, http.Header{}, document, time.Now()).Class == class {
			return status
		}
	}
	return 0
}

// openedBody is a stream of which the beginning has been read. A read that took
// too long to wait for is still under way, and the next Read gets its result.
type openedBody struct {
	rc      io.ReadCloser
	head    []byte // read, and not yet read by the caller
	err     error  // what followed head
	pending chan piece
}

type piece struct {
	data []byte
	err  error
}

// firstEvent reads on until the first event is here, and returns its data; nil
// if there is none within bounds.
func (b *openedBody) firstEvent(req *http.Request, c FirstEventConfig) []byte {
	var late <-chan time.Time
	if c.MaxWait > 0 {
		timer := time.NewTimer(c.MaxWait)
		defer timer.Stop()
		late = timer.C
	}
	seen, fresh := 0, 0 // what is done with, and what of the rest was looked at
	for {
		if b.err != nil || blankLine(b.head[fresh:]) {
			if seen == 0 && bytes.HasPrefix(b.head, []byte(byteOrderMark)) {
				seen = len(byteOrderMark)
			}
			event, found, passed := nextEvent(b.head[seen:], b.err != nil)
			if found || b.err != nil {
				return event
			}
			seen += passed
		}
		if len(b.head) >= c.MaxBytes {
			return nil
		}
		fresh = max(len(b.head)-len("\r\n\r"), seen)
		b.pending = make(chan piece, 1)
		go func(buf []byte, to chan<- piece) {
			n, err := b.rc.Read(buf)
			to <- piece{buf[:n], err}
		}(make([]byte, min(c.MaxBytes-len(b.head), 4<<10)), b.pending)
		select {
		case p := <-b.pending:
			b.pending = nil
			b.head, b.err = append(b.head, p.data...), p.err
		case <-late:
			return nil
		case <-req.Context().Done(): // the read ends too, soon
			return nil
		}
	}
}

// blankLine reports whether a blank line may have ended in p.
func blankLine(p []byte) bool {
	for _, s := range [...]string{"\n\n", "\n\r", "\r\r"} {
		if bytes.Contains(p, []byte(s)) {
			return true
		}
	}
	return false
}

// firstData returns the data of the first event in stream that is neither a
// comment nor a ping. found is false while it is not here as a whole; an event
// that the stream ends in counts too.
func firstData(stream []byte, ended bool) (event []byte, found bool) {
	event, found, _ = nextEvent(bytes.TrimPrefix(stream, []byte(byteOrderMark)), ended)
	return event, found
}

// nextEvent is firstData from where an event begins. It also returns how much of
// stream it has passed over for good.
func nextEvent(stream []byte, ended bool) (event []byte, found bool, passed int) {
	whole := len(stream)
	ping := false
	for len(stream) > 0 {
		i := bytes.IndexAny(stream, "\r\n")
		if i < 0 {
			if !ended {
				return nil, false, passed
			}
			i = len(stream)
		}
		line := stream[:i]
		rest := stream[min(i+1, len(stream)):]
		if i < len(stream) && stream[i] == '\r' {
			if len(rest) == 0 && !ended {
				return nil, false, passed // a line feed may follow
			}
			rest = bytes.TrimPrefix(rest, []byte("\n"))
		}
		stream = rest
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0:
			if len(event) > 0 && !ping && !isPing(event) {
				return event, true, passed
			}
			event, ping, passed = nil, false, whole-len(stream)
		case string(name) == "event":
			ping = string(value) == "ping"
		case string(name) == "data":
			if event != nil {
				event = append(event, '\n')
			}
			event = append(event, value...)
		}
	}
	if ended && len(event) > 0 && !ping && !isPing(event) {
		return event, true, passed
	}
	return nil, false, passed
}

// isPing reports whether an event's data says that it is a ping.
func isPing(event []byte) bool {
	return len(event) <= 256 && string(bytes.Join(bytes.Fields(event), nil)) == `{"type":"ping"}`
}

func (b *openedBody) Read(p []byte) (int, error) {
	if len(b.head) == 0 && b.pending != nil {
		got := <-b.pending
		b.pending = nil
		b.head, b.err = got.data, got.err
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

func (b *openedBody) Close() error { return b.rc.Close() }

// refusedBody gives the event that the answer was, and ends with it, whatever
// the stream does: a server may keep it open for as long as it likes.
type refusedBody struct {
	event  []byte
	stream *openedBody
	closed sync.Once
	err    error
}

func (b *refusedBody) Read(p []byte) (int, error) {
	if len(b.event) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.event)
	b.event = b.event[n:]
	return n, nil
}

// What is waited for, and read, of a refused stream's rest.
const (
	maxWaste  = 64 << 10
	wasteTime = 100 * time.Millisecond
)

// Close gives the stream a moment to end, so that its connection can be used
// again: most have ended already.
func (b *refusedBody) Close() error {
	b.closed.Do(func() {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			var waste [512]byte
			for seen := 0; seen < maxWaste; {
				n, err := b.stream.Read(waste[:])
				if seen += n; err != nil {
					return // the event is whole: how the stream ended is no matter
				}
			}
		}()
		timer := time.NewTimer(wasteTime)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
		}
		b.err = b.stream.Close()
	})
	return b.err
}
