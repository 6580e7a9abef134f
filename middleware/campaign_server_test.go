package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errHostile is in every error that a hostile server causes.
var errHostile = errors.New("hostile")

// hostile is a server, seen through a transport, that does at each send what its
// seed says: it depends on the call and on how often that was sent, and not on
// what other calls do meanwhile. It keeps the RoundTripper contract, and a book.
// Where real is not nil, some sends go there.
type hostile struct {
	seed     uint64
	faulty   float64 // the share of sends that do not go well
	real     http.RoundTripper
	mayPanic bool
	start    time.Time

	mu    sync.Mutex
	sends []*sent
	open  int // answers whose body is not closed
	wrong []string
}

// sent is one send, as the server saw it. Guarded by the server's mu.
type sent struct {
	call               int
	host, path, method string
	idempotent         bool
	at, answered       time.Duration // since the start
	read               int64         // of the request's body
	hasBody            bool
	status             int // 0: no answer
	unsent             bool
	hint               time.Duration // of a refusal that anybody must understand; 0 is none
	slow               bool          // its body takes its time
}

func (h *hostile) since() time.Duration { return time.Since(h.start) }

func (h *hostile) complain(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

func (h *hostile) RoundTrip(req *http.Request) (*http.Response, error) {
	call, _ := strconv.Atoi(req.Header.Get("X-Call"))
	s := &sent{call: call, host: req.URL.Host, path: req.URL.Path, method: req.Method, at: h.since(),
		hasBody: req.Body != nil && req.Body != http.NoBody, idempotent: req.Method != "POST" || req.Header["Idempotency-Key"] != nil}
	h.mu.Lock()
	n := 0
	for _, o := range h.sends {
		if o.call == call {
			n++
		}
	}
	h.sends = append(h.sends, s)
	h.mu.Unlock()
	if s.hasBody && req.GetBody == nil {
		h.complain("call %d, send %d: a body without GetBody", call, n)
	}
	body := &countedBody{h: h, s: s, rc: req.Body}
	rng := rand.New(rand.NewPCG(h.seed, uint64(call)<<20|uint64(n)))
	if h.real != nil && rng.IntN(3) > 0 {
		r := req.WithContext(req.Context())
		if s.hasBody {
			r.Body = body
		}
		resp, err := h.real.RoundTrip(r)
		var op *net.OpError
		h.mu.Lock()
		s.answered, s.unsent = h.since(), errors.As(err, &op) && op.Op == "dial"
		if err == nil {
			s.status = resp.StatusCode
		}
		h.mu.Unlock()
		if err != nil && req.Context().Err() == nil {
			err = fmt.Errorf("%w: %w", errHostile, err)
		}
		if err == nil {
			resp.Request = req
		}
		return resp, err
	}
	resp, err := h.answer(req, s, body, rng)
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.answered = h.since(); err == nil {
		s.status = resp.StatusCode
		if _, ok := resp.Body.(*hostileBody); ok {
			h.open++
		}
		if w, ok := resp.Body.(upgradedBody); ok && w.hostileBody != nil {
			h.open++
		}
	}
	return resp, err
}

// answer does one of the things that can happen to a request.
func (h *hostile) answer(req *http.Request, s *sent, body *countedBody, rng *rand.Rand) (*http.Response, error) {
	ctx := req.Context()
	fail := func(err error) (*http.Response, error) {
		body.Close()
		return nil, fmt.Errorf("%w: %w", errHostile, err)
	}
	if err := ctx.Err(); err != nil {
		body.Close()
		return nil, context.Cause(ctx)
	}
	kind := "ok"
	if rng.Float64() < h.faulty {
		kind = hostileKinds[rng.IntN(len(hostileKinds))]
	}
	if kind == "panic" && !h.mayPanic {
		kind = "reset"
	}
	switch kind {
	case "dial":
		h.mu.Lock()
		s.unsent = true
		h.mu.Unlock()
		return fail(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
	case "stale":
		return fail(errors.New("http: server closed idle connection"))
	case "goaway":
		return fail(errors.New("http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR"))
	}
	if rng.IntN(2) == 0 {
		if err := sleepUntil(ctx, time.Duration(rng.IntN(2000))*time.Millisecond); err != nil {
			body.Close()
			return nil, err
		}
	}
	early := rng.IntN(8) == 0
	if !early {
		limit := int64(-1)
		if kind == "reset half" {
			limit = 3
		}
		if err := body.take(ctx, limit); err != nil {
			body.Close()
			return nil, err
		}
	}
	switch kind {
	case "panic":
		body.Close()
		panic(errHostile)
	case "reset", "reset half":
		return fail(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})
	case "refused stream":
		return fail(errors.New("stream error: stream ID 3; REFUSED_STREAM; received from peer"))
	case "goaway after":
		return fail(errors.New("http2: Transport received Server's graceful shutdown GOAWAY"))
	case "malformed":
		return fail(errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x00"`))
	case "hang":
		body.Close()
		if err := sleepUntil(ctx, 3*time.Minute); err != nil {
			return nil, err
		}
		return fail(syscall.ETIMEDOUT)
	}
	body.Close()
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.Got1xxResponse != nil && rng.IntN(3) == 0 {
		if err := trace.Got1xxResponse(103, textproto.MIMEHeader{"Link": {"</a>"}}); err != nil {
			return nil, fmt.Errorf("%w: %w", errHostile, err)
		}
	}
	resp := &http.Response{StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: req, ContentLength: -1}
	b := &hostileBody{h: h, ctx: ctx, closed: make(chan struct{}), left: rng.IntN(3) * 100, size: 100, end: io.EOF}
	h.dress(resp, b, s, kind, rng)
	resp.Status = fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	resp.Body = b
	switch {
	case kind == "upgrade":
		resp.Body = upgradedBody{b}
	case req.Method == http.MethodHead || resp.StatusCode == 204 || resp.StatusCode == 304:
		resp.Body, resp.ContentLength = http.NoBody, 0
	case kind == "no body":
		resp.Body = nil
	}
	return resp, nil
}

var hostileKinds = []string{
	"dial", "stale", "goaway", "goaway after", "reset", "reset half", "refused stream", "malformed", "hang", "panic",
	"429", "429", "429", "429", "429", "503", "529", "quota", "403",
	"500", "502", "504", "408", "404", "204", "no body", "upgrade", "redirect", "redirect", "bad redirect",
	"trickle", "endless", "blocked", "cut", "long", "short", "headers", "headers", "headers",
}

var hostileHints = []string{
	"0", "1", "2", "3", "7", "30", "75", "4000", "-1", "+5", "1e3", "0x10", "NaN", "soon", "", "2.5", "1, 2", ",",
	"99999999999999999999999", "Mon, 30 Nov 2026 07:00:00 GMT", "Sat, 01 Jan 2000 00:00:05 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", strings.Repeat("9", 5000),
}

// dress makes resp and its body what kind says.
func (h *hostile) dress(resp *http.Response, b *hostileBody, s *sent, kind string, rng *rand.Rand) {
	if status, err := strconv.Atoi(kind); err == nil {
		resp.StatusCode = status
		if rng.IntN(4) > 0 {
			hint := hostileHints[rng.IntN(len(hostileHints))]
			resp.Header.Set("Retry-After", hint)
			if n, err := strconv.Atoi(hint); err == nil && n > 0 && n < 1e6 && hint[0] != '+' && (status == 429 || status == 503 || status == 529) {
				s.hint = time.Duration(n) * time.Second
			}
		}
		if rng.IntN(4) == 0 {
			kind = []string{"trickle", "endless", "blocked", "cut", "long"}[rng.IntN(5)]
		}
	}
	switch kind {
	case "quota":
		resp.StatusCode, b.text = 429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`
	case "upgrade":
		resp.StatusCode = 101
		resp.Header.Set("Upgrade", "other")
	case "redirect", "bad redirect":
		hop := strings.Count(s.path, "hop")
		if hop > 1 {
			break
		}
		resp.StatusCode = []int{301, 302, 303, 307, 308}[rng.IntN(5)]
		resp.Header.Set("Location", "/v1/"+strings.Repeat("hop", hop+1))
		if rng.IntN(3) == 0 {
			resp.Header.Set("Location", "http://elsewhere.example.org/v1/"+strings.Repeat("hop", hop+1))
		}
		if kind == "bad redirect" {
			resp.Header.Set("Location", "http://[::bad")
		}
	case "trickle":
		b.left, b.every = 1500, time.Duration(20+rng.IntN(400))*time.Millisecond
	case "endless":
		b.left, b.size, b.every = 1<<20, 2048, time.Duration(rng.IntN(3))*20*time.Millisecond
	case "blocked":
		b.block = true
	case "cut":
		b.end = fmt.Errorf("%w: %w", errHostile, syscall.ECONNRESET)
	case "long":
		resp.ContentLength, b.end = int64(b.left)+1000, fmt.Errorf("%w: %w", errHostile, io.ErrUnexpectedEOF)
		resp.Header.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	case "short":
		resp.ContentLength = int64(b.left / 2)
		b.left /= 2
	case "headers":
		if rng.IntN(3) == 0 {
			resp.StatusCode = 429
		}
		values := append([]string{"100", "5", "1", "1s", "6m0s", "20ms", "-3s", "1h99h", "\x7f\xff", `"a";r=0;t=99999999999`, `"a";q=10;w=60`}, hostileHints...)
		for _, name := range []string{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
			"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", "X-Ratelimit-Limit", "X-Ratelimit-Remaining",
			"X-Ratelimit-Reset", "Ratelimit", "Ratelimit-Policy", "Ratelimit-Remaining", "Retry-After", "Retry-After-Ms", "retry-after", "Date", "Age"} {
			for rng.IntN(2) == 0 {
				resp.Header[name] = append(resp.Header[name], values[rng.IntN(len(values))])
			}
		}
	}
	s.slow = b.every > 0 || b.block || b.left > 1000
}

// sleepUntil sleeps for d, or until ctx ends.
func sleepUntil(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// countedBody is a request's body: it counts what was read, and closes it.
type countedBody struct {
	h  *hostile
	s  *sent
	rc io.ReadCloser
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.rc.Read(p)
	b.h.mu.Lock()
	b.s.read += int64(n)
	b.h.mu.Unlock()
	return n, err
}

func (b *countedBody) Close() error {
	if b.rc == nil {
		return nil
	}
	return b.rc.Close()
}

// take reads the body, up to limit if that is not below zero. It does not
// outlive ctx, though the reading may.
func (b *countedBody) take(ctx context.Context, limit int64) error {
	if b.rc == nil {
		return nil
	}
	var from io.Reader = b
	if limit >= 0 {
		from = io.LimitReader(b, limit)
	}
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, from)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hostileBody is an answer's body. Reads end with its context, or with Close.
type hostileBody struct {
	h      *hostile
	ctx    context.Context
	text   string
	left   int // filler behind text
	size   int // of a piece
	every  time.Duration
	block  bool
	end    error
	once   sync.Once
	closed chan struct{}
}

func (b *hostileBody) Read(p []byte) (int, error) {
	select {
	case <-b.closed:
		return 0, fmt.Errorf("%w: %w", errHostile, http.ErrBodyReadAfterClose)
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	default:
	}
	if b.text != "" {
		n := copy(p, b.text)
		b.text = b.text[n:]
		return n, nil
	}
	var tick <-chan time.Time
	switch {
	case b.left == 0 && !b.block:
		return 0, b.end
	case b.left > 0 && b.every == 0:
		return b.fill(p), nil
	case b.left > 0:
		timer := time.NewTimer(b.every)
		defer timer.Stop()
		tick = timer.C
	}
	select {
	case <-tick:
		return b.fill(p), nil
	case <-b.closed:
		return 0, fmt.Errorf("%w: %w", errHostile, http.ErrBodyReadAfterClose)
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	}
}

func (b *hostileBody) fill(p []byte) int {
	n := min(b.left, b.size, len(p))
	clear(p[:n])
	b.left -= n
	return n
}

func (b *hostileBody) Close() error {
	b.once.Do(func() {
		close(b.closed)
		b.h.mu.Lock()
		defer b.h.mu.Unlock()
		b.h.open--
	})
	return nil
}

// upgradedBody is the connection behind a 101.
type upgradedBody struct{ *hostileBody }

func (upgradedBody) Write(p []byte) (int, error) { return len(p), nil }
