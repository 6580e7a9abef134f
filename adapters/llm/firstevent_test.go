package llm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// The contract holds but for one thing, which is what the layer is for: the
// beginning of an event stream is read before the caller has it. So here it is
// not told that a stream is one.
func TestFirstEventKeepsTheRoundTripperContract(t *testing.T) {
	metertest.TestRoundTripper(t, func(base http.RoundTripper) http.RoundTripper {
		rename := func(next http.RoundTripper, from, to string) http.RoundTripper {
			return passing{next, func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				if err == nil && strings.HasPrefix(resp.Header.Get("Content-Type"), from) {
					resp.Header.Set("Content-Type", to)
				}
				return resp, err
			}}
		}
		const stream, other = "text/event-stream", "text/x-event-stream"
		return rename(FirstEvent(FirstEventConfig{Reader: anthropicReader()})(rename(base, stream, other)), other, stream)
	})
}

type passing struct {
	next http.RoundTripper
	roundTrip
}

func (p passing) RoundTrip(req *http.Request) (*http.Response, error) { return p.roundTrip(req) }

func (p passing) CloseIdleConnections() {
	if c, ok := p.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// look sends a request through FirstEvent, to a base that answers with body.
func lookAt(t *testing.T, ctx context.Context, c FirstEventConfig, kind string, body io.ReadCloser, header ...string) *http.Response {
	t.Helper()
	c.Reader = anthropicReader()
	rt := FirstEvent(c)(roundTrip(func(req *http.Request) (*http.Response, error) {
		resp := answer(200, kind, header...)
		resp.Status, resp.Body, resp.ContentLength = "200 OK", body, -1
		return resp, nil
	}))
	req, _ := http.NewRequestWithContext(ctx, "POST", apiURL, nil)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestStreamsPassByteForByte(t *testing.T) {
	refusal := "event: error\ndata: " + overloaded + "\n\n"
	for _, tc := range []struct{ name, kind, body, encoding string }{
		{"content first", "text/event-stream", "event: message_start\ndata: " + opening + "\n\n" + refusal, ""},
		{"an error that is no refusal", "text/event-stream", "data: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"}}\n\n", ""},
		{"a server error", "text/event-stream", "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n", ""},
		{"only comments", "text/event-stream", ": a\n\n: b\n\n", ""},
		{"empty", "text/event-stream", "", ""},
		{"no events", "text/event-stream", "\x00\xff{}", ""},
		{"a first event that is too long", "text/event-stream", "data: \"" + strings.Repeat("x", 40<<10) + "\"\n\n" + refusal, ""},
		{"JSON", "application/json", overloaded, ""},
		{"compressed", "text/event-stream", refusal, "gzip"},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r },
			"byte by byte": iotest.OneByteReader, "error with the data": iotest.DataErrReader} {
			resp := lookAt(t, context.Background(), FirstEventConfig{}, tc.kind, io.NopCloser(wrap(strings.NewReader(tc.body))), "Content-Encoding", tc.encoding)
			got, err := io.ReadAll(resp.Body)
			if string(got) != tc.body || err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != tc.kind {
				t.Errorf("%s, %s: status %d, %v, %d bytes of %d", tc.name, how, resp.StatusCode, err, len(got), len(tc.body))
			}
		}
	}
}

