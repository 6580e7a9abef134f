package testrig

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A Host makes a client with a retry loop of its own: over hc, with s installed,
// and told to retry whatever fails, so many times. It returns a function that
// makes a call of the client; the answer comes with its body, which is read up and
// closed. What is sent is a []byte, an io.Reader, or nil.
//
// Its methods are faults that people reported against other clients, each with
// the case that shows that a host with a Stack has not got it. Proved able to fail:
// those about delays, deadlines, bodies and multiplying by a host with the Stack put
// under it by hand, the one about budgets by a host without.
type Host func(t testing.TB, hc *http.Client, s *middleware.Stack, retries int) Send

// Send makes a call.
type Send func(ctx context.Context, method, url string, body any) (resp *http.Response, answer string, err error)

// retries is what hosts are told where it must not matter.
const retries = 4

// eager is a host over the provider, with a stack of this configuration.
func (h Host) eager(r Rig, c middleware.Config) Send {
	r.Helper()
	return h(r, r.Client(), Stack(r, c), retries)
}

// want checks the outcome of a call: its status, and the body of its answer.
func (r Rig) want(status int, answer string) func(*http.Response, string, error) {
	r.Helper()
	return func(resp *http.Response, got string, err error) {
		r.Helper()
		if err != nil || resp.StatusCode != status || got != answer {
			r.Fatalf("got %v, %q, %v; want %d %q", resp, got, err, status, answer)
		}
	}
}

// script is a provider that gives these answers first.
func script(answers ...metertest.Answer) metertest.Config { return metertest.Config{Script: answers} }

// EnormousDelayNeverWraps is for delays that overflow a time.Duration, or nearly.
func (h Host) EnormousDelayNeverWraps(t *testing.T) {
	for _, n := range []string{"9223372036", "9223372037", "9223372036854775807", "99999999999999999999", "1767225600"} {
		for _, c := range []struct {
			cap    retryafter.OverCap
			hits   int
			status int
			wait   time.Duration
		}{{retryafter.Stop, 1, 429, 0}, {retryafter.Clamp, 2, 200, 30 * time.Second}} {
			Run(t, script(Refusal(n), Served()), func(r Rig) {
				config := Patient(5)
				config.Ladder.MaxDelay, config.Ladder.OverCap = 30*time.Second, c.cap
				resp, _, err := h.eager(r, config)(r.Context(), "GET", URL, nil)
				if err != nil || resp.StatusCode != c.status {
					r.Fatalf("got %v, %v", resp, err)
				}
				r.WantHits(c.hits)
				r.WantElapsed(c.wait, c.wait+1)
				if d, ok := retryafter.Parse(resp.Header, time.Now()); c.hits == 1 && (!ok || d <= 0) {
					r.Errorf("%s: the answer exposes %v, %v", n, d, ok)
				}
			})
		}
	}
}

// CeilingHoldsAndEqualityWaits is for delays about the longest that is waited.
func (h Host) CeilingHoldsAndEqualityWaits(t *testing.T) {
	for _, c := range []struct {
		header string
		cap    retryafter.OverCap
		hits   int
		wait   time.Duration
	}{
		{"60", retryafter.Clamp, 2, 60 * time.Second},
		{"60", retryafter.Stop, 2, 60 * time.Second},
		{"61", retryafter.Stop, 1, 0},
		{"61", retryafter.Clamp, 2, 60 * time.Second},
		{"0", retryafter.Clamp, 2, 0},
	} {
		Run(t, script(Refusal(c.header), Served()), func(r Rig) {
			config := Patient(5)
			config.Ladder.OverCap = c.cap
			resp, _, err := h.eager(r, config)(r.Context(), "GET", URL, nil)
			if err != nil {
				r.Fatal(err)
			}
			r.WantHits(c.hits)
			r.WantElapsed(c.wait, c.wait+1)
			if d, _ := retryafter.Parse(resp.Header, time.Now()); c.hits == 1 && d != 61*time.Second {
				r.Errorf("the answer exposes %v", d)
			}
		})
	}
}

// NoSleepTowardsADeadline is for waits that would end after the caller has gone:
// they are not begun.
func (h Host) NoSleepTowardsADeadline(t *testing.T) {
	for name, limit := range map[string]func(r Rig, hc *http.Client) context.Context{
		"a context's deadline": func(r Rig, hc *http.Client) context.Context {
			ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
			r.Cleanup(cancel)
			return ctx
		},
		"http.Client.Timeout": func(r Rig, hc *http.Client) context.Context {
			hc.Timeout = 5 * time.Second
			return r.Context()
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, script(Refusal("600"), Served()), func(r Rig) {
				hc := r.Client()
				send := h(r, hc, Stack(r, Patient(5)), retries)
				r.want(429, "slow down")(send(limit(r, hc), "GET", URL, nil))
				r.WantHits(1)
				r.WantElapsed(0, 1)
			})
			Run(t, script(Served()), func(r Rig) {
				c := Patient(5)
				c.Bucket = bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}, Headroom: 1}
				hc := r.Client()
				send := h(r, hc, Stack(r, c), retries)
				r.want(200, "ok")(send(r.Context(), "GET", URL, nil))
				_, _, err := send(limit(r, hc), "GET", URL, nil)
				var wait *bucket.WaitError
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &wait) || wait.Wait <= 0 {
					r.Fatalf("got %v", err)
				}
				r.WantHits(1)
				r.WantElapsed(0, 1)
			})
		})
	}
}

