package meteredresty_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Faults that people reported against other clients, each with the case that
// shows that resty with a stack has not got it. In all of them resty is told to
// retry, and everything.

func onFailure(resp *resty.Response, err error) bool { return err != nil || resp.IsError() }

func (r rig) eager(c middleware.Config) *resty.Client {
	r.Helper()
	return r.client(3, c).AddRetryCondition(onFailure)
}

func TestFieldReport_A1_EnormousDelayNeverWraps(t *testing.T) {
	for _, n := range []string{"9223372036", "9223372037", "9223372036854775807", "99999999999999999999", "1767225600"} {
		for _, c := range []struct {
			cap  retryafter.OverCap
			hits int
			wait time.Duration
		}{{retryafter.Stop, 1, 0}, {retryafter.Clamp, 2, 30 * time.Second}} {
			virtual(t, func(r rig) {
				config := patient(5)
				config.Ladder.MaxDelay, config.Ladder.OverCap = 30*time.Second, c.cap
				resp, err := r.eager(config).R().Get(apiURL)
				if err != nil {
					r.Fatal(err)
				}
				r.wantHits(c.hits)
				r.wantElapsed(c.wait, c.wait+1)
				if d, ok := retryafter.Parse(resp.Header(), time.Now()); c.hits == 1 && (!ok || d <= 0) {
					r.Errorf("%s: the answer exposes %v, %v", n, d, ok)
				}
			}, refusal(n), ok200())
		}
	}
}

func TestFieldReport_A6_CeilingHoldsAndEqualityWaits(t *testing.T) {
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
		virtual(t, func(r rig) {
			config := patient(5)
			config.Ladder.OverCap = c.cap
			resp, err := r.eager(config).R().Get(apiURL)
			if err != nil {
				r.Fatal(err)
			}
			r.wantHits(c.hits)
			r.wantElapsed(c.wait, c.wait+1)
			if d, _ := retryafter.Parse(resp.Header(), time.Now()); c.hits == 1 && d != 61*time.Second {
				r.Errorf("the answer exposes %v", d)
			}
		}, refusal(c.header), ok200())
	}
}

func TestFieldReport_C1_NoSleepTowardsADeadline(t *testing.T) {
	virtual(t, func(r rig) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		resp, err := r.eager(patient(5)).R().SetContext(ctx).Get(apiURL)
		r.wantStatus(resp, err, 429)
		r.wantHits(1)
		r.wantElapsed(0, 1)
	}, refusal("600"), ok200())
	virtual(t, func(r rig) { // SetTimeout is a deadline too
		resp, err := r.eager(patient(5)).SetTimeout(5 * time.Second).R().Get(apiURL)
		r.wantStatus(resp, err, 429)
		r.wantHits(1)
		r.wantElapsed(0, 1)
	}, refusal("600"), ok200())
	virtual(t, func(r rig) {
		c := patient(5)
		c.Bucket = bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}, Headroom: 1}
		client := r.eager(c)
		resp, err := client.R().Get(apiURL)
		r.wantStatus(resp, err, 200)
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		_, err = client.R().SetContext(ctx).Get(apiURL)
		var wait *bucket.WaitError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &wait) || wait.Wait <= 0 {
			r.Fatalf("got %v", err)
		}
		r.wantHits(1)
		r.wantElapsed(0, 1)
	})
}

