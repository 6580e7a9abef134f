package meteredretryable_test

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

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Faults that people reported against other clients, retryablehttp among them,
// each with the case that shows that retryablehttp with a stack has not got it.

func TestFieldReport_A1_EnormousDelayNeverWraps(t *testing.T) {
	for _, n := range []string{"9223372036", "9223372037", "9223372036854775807", "99999999999999999999", "1767225600"} {
		for _, c := range []struct {
			cap    retryafter.OverCap
			hits   int
			status int
			wait   time.Duration
		}{{retryafter.Stop, 1, 429, 0}, {retryafter.Clamp, 2, 200, 30 * time.Second}} {
			virtual(t, func(r rig) {
				config := patient(5)
				config.Ladder.MaxDelay, config.Ladder.OverCap = 30*time.Second, c.cap
				resp, err := r.client(4, config).Do(r.request("GET", nil))
				status, _, err := r.read(resp, err)
				if err != nil || status != c.status {
					r.Fatalf("got %v, %v", status, err)
				}
				r.wantHits(c.hits)
				r.wantElapsed(c.wait, c.wait+1)
				if d, ok := retryafter.Parse(resp.Header, time.Now()); c.hits == 1 && (!ok || d <= 0) {
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
			resp, err := r.client(4, config).Do(r.request("GET", nil))
			if _, _, err := r.read(resp, err); err != nil {
				r.Fatal(err)
			}
			r.wantHits(c.hits)
			r.wantElapsed(c.wait, c.wait+1)
			if d, _ := retryafter.Parse(resp.Header, time.Now()); c.hits == 1 && d != 61*time.Second {
				r.Errorf("the answer exposes %v", d)
			}
		}, refusal(c.header), ok200())
	}
}

func TestFieldReport_C1_NoSleepTowardsADeadline(t *testing.T) {
	for name, limit := range map[string]func(r rig, client *retryablehttp.Client) context.Context{
		"a context's deadline": func(r rig, client *retryablehttp.Client) context.Context {
			ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
			r.Cleanup(cancel)
			return ctx
		},
		"http.Client.Timeout": func(r rig, client *retryablehttp.Client) context.Context {
			client.HTTPClient.Timeout = 5 * time.Second
			return r.Context()
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				client := r.client(4, patient(5))
				r.want(429, "slow down")(r.do(client, r.request("GET", nil).WithContext(limit(r, client))))
				r.wantHits(1)
				r.wantElapsed(0, 1)
			}, refusal("600"), ok200())
			virtual(t, func(r rig) {
				c := patient(5)
				c.Bucket = bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}, Headroom: 1}
				client := r.client(4, c)
				r.want(200, "ok")(r.get(client))
				_, _, err := r.do(client, r.request("GET", nil).WithContext(limit(r, client)))
				var wait *bucket.WaitError
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &wait) || wait.Wait <= 0 {
					r.Fatalf("got %v", err)
				}
				r.wantHits(1)
				r.wantElapsed(0, 1)
			}, ok200())
		})
	}
}

func TestFieldReport_D1_EverySendHasTheWholeBody(t *testing.T) {
	body := make([]byte, 1<<20)
	rand.Read(body)
	script := []metertest.Answer{refusal("0"), metertest.Reply(503, ""), fault(metertest.ResetAfter), ok200()}
	virtual(t, func(r rig) {
		r.want(200, "ok")(r.do(r.client(4, patient(5)), r.request("PUT", bytes.NewReader(body))))
		r.wantHits(4)
		r.wantSameBodies(len(body))
		if r.provider.Ledger()[0].BodySHA256 != sha256.Sum256(body) {
			r.Error("it is not what was given")
		}
	}, script...)
	// A pipe has no second life of its own, but retryablehttp reads it up before
	// the first attempt, so every one is whole: also through StandardClient.
	pipe := func() io.ReadCloser {
		pr, pw := io.Pipe()
		go func() { pw.Write(body); pw.Close() }()
		return io.NopCloser(pr)
	}
	virtual(t, func(r rig) {
		r.want(200, "ok")(r.do(r.client(4, patient(5)), r.request("PUT", pipe())))
		r.wantHits(4)
		r.wantSameBodies(len(body))
	}, script...)
	virtual(t, func(r rig) {
		req, _ := http.NewRequest("PUT", apiURL, pipe())
		r.want(200, "ok")(r.read(r.client(4, patient(5)).StandardClient().Do(req)))
		r.wantHits(4)
		r.wantSameBodies(len(body))
	}, script...)
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
			r.wantHits(c.hits)
			r.wantSameBodies(c.size)
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
					r.wantHits(4)
					r.wantSameBodies(len(payload))
				}, refusal("0"), metertest.Reply(status, "", "Location", "/elsewhere"), refusal("0"), ok200())
			}
		})
	}
}

