package meteredretryable_test

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

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// Faults that people reported against other clients, retryablehttp among them,
// each with the case that shows that retryablehttp with a stack has not got it.

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
	virtual(t, func(r rig) {
		req, _ := http.NewRequest("PUT", apiURL, opaque(string(body)))
		r.want(200, "ok")(r.read(r.client(4, patient(5)).StandardClient().Do(req)))
		r.WantHits(4)
		r.WantSameBodies(len(body))
	}, refusal("0"), metertest.Reply(503, ""), fault(metertest.ResetAfter), ok200())
	// A body that a hook puts into the request, and that cannot be had again:
	// what is kept of it while it is sent is enough for the ladder; one that is
	// longer than that goes out once.
	for _, c := range []struct{ size, hits, status int }{{1 << 10, 2, 200}, {2 * middleware.ReplayLimit, 1, 429}} {
		virtual(t, func(r rig) {
			client := r.client(4, patient(5))
			client.RequestLogHook = func(_ retryablehttp.Logger, req *http.Request, _ int) {
				req.Body, req.GetBody = struct{ io.ReadCloser }{io.NopCloser(bytes.NewReader(body[:c.size]))}, nil
				req.ContentLength = int64(c.size)
			}
			status, _, err := r.do(client, r.request("POST", nil))
			if err != nil || status != c.status {
				r.Fatalf("got %v, %v", status, err)
			}
			r.WantHits(c.hits)
			r.WantSameBodies(c.size)
		}, refusal("0"), ok200())
	}
}

func TestFieldReport_D3_GetBodyReachesTheBaseAndRedirectsKeepTheBody(t *testing.T) {
	bodies := map[string]func(r rig, client *retryablehttp.Client) (*http.Response, error){
		"bytes": func(r rig, client *retryablehttp.Client) (*http.Response, error) {
			return client.Do(r.request("POST", payload1()))
		},
		"opaque": func(r rig, client *retryablehttp.Client) (*http.Response, error) {
			return client.Do(r.request("POST", opaque(payload)))
		},
		"StandardClient": func(r rig, client *retryablehttp.Client) (*http.Response, error) {
			return client.StandardClient().Post(apiURL, "application/json", strings.NewReader(payload))
		},
	}
	opaqueStandard := func(r rig, client *retryablehttp.Client) (*http.Response, error) {
		return client.StandardClient().Post(apiURL, "application/json", opaque(payload))
	}
	base := func(r rig, do func(r rig, client *retryablehttp.Client) (*http.Response, error)) {
		client := r.bare(4)
		client.HTTPClient.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
			b, _ := io.ReadAll(req.Body)
			req.Body.Close()
			for range 2 {
				again, err := req.GetBody()
				if err != nil {
					r.Fatal(err)
				}
				if got, _ := io.ReadAll(again); string(b) != payload || string(got) != payload {
					r.Errorf("GetBody gave %q for %q", got, b)
				}
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}, Request: req}, nil
		})
		r.install(client, patient(2))
		r.want(200, "")(r.read(do(r, client)))
	}
	virtual(t, func(r rig) { base(r, opaqueStandard) })
	for name, do := range bodies {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) { base(r, do) })
			for _, status := range []int{307, 308} {
				virtual(t, func(r rig) {
					r.want(200, "ok")(r.read(do(r, r.client(4, patient(2)))))
					r.WantHits(4)
					r.WantSameBodies(len(payload))
				}, refusal("0"), metertest.Reply(status, "", "Location", "/elsewhere"), refusal("0"), ok200())
			}
		})
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
	for _, method := range []string{"GET", "POST"} {
		virtual(t, func(r rig) {
			resp, err := r.client(4, patient(5)).Do(r.request(method, payload1()))
			if err != nil {
				r.Fatal(err)
			}
			r.WantElapsed(0, 1)
			b := make([]byte, 64)
			n, err := resp.Body.Read(b)
			if err != nil || string(b[:n]) != metertest.SSE("", "x") {
				r.Fatalf("read %q, %v", b[:n], err)
			}
			r.WantElapsed(300*time.Millisecond, 300*time.Millisecond+1)
			rest, err := io.ReadAll(resp.Body)
			if n := strings.Count(string(rest), "data:"); err != nil || n != 9 {
				r.Errorf("%d events, %v", n, err)
			}
			resp.Body.Close()
			r.WantElapsed(3*time.Second, 3*time.Second+1)
			r.WantNothingOpen()
		}, stream)
		virtual(t, func(r rig) {
			resp, err := r.client(4, patient(5)).Do(r.request(method, payload1()))
			if err != nil {
				r.Fatal(err)
			}
			resp.Body.Close()
			r.WantNothingOpen()
		}, stream)
	}
}