func TestFieldReport_D1_EverySendHasTheWholeBody(t *testing.T) {
	body := make([]byte, 1<<20)
	rand.Read(body)
	script := []metertest.Answer{refusal("0"), metertest.Reply(503, ""), fault(metertest.ResetAfter), ok200()}
	virtual(t, func(r rig) {
		resp, err := r.eager(patient(5)).R().SetBody(struct{ io.Reader }{bytes.NewReader(body)}).Put(apiURL)
		r.wantStatus(resp, err, 200)
		r.wantHits(4)
		r.wantSameBodies(len(body))
		if r.provider.Ledger()[0].BodySHA256 != sha256.Sum256(body) {
			r.Error("it is not what was given")
		}
	}, script...)
	// A pipe has no second life of its own, but resty reads it up before the
	// first attempt, so every one is whole.
	virtual(t, func(r rig) {
		pr, pw := io.Pipe()
		go func() { pw.Write(body); pw.Close() }()
		resp, err := r.eager(patient(5)).R().SetBody(io.NopCloser(pr)).Put(apiURL)
		r.wantStatus(resp, err, 200)
		r.wantHits(4)
		r.wantSameBodies(len(body))
	}, script...)
	// A body that a hook puts into the HTTP request, and that cannot be had
	// again: what is kept of it while it is sent is enough for the ladder; one
	// that is longer than that goes out once.
	for _, c := range []struct{ size, hits, status int }{{1 << 10, 2, 200}, {2 * middleware.ReplayLimit, 1, 429}} {
		virtual(t, func(r rig) {
			client := r.eager(patient(5)).SetPreRequestHook(func(_ *resty.Client, req *http.Request) error {
				req.Body, req.GetBody, req.ContentLength = io.NopCloser(bytes.NewReader(body[:c.size])), nil, int64(c.size)
				return nil
			})
			resp, err := client.R().Post(apiURL)
			r.wantStatus(resp, err, c.status)
			r.wantHits(c.hits)
			r.wantSameBodies(c.size)
		}, refusal("0"), ok200())
	}
}

func TestFieldReport_D3_GetBodyReachesTheBaseAndRedirectsKeepTheBody(t *testing.T) {
	virtual(t, func(r rig) {
		client := resty.NewWithClient(&http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			b, _ := io.ReadAll(req.Body)
			req.Body.Close()
			for range 2 {
				again, err := req.GetBody()
				if err != nil {
					r.Fatal(err)
				}
				if got, _ := io.ReadAll(again); string(got) != string(b) {
					r.Errorf("GetBody gave %q for %q", got, b)
				}
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
		})})
		r.install(client, patient(2))
		for _, body := range []any{payload, opaque(payload), map[string]string{"a": "b"}} {
			resp, err := client.R().SetBody(body).SetHeader("Content-Type", "application/json").Post(apiURL)
			r.wantStatus(resp, err, 200)
		}
	})
	for _, status := range []int{307, 308} {
		virtual(t, func(r rig) {
			resp, err := r.eager(patient(2)).R().SetBody(opaque(payload)).Post(apiURL)
			r.wantStatus(resp, err, 200)
			r.wantHits(4)
			r.wantSameBodies(len(payload))
		}, refusal("0"), metertest.Reply(status, "", "Location", "/elsewhere"), refusal("0"), ok200())
	}
}

func TestFieldReport_E1_RefusedAnswersAreClosedBeforeTheWait(t *testing.T) {
	synctestRig(t, metertest.Config{MaxConns: 1, Script: []metertest.Answer{
		refusal("1"), refusal("1"), {Status: 429, Body: ".", Endless: true, Every: time.Second}, refusal("1"), ok200(),
	}}, func(r rig) {
		resp, err := r.eager(patient(5)).R().Get(apiURL)
		r.wantStatus(resp, err, 200)
		r.wantHits(5)
		r.wantNothingOpen()
	})
}

func TestFieldReport_E3_StreamsOutliveTheHeaders(t *testing.T) {
	var events []metertest.Event
	for range 10 {
		events = append(events, metertest.Event{After: 300 * time.Millisecond, Data: metertest.SSE("", "x")})
	}
	stream := metertest.Answer{Status: 200, Events: events}
	virtual(t, func(r rig) {
		resp, err := r.eager(patient(5)).R().SetDoNotParseResponse(true).SetBody(payload).Post(apiURL)
		r.wantStatus(resp, err, 200)
		b, err := io.ReadAll(resp.RawBody())
		if n := strings.Count(string(b), "data:"); err != nil || n != 10 {
			r.Errorf("%d events, %v", n, err)
		}
		resp.RawBody().Close()
		r.wantElapsed(3*time.Second, 3*time.Second+1)
	}, stream)
	virtual(t, func(r rig) {
		resp, err := r.eager(patient(5)).R().SetDoNotParseResponse(true).SetBody(payload).Post(apiURL)
		r.wantStatus(resp, err, 200)
		resp.RawBody().Close()
		r.wantNothingOpen()
	}, stream)
}