func TestFieldReport_E1_RefusedAnswersAreClosedBeforeTheWait(t *testing.T) {
	metered(t, metertest.Config{MaxConns: 1, Script: []metertest.Answer{
		refusal("1"), refusal("1"), {Status: 429, Body: ".", Endless: true, Every: time.Second}, refusal("1"), ok200(),
	}}, func(r rig) {
		r.want(200, "ok")(r.get(r.client(4, patient(5))))
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
	for _, method := range []string{"GET", "POST"} {
		virtual(t, func(r rig) {
			resp, err := r.client(4, patient(5)).Do(r.request(method, payload1()))
			if err != nil {
				r.Fatal(err)
			}
			r.wantElapsed(0, 1)
			b := make([]byte, 64)
			n, err := resp.Body.Read(b)
			if err != nil || string(b[:n]) != metertest.SSE("", "x") {
				r.Fatalf("read %q, %v", b[:n], err)
			}
			r.wantElapsed(300*time.Millisecond, 300*time.Millisecond+1)
			rest, err := io.ReadAll(resp.Body)
			if n := strings.Count(string(rest), "data:"); err != nil || n != 9 {
				r.Errorf("%d events, %v", n, err)
			}
			resp.Body.Close()
			r.wantElapsed(3*time.Second, 3*time.Second+1)
			r.wantNothingOpen()
		}, stream)
		virtual(t, func(r rig) {
			resp, err := r.client(4, patient(5)).Do(r.request(method, payload1()))
			if err != nil {
				r.Fatal(err)
			}
			resp.Body.Close()
			r.wantNothingOpen()
		}, stream)
	}
}

func TestFieldReport_F1_LayersDoNotMultiply(t *testing.T) {
	virtual(t, func(r rig) {
		r.want(429, "slow down")(r.get(r.client(4, patient(2))))
		r.wantHits(3)
	}, times(-1, refusal("0")))
	// The same over a real connection.
	provider := metertest.New(metertest.Config{Script: []metertest.Answer{times(-1, refusal("0"))}})
	server := httptest.NewServer(provider)
	defer server.Close()
	client := retryablehttp.NewClient()
	client.Logger = nil
	s, err := middleware.New(patient(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := meteredretryable.Install(client, s); err != nil {
		t.Fatal(err)
	}
	defer client.HTTPClient.CloseIdleConnections()
	resp, err := client.Post(server.URL, "application/json", payload1())
	if err != nil || resp.StatusCode != 429 || provider.Hits() != 3 {
		t.Fatalf("got %v, %v after %d sends", resp, err, provider.Hits())
	}
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "slow down" {
		t.Errorf("read %q, %v", b, err)
	}
	resp.Body.Close()
}

func TestFieldReport_F2_BudgetsAreApart(t *testing.T) {
	reset := fault(metertest.ResetAfter)
	for name, c := range map[string]struct{ host, ours int }{"retryablehttp's retry": {1, -1}, "ours": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			config := patient(10)
			config.Retry.MaxRetries = c.ours
			virtual(t, func(r rig) {
				r.want(200, "ok")(r.get(r.client(c.host, config)))
				r.wantHits(10)
			}, reset, times(8, refusal("10")), ok200())
			virtual(t, func(r rig) {
				_, _, err := r.get(r.client(c.host, config))
				if err == nil || middleware.Handled(nil, err) {
					r.Fatalf("got %v", err)
				}
				r.wantHits(2)
			}, reset, reset, ok200())
		})
	}
}

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
			r.wantHits(1)
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
				r.wantHits(1)
				r.wantNothingOpen()
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
			r.wantHits(1)
		}, times(-1, fault(metertest.Hang)))
	})
	t.Run("never sent", func(t *testing.T) {
		for _, f := range []metertest.Fault{metertest.DialError, metertest.ResetBefore} {
			virtual(t, func(r rig) {
				if err := post(r, r.client(4, patient(2))); err != nil {
					r.Error(err)
				}
				r.wantHits(3)
			}, times(2, fault(f)), ok200())
		}
	})
	t.Run("refused", func(t *testing.T) {
		virtual(t, func(r rig) {
			if err := post(r, r.client(4, patient(2))); err != nil {
				r.Error(err)
			}
			r.wantHits(2)
		}, refusal("0"), ok200())
	})
	t.Run("with a key", func(t *testing.T) {
		virtual(t, func(r rig) {
			req := r.request("POST", payload1())
			req.Header.Set("Idempotency-Key", "k")
			r.want(200, "ok")(r.do(r.client(4, patient(2)), req))
			r.wantHits(2)
			for _, e := range r.provider.Ledger() {
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
				r.wantHits(5)
			}, times(-1, fault(f)))
		}
	})
}
