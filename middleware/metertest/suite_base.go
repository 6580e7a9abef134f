package metertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// suspect is the base transport under a layer that is being tested. It answers by
// script and watches what it is given.
type suspect struct {
	t     tb
	steps []step // answers the attempts in turn, the last one all the rest

	// crowded allows attempts while the bodies of other answers are open.
	crowded bool
	// arrived, if set, looks at an attempt before anything is done with it.
	arrived func(a *attempt)

	mu       sync.Mutex
	callers  map[string]*sent // by the value of callHeader
	attempts []*attempt
	given    []*givenBody
	idle     int
}

// callHeader tells which of the caller's requests an attempt is for.
const callHeader = "X-Metertest-Call"

// An attempt is one request that reached the base.
type attempt struct {
	n       int
	at      time.Time
	req     *http.Request
	sent    *sent
	body    []byte
	bodyErr error
}

// A step answers an attempt whose body has been read and closed, unless lazy.
type step struct {
	lazy bool // the step does both itself
	do   func(b *suspect, a *attempt) (*http.Response, error)
}

func newSuspect(t tb, steps ...step) *suspect {
	return &suspect{t: t, steps: steps, callers: make(map[string]*sent)}
}

func (b *suspect) RoundTrip(req *http.Request) (*http.Response, error) {
	b.mu.Lock()
	a := &attempt{n: len(b.attempts), at: time.Now(), req: req, sent: b.callers[req.Header.Get(callHeader)]}
	b.attempts = append(b.attempts, a)
	step := b.steps[min(a.n, len(b.steps)-1)]
	open := 0
	for _, g := range b.given {
		if !g.isClosed() {
			open++
		}
	}
	b.mu.Unlock()

	if open > 0 && !b.crowded {
		b.t.Errorf("attempt %d arrived while the bodies of %d answers before were open", a.n+1, open)
	}
	if a.sent == nil {
		b.t.Errorf("attempt %d lacks the caller's headers", a.n+1)
	} else {
		a.sent.unchanged(b.t, fmt.Sprintf("when attempt %d arrived", a.n+1))
	}
	if b.arrived != nil {
		b.arrived(a)
	}
	if err := req.Context().Err(); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	if !step.lazy {
		b.readBody(a)
	}
	return step.do(b, a)
}

// readBody reads and closes the attempt's body and holds it against what the
// caller sent.
func (b *suspect) readBody(a *attempt) {
	if a.req.Body == nil {
		if a.sent != nil && len(a.sent.payload) > 0 {
			b.t.Errorf("attempt %d has no body, the caller's request has one", a.n+1)
		}
		return
	}
	a.body, a.bodyErr = io.ReadAll(a.req.Body)
	a.req.Body.Close()
	if a.sent == nil || a.bodyErr != nil {
		return
	}
	want := a.sent.payload
	if !bytes.Equal(a.body, want) {
		b.t.Errorf("attempt %d carries %d bytes of body that are not the %d of the caller", a.n+1, len(a.body), len(want))
	}
	// A length of 0 beside a body means unknown, as -1 does.
	if n := a.req.ContentLength; n > 0 && n != int64(len(want)) || n <= 0 && a.sent.req.ContentLength > 0 {
		b.t.Errorf("attempt %d has ContentLength %d, want %d", a.n+1, n, a.sent.req.ContentLength)
	}
	if a.sent.replayable {
		b.replay(a)
	}
}

// replay calls GetBody twice, as a base may that has to follow a GOAWAY.
func (b *suspect) replay(a *attempt) {
	if a.req.GetBody == nil {
		b.t.Errorf("attempt %d has no GetBody, the caller's request has one", a.n+1)
		return
	}
	for range 2 {
		again, err := a.req.GetBody()
		if err != nil {
			b.t.Errorf("attempt %d: GetBody: %v", a.n+1, err)
			return
		}
		content, err := io.ReadAll(again)
		again.Close()
		if err != nil || !bytes.Equal(content, a.sent.payload) {
			b.t.Errorf("attempt %d: GetBody gives %d bytes (%v) that are not the %d of the caller", a.n+1, len(content), err, len(a.sent.payload))
		}
	}
}