func TestFieldReport_F1_LayersDoNotMultiply(t *testing.T) {
	virtual(t, func(r rig) {
		resp, err := r.eager(patient(2)).R().Get(apiURL)
		r.wantStatus(resp, err, 429)
		r.wantHits(3)
	}, times(-1, refusal("0")))
	// The same over a real connection.
	provider := metertest.New(metertest.Config{Script: []metertest.Answer{times(-1, refusal("0"))}})
	server := httptest.NewServer(provider)
	defer server.Close()
	client := resty.New().SetRetryCount(3).AddRetryCondition(onFailure).SetLogger(silent{})
	s, err := middleware.New(patient(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := meteredresty.Install(client, s); err != nil {
		t.Fatal(err)
	}
	defer client.GetClient().CloseIdleConnections()
	resp, err := client.R().SetBody(payload).Post(server.URL)
	if err != nil || resp.StatusCode() != 429 || provider.Hits() != 3 {
		t.Fatalf("got %v, %v after %d sends", resp.StatusCode(), err, provider.Hits())
	}
}

func TestFieldReport_F2_BudgetsAreApart(t *testing.T) {
	reset := fault(metertest.ResetAfter)
	for name, c := range map[string]struct{ restys, ours int }{"resty's retry": {1, -1}, "ours": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			config := patient(10)
			config.Retry.MaxRetries = c.ours
			virtual(t, func(r rig) {
				resp, err := r.client(c.restys, config).R().Get(apiURL)
				r.wantStatus(resp, err, 200)
				r.wantHits(10)
			}, reset, times(8, refusal("10")), ok200())
			virtual(t, func(r rig) {
				_, err := r.client(c.restys, config).R().Get(apiURL)
				if err == nil || middleware.Handled(nil, err) {
					r.Fatalf("got %v", err)
				}
				r.wantHits(2)
			}, reset, reset, ok200())
		})
	}
}

func TestFieldReport_F5_PaidPostIsNotSentTwice(t *testing.T) {
	post := func(r rig, client *resty.Client) error {
		_, err := client.R().SetBody(payload).Post(apiURL)
		return err
	}
	taken := times(-1, fault(metertest.ResetAfter))
	virtual(t, func(r rig) {
		if post(r, r.eager(patient(2))) == nil {
			r.Error("no error")
		}
		r.wantHits(1)
	}, taken)
	virtual(t, func(r rig) { // an answer that breaks off was an answer
		if post(r, r.eager(patient(2))) == nil {
			r.Error("no error")
		}
		r.wantHits(1)
	}, metertest.Answer{Status: 200, Body: "half of it", Fault: metertest.ResetDuringBody}, ok200())
	virtual(t, func(r rig) { // a timeout tells nothing
		if err := post(r, r.eager(patient(2)).SetTimeout(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("got %v", err)
		}
		r.wantHits(1)
	}, times(-1, fault(metertest.Hang)))
	for _, never := range []metertest.Fault{metertest.DialError, metertest.ResetBefore} {
		virtual(t, func(r rig) {
			if err := post(r, r.eager(patient(2))); err != nil {
				r.Error(err)
			}
			r.wantHits(3)
		}, times(2, fault(never)), ok200())
	}
	virtual(t, func(r rig) {
		if err := post(r, r.eager(patient(2))); err != nil {
			r.Error(err)
		}
		r.wantHits(2)
	}, refusal("0"), ok200())
	virtual(t, func(r rig) {
		client := r.eager(patient(2)).SetHeader("Idempotency-Key", "k")
		if err := post(r, client); err != nil {
			r.Error(err)
		}
		r.wantHits(2)
		for _, e := range r.provider.Ledger() {
			if e.Header.Get("Idempotency-Key") != "k" {
				r.Error("the key is not on every send")
			}
		}
	}, fault(metertest.ResetAfter), ok200())
	virtual(t, func(r rig) { // who says that he may
		c := patient(2)
		c.Retry.AllMethods = true
		post(r, r.eager(c))
		r.wantHits(4)
	}, taken)
}
