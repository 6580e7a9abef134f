package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// ear is a Tap that writes down what it is told.
type ear struct {
	deaf    bool
	outcome middleware.Outcome
	panics  bool

	mu       sync.Mutex
	answered int
	heard    strings.Builder
	ends     []error
}

func (e *ear) Answered(*http.Response) bool {
	e.answered++
	return !e.deaf
}

func (e *ear) Heard(p []byte) {
	if e.panics {
		panic("no ear for this")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard.Write(p)
}

func (e *ear) End(err error) middleware.Outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ends = append(e.ends, err)
	return e.outcome
}

func known(in, out int64) middleware.Outcome {
	return middleware.Outcome{Cost: bucket.Cost{InputTokens: in, OutputTokens: out}, Known: true}
}

// charging is a Stack that estimates 400 tokens for each call, of 1000 a minute,
// and has e hear the answers.
func charging(e *ear) middleware.Config {
	return middleware.Config{
		Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}, Headroom: 1},
		Ladder: policy(nil),
		Pace: middleware.PaceConfig{Charge: func(*http.Request) (middleware.Charge, error) {
			return middleware.Charge{Key: "k", Cost: bucket.Cost{Requests: 1, InputTokens: 400}, Tap: e}, nil
		}},
	}
}

func left(t *testing.T, s *middleware.Stack) float64 {
	t.Helper()
	st, ok := s.Limiter().(*bucket.Local).Stats("k")
	if !ok {
		t.Fatal("no such key")
	}
	return st.Levels[0].Available
}

func TestATapHearsWhatTheCallerReadsAndSettles(t *testing.T) {
	stream := metertest.Answer{Status: 200, Events: []metertest.Event{{Data: "one,"}, {Data: "two,"}, {Data: "three"}}}
	for _, tc := range []struct {
		name  string
		ear   *ear
		read  int // bytes; -1 to the end
		heard string
		ends  []error
		left  float64
	}{
		{"to the end, more than estimated", &ear{outcome: known(800, 100)}, -1, "one,two,three", []error{io.EOF}, 100},
		{"to the end, less than estimated", &ear{outcome: known(100, 50)}, -1, "one,two,three", []error{io.EOF}, 850},
		{"nothing learned", &ear{}, -1, "one,two,three", []error{io.EOF}, 600},
		{"nonsense learned", &ear{outcome: known(-5, -1<<62)}, -1, "one,two,three", []error{io.EOF}, 1000},
		{"closed early", &ear{}, 4, "one,", []error{nil}, 600},
		{"closed early, with the cost known", &ear{outcome: known(200, 0)}, 4, "one,", []error{nil}, 800},
		{"does not want to hear", &ear{deaf: true, outcome: known(1, 1)}, -1, "", nil, 600},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtual(t, scripted(stream), func(r rig) {
				e := tc.ear
				client, stack := r.stack(charging(e))
				resp, err := client.Get(apiURL)
				if err != nil {
					r.Fatal(err)
				}
				if e.heard.Len() > 0 {
					r.Error("heard before the caller read")
				}
				if got := left(t, stack); got != 600 {
					r.Errorf("%v left while the body is open, want the estimate charged", got)
				}
				if tc.read < 0 {
					io.Copy(io.Discard, resp.Body)
				} else {
					io.ReadFull(resp.Body, make([]byte, tc.read))
				}
				resp.Body.Close()
				resp.Body.Close()
				if e.answered != 1 || e.heard.String() != tc.heard || len(e.ends) != len(tc.ends) || len(e.ends) == 1 && e.ends[0] != tc.ends[0] {
					r.Errorf("answered %d, heard %q, ended %v; want once, %q, %v", e.answered, e.heard.String(), e.ends, tc.heard, tc.ends)
				}
				if got := left(t, stack); got != tc.left {
					r.Errorf("%v left, want %v", got, tc.left)
				}
			})
		})
	}
}