// CloseIdleConnections counts.
func (b *suspect) CloseIdleConnections() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle++
}

func (b *suspect) sends() []*attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*attempt(nil), b.attempts...)
}

func (b *suspect) bodies() []*givenBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*givenBody(nil), b.given...)
}

// answer makes an answer whose body is from.
func (b *suspect) answer(a *attempt, status int, from io.Reader, length int64, header ...string) *http.Response {
	g := &givenBody{ctx: a.req.Context(), from: from, closed: make(chan struct{})}
	b.mu.Lock()
	b.given = append(b.given, g)
	b.mu.Unlock()
	resp := &http.Response{
		Status:        fmt.Sprintf("%d %s", status, http.StatusText(status)),
		StatusCode:    status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        Reply(status, "", header...).Header,
		Body:          g,
		ContentLength: length,
		Request:       a.req,
	}
	if resp.Header == nil {
		resp.Header = make(http.Header)
	}
	if length >= 0 {
		resp.Header.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	return resp
}

// gives answers with a status, a body and header fields, as Reply has them.
func gives(status int, body string, header ...string) step {
	return step{do: func(b *suspect, a *attempt) (*http.Response, error) {
		return b.answer(a, status, strings.NewReader(body), int64(len(body)), header...), nil
	}}
}

// streams answers with a body that from makes for each attempt.
func streams(status int, from func(g *attempt) io.Reader, header ...string) step {
	return step{do: func(b *suspect, a *attempt) (*http.Response, error) {
		return b.answer(a, status, from(a), -1, header...), nil
	}}
}

// fails returns err.
func fails(err error) step {
	return step{do: func(*suspect, *attempt) (*http.Response, error) { return nil, err }}
}

// hangs returns when the attempt's context ends. After an hour it gives up, lest
// a layer that loses contexts stop the clock.
func hangs() step {
	return step{do: func(_ *suspect, a *attempt) (*http.Response, error) {
		select {
		case <-a.req.Context().Done():
			return nil, a.req.Context().Err()
		case <-time.After(time.Hour):
			return nil, errors.New("metertest: the attempt's context never ended")
		}
	}}
}

// givenBody is the body of an answer of the suspect. Like a transport's it ends
// with the context of its attempt, and a waiting Read with Close.
type givenBody struct {
	ctx  context.Context
	from io.Reader // may be a patient: then it is waited for

	mu       sync.Mutex
	reads    int
	bytes    int64
	closedAt time.Time
	closed   chan struct{}
	written  []byte
}

// A patient reader waits for its next bytes.
type patient interface {
	io.Reader
	// wait is the time until Read has something; below zero for ever.
	wait() time.Duration
}

func (g *givenBody) Read(p []byte) (int, error) {
	g.mu.Lock()
	g.reads++
	g.mu.Unlock()
	if g.isClosed() {
		return 0, http.ErrBodyReadAfterClose
	}
	if err := g.ctx.Err(); err != nil {
		return 0, err
	}
	if w, ok := g.from.(patient); ok {
		if err := g.sleep(w.wait()); err != nil {
			return 0, err
		}
	}
	n, err := g.from.Read(p)
	g.mu.Lock()
	g.bytes += int64(n)
	g.mu.Unlock()
	return n, err
}

func (g *givenBody) sleep(d time.Duration) error {
	var due <-chan time.Time
	if d == 0 {
		return nil
	}
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
		return nil
	case <-g.closed:
		return http.ErrBodyReadAfterClose
	case <-g.ctx.Done():
		return g.ctx.Err()
	}
}

func (g *givenBody) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closedAt.IsZero() {
		g.closedAt = time.Now()
		close(g.closed)
	}
	return nil
}

func (g *givenBody) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closedAt.IsZero()
}

// taken returns how often and how much was read.
func (g *givenBody) taken() (reads int, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reads, g.bytes
}

// duplex is a givenBody of a switched protocol.
type duplex struct{ *givenBody }

func (d duplex) Write(p []byte) (int, error) {
	if d.isClosed() {
		return 0, errors.New("metertest: write after close")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.written = append(d.written, p...)
	return len(p), nil
}
