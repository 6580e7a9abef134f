package meteredresty_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
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
	host.EnormousDelayNeverWraps(t)
}

func TestFieldReport_A6_CeilingHoldsAndEqualityWaits(t *testing.T) {
	host.CeilingHoldsAndEqualityWaits(t)
}

func TestFieldReport_C1_NoSleepTowardsADeadline(t *testing.T) {
	host.NoSleepTowardsADeadline(t)
}

func TestFieldReport_D1_EverySendHasTheWholeBody(t *testing.T) {
	host.EverySendHasTheWholeBody(t)
	body := make([]byte, 1<<20)
	rand.Read(body)
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
			r.WantHits(c.hits)
			r.WantSameBodies(c.size)
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
			r.WantHits(4)
			r.WantSameBodies(len(payload))
		}, refusal("0"), metertest.Reply(status, "", "Location", "/elsewhere"), refusal("0"), ok200())
	}
}

func TestFieldReport_D3_AServerThatGoesAwayIsSentWholeBodies(t *testing.T) {
	host.AServerThatGoesAwayIsSentWholeBodies(t)
}

func TestFieldReport_E1_RefusedAnswersAreClosedBeforeTheWait(t *testing.T) {
	host.RefusedAnswersAreClosedBeforeTheWait(t)
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
		r.WantElapsed(3*time.Second, 3*time.Second+1)
	}, stream)
	virtual(t, func(r rig) {
		resp, err := r.eager(patient(5)).R().SetDoNotParseResponse(true).SetBody(payload).Post(apiURL)
		r.wantStatus(resp, err, 200)
		resp.RawBody().Close()
		r.WantNothingOpen()
	}, stream)
}

func TestFieldReport_F1_LayersDoNotMultiply(t *testing.T) { host.LayersDoNotMultiply(t) }

func TestFieldReport_F2_BudgetsAreApart(t *testing.T) { host.BudgetsAreApart(t) }

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
		r.WantHits(1)
	}, taken)
	virtual(t, func(r rig) { // an answer that breaks off was an answer
		if post(r, r.eager(patient(2))) == nil {
			r.Error("no error")
		}
		r.WantHits(1)
	}, metertest.Answer{Status: 200, Body: "half of it", Fault: metertest.ResetDuringBody}, ok200())
	virtual(t, func(r rig) { // a timeout tells nothing
		if err := post(r, r.eager(patient(2)).SetTimeout(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("got %v", err)
		}
		r.WantHits(1)
	}, times(-1, fault(metertest.Hang)))
	for _, never := range []metertest.Fault{metertest.DialError, metertest.ResetBefore} {
		virtual(t, func(r rig) {
			if err := post(r, r.eager(patient(2))); err != nil {
				r.Error(err)
			}
			r.WantHits(3)
		}, times(2, fault(never)), ok200())
	}
	virtual(t, func(r rig) {
		if err := post(r, r.eager(patient(2))); err != nil {
			r.Error(err)
		}
		r.WantHits(2)
	}, refusal("0"), ok200())
	virtual(t, func(r rig) {
		client := r.eager(patient(2)).SetHeader("Idempotency-Key", "k")
		if err := post(r, client); err != nil {
			r.Error(err)
		}
		r.WantHits(2)
		for _, e := range r.Provider.Ledger() {
			if e.Header.Get("Idempotency-Key") != "k" {
				r.Error("the key is not on every send")
			}
		}
	}, fault(metertest.ResetAfter), ok200())
	virtual(t, func(r rig) { // who says that he may
		c := patient(2)
		c.Retry.AllMethods = true
		post(r, r.eager(c))
		r.WantHits(4)
	}, taken)
}
