package llm

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/meteredhttp/meteredhttp/internal/readahead"
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
	b := readahead.Of(resp.Body)
	resp.Body = &b
	event := firstEventOf(&b, req, l.config)
	if event == nil {
		return resp, nil
	}
	l.refuse(resp, &b, event, l.config.Reader.For(req.URL.Host))
	return resp, nil
}

// CloseIdleConnections passes http.Client.CloseIdleConnections on.
func (l *firstEvent) CloseIdleConnections() {
	if c, ok := l.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// refuse makes resp the refusal that event stands for, if it is one.
func (l *firstEvent) refuse(resp *http.Response, b *readahead.Body, event []byte, source *retryafter.Source) {
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

// firstEventOf reads on until the first event is here, and returns its data; nil
// if there is none within bounds.
func firstEventOf(b *readahead.Body, req *http.Request, c FirstEventConfig) []byte {
	var late <-chan time.Time
	if c.MaxWait > 0 {
		timer := time.NewTimer(c.MaxWait)
		defer timer.Stop()
		late = timer.C
	}
	seen, fresh := 0, 0 // what is done with, and what of the rest was looked at
	for {
		if b.Err() != nil || blankLine(b.Head()[fresh:]) {
			if seen == 0 && bytes.HasPrefix(b.Head(), []byte(byteOrderMark)) {
				seen = len(byteOrderMark)
			}
			event, found, passed := nextEvent(b.Head()[seen:], b.Err() != nil)
			if found || b.Err() != nil {
				return event
			}
			seen += passed
		}
		if len(b.Head()) >= c.MaxBytes {
			return nil
		}
		fresh = max(len(b.Head())-len("\r\n\r"), seen)
		if !b.More(min(c.MaxBytes-len(b.Head()), 4<<10), late, req.Context().Done()) {
			return nil // where the caller has gone, the read ends too, soon
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

// refusedBody gives the event that the answer was, and ends with it, whatever
// the stream does: a server may keep it open for as long as it likes.
type refusedBody struct {
	event  []byte
	stream *readahead.Body
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