// EverySendHasTheWholeBody is for bodies that are readers. A pipe has no second
// life of its own, but hosts read it up before the first attempt.
func (h Host) EverySendHasTheWholeBody(t *testing.T) {
	body := make([]byte, 1<<20)
	rand.Read(body)
	for name, reader := range map[string]func() io.Reader{
		"opaque": func() io.Reader { return Opaque(string(body)) },
		"bytes":  func() io.Reader { return bytes.NewReader(body) },
		"pipe": func() io.Reader {
			pr, pw := io.Pipe()
			go func() { pw.Write(body); pw.Close() }()
			return io.NopCloser(pr)
		},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, script(Refusal("0"), metertest.Reply(503, ""), Fault(metertest.ResetAfter), Served()), func(r Rig) {
				r.want(200, "ok")(h.eager(r, Patient(5))(r.Context(), "PUT", URL, reader()))
				r.WantHits(4)
				r.WantSameBodies(len(body))
				if r.Provider.Ledger()[0].BodySHA256 != sha256.Sum256(body) {
					r.Error("it is not what was given")
				}
			})
		})
	}
}

// AServerThatGoesAwayIsSentWholeBodies is for a real HTTP/2 server that goes away
// (GOAWAY) after each request's body: every call is one send, with its whole body,
// on a connection of its own.
func (h Host) AServerThatGoesAwayIsSentWholeBodies(t *testing.T) {
	var hits, streams atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		hits.Add(1)
		streams.Add(int32(req.ProtoMajor) / 2)
		b, _ := io.ReadAll(req.Body)
		w.Header().Set("Connection", "close") // over HTTP/2: GOAWAY
		w.Write(b)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	const payload = `{"model":"m","messages":[]}`
	send := h(t, server.Client(), Stack(t, middleware.Config{}), retries)
	for i, body := range []any{[]byte(payload), Opaque(payload), []byte(payload)} {
		resp, got, err := send(t.Context(), "POST", server.URL, body)
		if err != nil || resp.StatusCode != 200 || got != payload {
			t.Errorf("call %d: %v, %d bytes, %v", i, resp, len(got), err)
		}
	}
	if hits.Load() != 3 || streams.Load() != 3 {
		t.Errorf("%d requests, %d of them over HTTP/2, for 3 calls", hits.Load(), streams.Load())
	}
}

// RefusedAnswersAreClosedBeforeTheWait is for a single connection, which the next
// send must find free.
func (h Host) RefusedAnswersAreClosedBeforeTheWait(t *testing.T) {
	endless := metertest.Answer{Status: 429, Body: ".", Endless: true, Every: time.Second}
	c := script(Refusal("1"), Refusal("1"), endless, Refusal("1"), Served())
	c.MaxConns = 1
	Run(t, c, func(r Rig) {
		r.want(200, "ok")(h.eager(r, Patient(5))(r.Context(), "GET", URL, nil))
		r.WantHits(5)
		r.WantNothingOpen()
	})
}

// LayersDoNotMultiply is for a server that refuses for ever: it sees the ladder's
// sends, not the host's times those; over a real connection as well.
func (h Host) LayersDoNotMultiply(t *testing.T) {
	refuses := script(Times(-1, Refusal("0")))
	Run(t, refuses, func(r Rig) {
		r.want(429, "slow down")(h.eager(r, Patient(2))(r.Context(), "GET", URL, nil))
		r.WantHits(3)
	})
	provider := metertest.New(refuses)
	server := httptest.NewServer(provider)
	defer server.Close()
	resp, got, err := h(t, server.Client(), Stack(t, Patient(2)), retries)(t.Context(), "POST", server.URL, []byte("{}"))
	if err != nil || resp.StatusCode != 429 || got != "slow down" || provider.Hits() != 3 {
		t.Fatalf("got %v, %q, %v after %d sends", resp, got, err, provider.Hits())
	}
}

// BudgetsAreApart is for a lost connection before many refusals: one transport
// retry, the host's or the Stack's, is enough for it, and is not enough for two.
func (h Host) BudgetsAreApart(t *testing.T) {
	reset := Fault(metertest.ResetAfter)
	for name, c := range map[string]struct{ hosts, ours int }{"the host's retry": {1, -1}, "ours": {0, 1}} {
		config := Patient(10)
		config.Retry.MaxRetries = c.ours
		t.Run(name, func(t *testing.T) {
			Run(t, script(reset, Times(8, Refusal("10")), Served()), func(r Rig) {
				send := h(r, r.Client(), Stack(r, config), c.hosts)
				r.want(200, "ok")(send(r.Context(), "GET", URL, nil))
				r.WantHits(10)
			})
			Run(t, script(reset, reset, Served()), func(r Rig) {
				send := h(r, r.Client(), Stack(r, config), c.hosts)
				_, _, err := send(r.Context(), "GET", URL, nil)
				if err == nil || middleware.Handled(nil, err) {
					r.Fatalf("got %v", err)
				}
				r.WantHits(2)
			})
		})
	}
}