func TestARefusalInAStreamIsTheProvidersOwnAnswer(t *testing.T) {
	for name, stream := range map[string]string{
		"named":            "event: error\ndata: " + overloaded + "\n\n",
		"carriage returns": "event: error\r\ndata: " + overloaded + "\r\n\r\n",
		"unfinished":       "data:" + overloaded,
		"after comments":   "\xef\xbb\xbf: x\n\n: y\nretry: 5\n\ndata: " + overloaded + "\n\n",
		"after pings":      "event: ping\ndata: {}\n\ndata: {\"type\": \"ping\"}\n\nevent: error\ndata: " + overloaded + "\n\nevent: more\n\n",
	} {
		closed := false
		resp := lookAt(t, context.Background(), FirstEventConfig{}, "text/event-stream", &closer{iotest.OneByteReader(strings.NewReader(stream)), &closed}, "Retry-After", "7")
		if resp.StatusCode != 529 || resp.Status != "529 Overloaded" || resp.Header.Get("Content-Type") != "application/json" ||
			resp.Header.Get("X-Metered-Original-Status") != "200" || resp.ContentLength != int64(len(overloaded)) {
			t.Errorf("%s: %s %v", name, resp.Status, resp.Header)
		}
		sig := anthropicReader().Read(withRequest(resp), time.Now())
		if sig.Class != retryafter.Overloaded || sig.RetryAfter != 7*time.Second {
			t.Errorf("%s: %+v", name, sig)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != overloaded || err != nil {
			t.Errorf("%s: %q, %v", name, body, err)
		}
		if resp.Body.Close(); !closed {
			t.Errorf("%s: the stream is not closed", name)
		}
	}
}

func withRequest(resp *http.Response) *http.Response {
	resp.Request, _ = http.NewRequest("POST", apiURL, nil)
	return resp
}

type closer struct {
	io.Reader
	closed *bool
}

func (c *closer) Close() error { *c.closed = true; return nil }

func TestAStreamThatBreaksOffBreaksOffForTheCaller(t *testing.T) {
	broken := errors.New("broken")
	once := iotest.ErrReader(broken)
	resp := lookAt(t, context.Background(), FirstEventConfig{}, "text/event-stream", io.NopCloser(io.MultiReader(strings.NewReader("data: x"), readerFunc(func(p []byte) (int, error) {
		r := once
		once = strings.NewReader("")
		return r.Read(p)
	}))))
	if got, err := io.ReadAll(resp.Body); string(got) != "data: x" || err != broken {
		t.Errorf("%q, %v", got, err)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A stream that does not begin is passed on after MaxWait, and nothing of it is lost.
func TestAStreamThatStallsIsNotHeldBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		wait time.Duration
		took time.Duration
	}{{"default", 0, 10 * time.Second}, {"set", time.Second, time.Second}, {"for ever", -1, time.Hour}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				go func() {
					io.WriteString(w, ": hello\n")
					time.Sleep(time.Hour)
					io.WriteString(w, "\ndata: "+overloaded+"\n\n")
					w.Close()
				}()
				start := time.Now()
				resp := lookAt(t, context.Background(), FirstEventConfig{MaxWait: tc.wait}, "text/event-stream", r)
				if took := time.Since(start); took != tc.took {
					t.Errorf("the headers took %v, want %v", took, tc.took)
				}
				body, err := io.ReadAll(resp.Body)
				want := ": hello\n\ndata: " + overloaded + "\n\n"
				if tc.wait < 0 {
					want = overloaded
				}
				if string(body) != want || err != nil {
					t.Errorf("%q, %v", body, err)
				}
				resp.Body.Close()
			})
		})
	}
}

func TestACancelledCallDoesNotWaitForTheFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r, w := io.Pipe()
		start := time.Now()
		resp := lookAt(t, ctx, FirstEventConfig{}, "text/event-stream", r)
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v", took)
		}
		w.CloseWithError(context.Cause(ctx)) // as a transport does, a moment sooner or later
		if _, err := io.ReadAll(resp.Body); err != context.DeadlineExceeded {
			t.Errorf("the body ends with %v", err)
		}
		resp.Body.Close()
	})
}

// A server that refuses within a stream may well leave the stream open.
func TestARefusalEndsWithItsEventThoughTheStreamGoesOn(t *testing.T) {
	for _, tc := range []struct {
		name string
		rest func(w *io.PipeWriter)
		took time.Duration
	}{
		{"silent for ever", func(*io.PipeWriter) {}, wasteTime},
		{"pings for ever", func(w *io.PipeWriter) {
			for err := error(nil); err == nil; time.Sleep(10 * time.Millisecond) {
				_, err = io.WriteString(w, ": ping\n\n")
			}
		}, wasteTime},
		{"sends without end", func(w *io.PipeWriter) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(w, "data: {}\n\n")
			}
		}, 0},
		{"ends at once", func(w *io.PipeWriter) { w.Close() }, 0},
		{"ends soon", func(w *io.PipeWriter) { time.Sleep(20 * time.Millisecond); w.Close() }, 20 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				go func() {
					io.WriteString(w, "data: "+overloaded+"\n\n")
					tc.rest(w)
				}()
				start := time.Now()
				resp := lookAt(t, context.Background(), FirstEventConfig{}, "text/event-stream", r)
				body, err := io.ReadAll(resp.Body)
				if took := time.Since(start); resp.StatusCode != 529 || string(body) != overloaded || err != nil || took != 0 {
					t.Errorf("%d, %q, %v after %v", resp.StatusCode, body, err, took)
				}
				resp.Body.Close()
				if took := time.Since(start); took != tc.took {
					t.Errorf("closed after %v, want %v", took, tc.took)
				}
				if _, err := w.Write([]byte("x")); err != io.ErrClosedPipe {
					t.Errorf("the stream is not closed: %v", err)
				}
				if resp.Body.Close() != nil {
					t.Error("closed twice, it fails")
				}
				time.Sleep(time.Second) // the writer sees it too
			})
		})
	}
}

