package meteredresty_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
	"github.com/meteredhttp/meteredhttp/internal/testrig"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

const payload = `{"model":"m","messages":[]}`

// Every attempt of resty's has the whole body, whatever it is read from.
func TestReplay_EveryAttemptIsWhole(t *testing.T) {
	for name, body := range map[string]func(t *testing.T) any{
		"opaque reader":  func(*testing.T) any { return opaque(payload) },
		"strings.Reader": func(*testing.T) any { return strings.NewReader(payload) },
		"bytes.Reader":   func(*testing.T) any { return bytes.NewReader([]byte(payload)) },
		"bytes.Buffer":   func(*testing.T) any { return bytes.NewBufferString(payload) },
		"file":           func(t *testing.T) any { return openFile(t, payload) },
		"string":         func(*testing.T) any { return payload },
		"bytes":          func(*testing.T) any { return []byte(payload) },
		"incomparable":   func(*testing.T) any { return incomparable{strings.NewReader(payload), nil} },
	} {
		for _, length := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				virtual(t, func(r rig) {
					b := body(r.T)
					seen := false
					client := r.client(3, patient(2)).AddRetryHook(func(resp *resty.Response, _ error) {
						if reader, ok := b.(io.Reader); ok && !length {
							if _, ok := reader.(incomparable); !ok && resp.Request.Body != reader {
								r.Errorf("a hook finds %T for %T", resp.Request.Body, reader)
							}
							seen = true
						}
					})
					req := client.R().SetBody(b).SetContentLength(length)
					resp, err := req.Put(apiURL)
					r.wantStatus(resp, err, 200)
					r.WantHits(6)
					r.WantSameBodies(len(payload))
					if _, ok := b.(io.Reader); ok && !length {
						if _, ok := b.(incomparable); !ok && req.Body != b {
							r.Errorf("the Request has %T for a body now", req.Body)
						}
						if !seen {
							r.Error("no retry hook ran")
						}
					}
					first := r.Provider.Ledger()[0].ContentLength
					for _, e := range r.Provider.Ledger() {
						if e.ContentLength != first {
							r.Errorf("announced %d bytes, then %d", first, e.ContentLength)
						}
					}
				}, fault(metertest.ResetAfter), fault(metertest.ResetBefore), fault(metertest.DialError), refusal("0"), refusal("0"), ok200())
			})
		}
	}
}

type incomparable struct {
	io.Reader
	_ []byte
}

func openFile(t *testing.T, content string) *os.File {
	t.Helper()
	name := t.TempDir() + "/body"
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// So has a multipart body, whose parts resty reads anew for each attempt, and
// with the boundary that it was sent with.
func TestReplay_MultipartIsWhole(t *testing.T) {
	for name, form := range map[string]func(*resty.Request){
		"reader":          func(r *resty.Request) { r.SetFileReader("f", "name", opaque(payload)) },
		"rewound reader":  func(r *resty.Request) { r.SetFileReader("f", "name", strings.NewReader(payload)) },
		"field":           func(r *resty.Request) { r.SetMultipartField("f", "name", "text/plain", opaque(payload)) },
		"nothing to read": func(r *resty.Request) { r.SetMultipartFormData(map[string]string{"f": payload}) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				client := r.client(3, patient(2))
				client.RetryResetReaders = name == "rewound reader"
				req := client.R()
				form(req)
				resp, err := req.Put(apiURL)
				r.wantStatus(resp, err, 200)
				r.WantHits(4)
				for i, e := range r.Provider.Ledger() {
					if first := r.Provider.Ledger()[0]; e.BodyLen != first.BodyLen || e.ContentLength != first.ContentLength {
						r.Errorf("send %d had %d bytes, the first %d", i+1, e.BodyLen, first.BodyLen)
					}
				}
			}, fault(metertest.ResetAfter), metertest.Reply(307, "", "Location", "/elsewhere"), fault(metertest.ResetAfter), ok200())
		})
	}
}

// A body that a hook changes between attempts is the hook's business.
func TestReplay_HooksMayChangeTheBody(t *testing.T) {
	for name, hook := range map[string]func(r *resty.Request){
		"another reader":  func(r *resty.Request) { r.SetBody(opaque("second")) },
		"another value":   func(r *resty.Request) { r.SetBody("second") },
		"the same buffer": func(r *resty.Request) { r.Body.(*bytes.Buffer).WriteString("second" + payload) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				client := r.client(1, patient(2)).AddRetryHook(func(resp *resty.Response, _ error) { hook(resp.Request) })
				resp, err := client.R().SetBody(bytes.NewBufferString(payload)).Put(apiURL)
				r.wantStatus(resp, err, 200)
				if n := r.Provider.Ledger()[1].BodyLen; n != int64(len("second")) && n != int64(len("second")+len(payload)) {
					r.Errorf("the second attempt had %d bytes", n)
				}
			}, fault(metertest.ResetAfter), ok200())
		})
	}
}

// Without Install a reader's second attempt is empty: what the tests above are
// there for.
func TestReplay_BareRestyForComparison(t *testing.T) {
	virtual(t, func(r rig) {
		client := r.bare(1)
		client.SetTransport(testrig.Stack(r, middleware.Config{Retry: middleware.RetryPolicy{MaxRetries: -1}}).Transport(client.GetClient().Transport))
		client.R().SetBody(opaque(payload)).Put(apiURL)
		r.WantHits(2)
		if n := r.Provider.Ledger()[1].BodyLen; n != 0 {
			r.Errorf("the second attempt had %d bytes", n)
		}
	}, fault(metertest.ResetAfter), ok200())
}

// What one call sent is nothing to the next call of the same Request, also where
// the hooks of Install are there twice.
func TestReplay_AReusedRequestSendsWhatItHasNow(t *testing.T) {
	virtual(t, func(r rig) {
		parent := r.bare(3)
		s := r.install(parent, patient(2))
		client := parent.Clone()
		if err := meteredresty.Install(client, s); err != nil {
			r.Fatal(err)
		}
		buf := bytes.NewBufferString(payload)
		req := client.R().SetBody(buf)
		for _, want := range []string{payload, "short"} {
			buf.Reset()
			buf.WriteString(want)
			resp, err := req.Put(apiURL)
			r.wantStatus(resp, err, 200)
			ledger := r.Provider.Ledger()
			if got := ledger[len(ledger)-1].BodyLen; got != int64(len(want)) {
				r.Errorf("sent %d bytes, want %d", got, len(want))
			}
		}
	})
}