func TestATapIsNotToldOfARefusal(t *testing.T) {
	virtual(t, scripted(metertest.Reply(429, "", "Retry-After", "1"), metertest.Reply(200, "ok")), func(r rig) {
		e := ear{outcome: known(1, 1)}
		client, _ := r.stack(charging(&e))
		resp, err := client.Get(apiURL)
		if err != nil {
			r.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if e.answered != 1 || e.heard.String() != "ok" || len(e.ends) != 1 {
			r.Errorf("answered %d, heard %q, ended %v", e.answered, e.heard.String(), e.ends)
		}
	})
}

func TestATapLearnsThatAnAnswerHasNoBody(t *testing.T) {
	virtual(t, scripted(metertest.Reply(204, "")), func(r rig) {
		e := ear{outcome: known(10, 0)}
		client, stack := r.stack(charging(&e))
		if _, err := client.Get(apiURL); err != nil {
			r.Fatal(err)
		}
		if len(e.ends) != 1 || left(t, stack) != 990 {
			r.Errorf("ended %v, %v left", e.ends, left(t, stack))
		}
	})
}

func TestATapThatPanicsKeepsTheEstimateAndFailsTheClose(t *testing.T) {
	virtual(t, scripted(metertest.Reply(200, "some text")), func(r rig) {
		e := ear{panics: true, outcome: known(1, 1)}
		client, stack := r.stack(charging(&e))
		resp, err := client.Get(apiURL)
		if err != nil {
			r.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if string(body) != "some text" || err != nil {
			r.Errorf("read %q, %v", body, err)
		}
		if err := resp.Body.Close(); err == nil || !strings.Contains(err.Error(), "no ear") {
			r.Errorf("Close gave %v", err)
		}
		if len(e.ends) != 0 || left(t, stack) != 600 {
			r.Errorf("ended %v, %v left", e.ends, left(t, stack))
		}
	})
}

// A body is closed while another goroutine reads it: the tap is still used by
// one at a time, and the grant settled once.
func TestATapIsEndedOnceThoughReadAndCloseMeet(t *testing.T) {
	for range 200 {
		e := ear{outcome: known(10, 0)}
		s, err := middleware.New(charging(&e))
		if err != nil {
			t.Fatal(err)
		}
		rt := s.Transport(roundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1,
				Body: io.NopCloser(strings.NewReader(strings.Repeat("x", 4096)))}, nil
		}))
		req, _ := http.NewRequest("GET", apiURL, nil)
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if _, err := resp.Body.Read(make([]byte, 16)); err != nil {
					return
				}
			}
		})
		resp.Body.Close()
		wg.Wait()
		if len(e.ends) != 1 || left(t, s) < 990 {
			t.Fatalf("ended %v, %v left", e.ends, left(t, s))
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestALateRefusalHoldsTheKeyAndTellsTheBreaker(t *testing.T) {
	late := func(c retryafter.Class, hint time.Duration) middleware.Outcome {
		return middleware.Outcome{Late: retryafter.Signal{Class: c, RetryAfter: hint, HasHint: hint > 0, Retryable: true}}
	}
	for _, tc := range []struct {
		name    string
		outcome middleware.Outcome
		held    time.Duration
		refused retryafter.Class
	}{
		{"rate limit with a hint", late(retryafter.RateLimited, 7*time.Second), 7 * time.Second, retryafter.RateLimited},
		{"overload without one", late(retryafter.Overloaded, 0), 5 * time.Second, retryafter.Overloaded},
		{"quota", late(retryafter.QuotaExhausted, 0), 0, retryafter.QuotaExhausted},
		{"server error", late(retryafter.ServerError, 0), 0, retryafter.OK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtual(t, scripted(metertest.Reply(200, "text")), func(r rig) {
				e := ear{outcome: tc.outcome}
				c := charging(&e)
				router, err := escalate.New(escalate.Config{Primary: escalate.Route{Name: "p", Quota: "k"}})
				if err != nil {
					r.Fatal(err)
				}
				c.Router = router
				client, stack := r.stack(c)
				resp, err := client.Get(apiURL)
				if err != nil {
					r.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if string(body) != "text" || err != nil {
					r.Errorf("read %q, %v", body, err)
				}
				resp.Body.Close()
				st := stack.Stats()
				if st.Keys[0].Budget.HeldFor != tc.held {
					r.Errorf("held for %v, want %v", st.Keys[0].Budget.HeldFor, tc.held)
				}
				if tc.refused != retryafter.OK && st.Keys[0].Refused[tc.refused] != 1 {
					r.Errorf("refused %v", st.Keys[0].Refused)
				}
				if st.Routes[0].Late != 1 {
					r.Errorf("the breaker counts %d late failures, want 1", st.Routes[0].Late)
				}
				if r.Provider.Hits() != 1 {
					r.Errorf("%d hits", r.Provider.Hits())
				}
			})
		})
	}
}

// An estimator reads the request's body: that is not the same as sending it, so
// a call that never left is known as such.
func TestReadingABodyToEstimateDoesNotCountAsSending(t *testing.T) {
	read := func(req *http.Request) (middleware.Charge, error) {
		body, err := req.GetBody()
		if err != nil {
			return middleware.Charge{}, err
		}
		defer body.Close()
		n, err := io.Copy(io.Discard, body)
		return middleware.Charge{Key: "k", Cost: bucket.Cost{Requests: 1, InputTokens: n}}, err
	}
	for _, tc := range []struct {
		name    string
		getBody bool
	}{{"with GetBody", true}, {"without", false}} {
		t.Run(tc.name, func(t *testing.T) {
			sends := 0
			base := roundTrip(func(req *http.Request) (*http.Response, error) {
				sends++
				req.Body.Close()
				return nil, errors.New("connection lost before the body")
			})
			synctest.Test(t, func(t *testing.T) {
				c := charging(nil)
				c.Pace.Charge = read
				s, err := middleware.New(c)
				if err != nil {
					t.Fatal(err)
				}
				req, _ := http.NewRequestWithContext(context.Background(), "POST", apiURL, strings.NewReader("0123456789"))
				if !tc.getBody {
					req.GetBody = nil
				}
				if _, err := s.Transport(base).RoundTrip(req); err == nil {
					t.Fatal("no error")
				}
				if sends != 4 {
					t.Errorf("%d sends, want the first and 3 retries: nothing was written", sends)
				}
				if got := left(t, s); got != 1000 {
					t.Errorf("%v left, want all of it back", got)
				}
			})
		})
	}
}

func TestAnEstimatorSeesNoMoreOfABodyThanIsKept(t *testing.T) {
	const size = middleware.ReplayLimit + 1<<20
	var seen int64
	var fault error
	c := charging(nil)
	c.Pace.Charge = nil
	c.Pace.Cost = func(req *http.Request) (bucket.Cost, error) {
		body, err := req.GetBody()
		if err != nil {
			return bucket.Cost{}, err
		}
		defer body.Close()
		seen, fault = io.Copy(io.Discard, body)
		return bucket.Cost{Requests: 1}, nil
	}
	s, err := middleware.New(c)
	if err != nil {
		t.Fatal(err)
	}
	var sent int64
	req, _ := http.NewRequest("POST", apiURL, io.LimitReader(zeros{}, size))
	resp, err := s.Transport(roundTrip(func(req *http.Request) (*http.Response, error) {
		sent, _ = io.Copy(io.Discard, req.Body)
		req.Body.Close()
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
	})).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if seen != middleware.ReplayLimit || fault == nil {
		t.Errorf("the estimator saw %d bytes, %v", seen, fault)
	}
	if sent != size {
		t.Errorf("%d bytes sent, want %d", sent, size)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestCostAndChargeExcludeEachOther(t *testing.T) {
	c := charging(nil)
	c.Pace.Cost = func(*http.Request) (bucket.Cost, error) { return bucket.Cost{}, nil }
	if _, err := middleware.New(c); err == nil {
		t.Error("both are accepted")
	}
}