// To look at it again from the start with each line takes minutes for one answer.
func TestAFirstEventOfManyLinesIsTriedForAPingOnce(t *testing.T) {
	stream := []byte(strings.Repeat("data:x\n", 16<<10) + "\n")
	if n := testing.AllocsPerRun(1, func() { firstData(stream, false) }); n > 100 {
		t.Errorf("%v allocations", n)
	}
	if event, found := firstData(stream, false); !found || len(event) != 32<<10-1 {
		t.Errorf("%d bytes, found %v", len(event), found)
	}
	if blankLine(stream[:len(stream)-1]) || blankLine([]byte("a\r\nb\nc\r")) {
		t.Error("an event is looked for before there is the end of one")
	}
}

func TestAnEventThatWasPassedOverIsNotLookedAtAgain(t *testing.T) {
	refusal := "data: " + overloaded + "\n\n"
	for _, before := range []string{"event: ping\r\ndata: {}\r\n\r\n", "data: {\"type\":\n data: \"ping\"}\n\n", "data: {\"type\": \"ping\"}\r\r", ":\n\n", "\n", "\xef\xbb\xbf\n\n"} {
		for cut := 1; cut < 9; cut++ {
			rest := before + refusal
			resp := lookAt(t, context.Background(), FirstEventConfig{}, "text/event-stream", io.NopCloser(readerFunc(func(p []byte) (n int, err error) {
				if n = copy(p, rest[:min(cut, len(rest))]); n == 0 {
					err = io.EOF
				}
				rest = rest[n:]
				return n, err
			})))
			_, found := firstData([]byte(before+refusal), true)
			body, _ := io.ReadAll(resp.Body)
			if want, _ := firstData([]byte(before+refusal), true); !found || (string(want) == overloaded) != (resp.StatusCode == 529) || resp.StatusCode == 529 && string(body) != overloaded {
				t.Errorf("%q in pieces of %d: %d %q", before, cut, resp.StatusCode, body)
			}
		}
	}
	// What has been passed over, and nothing else, is not found again.
	if _, found, passed := nextEvent([]byte(":\n\nevent: ping\ndata: x\n\ndata: y\n"), false); found || passed != 24 {
		t.Errorf("found %v, %d passed over", found, passed)
	}
}

func TestAnInvalidFirstEventSendsNothing(t *testing.T) {
	for _, c := range []FirstEventConfig{{MaxBytes: -1}, {MaxBytes: 1 << 30}, {Reader: retryafter.Reader{Hosts: map[string]string{"x": "nobody"}}}} {
		closed := false
		req, _ := http.NewRequest("POST", apiURL, &closer{strings.NewReader("x"), &closed})
		resp, err := FirstEvent(c)(roundTrip(func(*http.Request) (*http.Response, error) {
			t.Error("sent")
			return answer(200, ""), nil
		})).RoundTrip(req)
		if resp != nil || err == nil || err.Error() != c.Validate().Error() || !closed {
			t.Errorf("%v, closed %v", err, closed)
		}
	}
}

func FuzzFirstEvent(f *testing.F) {
	for _, s := range []string{"event: error\ndata: " + overloaded + "\n\n", "data: a\ndata: b\n\n", ": c\r\n\r\ndata:x\r\r", "data", "event: ping\n\n\n", "\xef\xbb\xbfdata: {}\n\n"} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		event, found := firstData(stream, true)
		// As it comes, no other event is found than in the whole.
		for i := 0; i <= len(stream); i += 1 + int(size) {
			if part, ok := firstData(stream[:i], false); ok && (!found || !bytes.Equal(part, event)) {
				t.Fatalf("%q after %d bytes, %q in the whole", part, i, event)
			}
		}
		resp := lookAt(t, context.Background(), FirstEventConfig{MaxBytes: 64}, "text/event-stream", io.NopCloser(bytes.NewReader(stream)))
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode == 200 && !bytes.Equal(body, stream) {
			t.Errorf("%q, %v", body, err)
		}
	})
}