func TestFieldReport_F1_LayersDoNotMultiply(t *testing.T) { host.LayersDoNotMultiply(t) }

func TestFieldReport_F2_BudgetsAreApart(t *testing.T) { host.BudgetsAreApart(t) }

func TestFieldReport_F5_PaidPostIsNotSentTwice(t *testing.T) {
	post := func(r rig, client *retryablehttp.Client) (err error) {
		_, _, err = r.do(client, r.request("POST", payload1()))
		return err
	}
	taken := times(-1, fault(metertest.ResetAfter))
	t.Run("taken", func(t *testing.T) {
		virtual(t, func(r rig) {
			err := post(r, r.client(4, patient(2)))
			if err == nil || !strings.Contains(err.Error(), "giving up after 1 attempt(s)") {
				r.Errorf("got %v", err)
			}
			r.WantHits(1)
		}, taken)
	})
	t.Run("an answer that breaks off was an answer", func(t *testing.T) {
		for _, timeout := range []time.Duration{0, time.Hour} {
			virtual(t, func(r rig) {
				req := r.request("POST", payload1())
				req.SetResponseHandler(func(resp *http.Response) error {
					_, err := io.ReadAll(resp.Body)
					return err
				})
				client := r.client(4, patient(2))
				client.HTTPClient.Timeout = timeout
				if _, _, err := r.do(client, req); err == nil {
					r.Error("no error")
				}
				r.WantHits(1)
				r.WantNothingOpen()
			}, metertest.Answer{Status: 200, Body: "half of it", Fault: metertest.ResetDuringBody}, ok200())
		}
	})
	t.Run("a timeout tells nothing", func(t *testing.T) {
		virtual(t, func(r rig) {
			client := r.client(4, patient(2))
			client.HTTPClient.Timeout = time.Second
			err := post(r, client)
			if !errors.Is(err, context.DeadlineExceeded) {
				r.Errorf("got %v", err)
			}
			r.WantHits(1)
		}, times(-1, fault(metertest.Hang)))
	})
	t.Run("never sent", func(t *testing.T) {
		for _, f := range []metertest.Fault{metertest.DialError, metertest.ResetBefore} {
			virtual(t, func(r rig) {
				if err := post(r, r.client(4, patient(2))); err != nil {
					r.Error(err)
				}
				r.WantHits(3)
			}, times(2, fault(f)), ok200())
		}
	})
	t.Run("refused", func(t *testing.T) {
		virtual(t, func(r rig) {
			if err := post(r, r.client(4, patient(2))); err != nil {
				r.Error(err)
			}
			r.WantHits(2)
		}, refusal("0"), ok200())
	})
	t.Run("with a key", func(t *testing.T) {
		virtual(t, func(r rig) {
			req := r.request("POST", payload1())
			req.Header.Set("Idempotency-Key", "k")
			r.want(200, "ok")(r.do(r.client(4, patient(2)), req))
			r.WantHits(2)
			for _, e := range r.Provider.Ledger() {
				if e.Header.Get("Idempotency-Key") != "k" {
					r.Error("the key is not on every send")
				}
			}
		}, fault(metertest.ResetAfter), ok200())
	})
	t.Run("who says that he may", func(t *testing.T) {
		for _, f := range []metertest.Fault{metertest.ResetAfter, metertest.Hang} {
			virtual(t, func(r rig) {
				c := patient(2)
				c.Retry.AllMethods = true
				client := r.client(4, c)
				client.HTTPClient.Timeout = time.Second
				post(r, client)
				r.WantHits(5)
			}, times(-1, fault(f)))
		}
	})
}
