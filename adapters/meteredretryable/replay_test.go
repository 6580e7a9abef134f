package meteredretryable_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// Every send has the whole body, whatever it was made from.
func TestReplay_EverySendIsWhole(t *testing.T) {
	for name, body := range map[string]func(t *testing.T) any{
		"bytes":          func(*testing.T) any { return []byte(payload) },
		"opaque reader":  func(*testing.T) any { return opaque(payload) },
		"strings.Reader": func(*testing.T) any { return strings.NewReader(payload) },
		"bytes.Reader":   func(*testing.T) any { return bytes.NewReader([]byte(payload)) },
		"bytes.Buffer":   func(*testing.T) any { return bytes.NewBufferString(payload) },
		"ReaderFunc": func(*testing.T) any {
			return retryablehttp.ReaderFunc(func() (io.Reader, error) { return opaque(payload), nil })
		},
		"func": func(*testing.T) any {
			return func() (io.Reader, error) { return strings.NewReader(payload), nil }
		},
		"file": func(t *testing.T) any {
			name := t.TempDir() + "/body"
			if err := os.WriteFile(name, []byte(payload), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(r rig) {
				r.want(200, "ok")(r.do(r.client(4, patient(2)), r.request("PUT", body(r.T))))
				r.WantHits(7)
				r.WantSameBodies(len(payload))
			}, fault(metertest.ResetAfter), fault(metertest.ResetBefore), fault(metertest.DialError), refusal("0"),
				metertest.Reply(307, "", "Location", "/elsewhere"), refusal("0"), ok200())
		})
	}
}

// Through StandardClient retryablehttp reads an opaque body up, and gives it to
// its http.Client without a GetBody: it replays all the same, of any length.
func TestReplay_OpaqueBodiesThroughStandardClient(t *testing.T) {
	for _, size := range []int{1, 1 << 10, 2*middleware.ReplayLimit + 1} {
		body := make([]byte, size)
		rand.Read(body)
		for _, known := range []bool{false, true} {
			virtual(t, func(r rig) {
				client := r.client(4, patient(2)).StandardClient()
				req, err := http.NewRequest("PUT", apiURL, io.NopCloser(bytes.NewReader(body)))
				if err != nil {
					r.Fatal(err)
				}
				req.Body = struct{ io.ReadCloser }{req.Body}
				if known {
					req.ContentLength = int64(size)
				}
				r.want(200, "ok")(r.read(client.Do(req)))
				r.WantHits(4)
				r.WantSameBodies(size)
			}, refusal("0"), fault(metertest.ResetAfter), refusal("0"), ok200())
		}
	}
	virtual(t, func(r rig) { // nothing in it
		client := r.client(4, patient(2)).StandardClient()
		r.want(200, "ok")(r.read(client.Post(apiURL, "text/plain", opaque(""))))
		r.WantSameBodies(0)
	}, refusal("0"), ok200())
}

// A body that fails on its way is an error, not half a request.
func TestReplay_ABodyThatFails(t *testing.T) {
	broken := errors.New("broken")
	virtual(t, func(r rig) {
		body := io.MultiReader(strings.NewReader(payload), errReader{broken})
		_, err := r.client(4, patient(2)).StandardClient().Post(apiURL, "text/plain", body)
		if !errors.Is(err, broken) {
			r.Fatalf("got %v", err)
		}
		r.WantHits(0)
	})
	virtual(t, func(r rig) {
		first := true
		req := r.request("PUT", func() (io.Reader, error) {
			if first {
				first = false
				return strings.NewReader(payload), nil // for its length
			}
			return io.MultiReader(strings.NewReader("{"), errReader{broken}), nil
		})
		client := r.client(1, patient(2))
		if _, _, err := r.do(client, req); !errors.Is(err, broken) {
			r.Fatalf("got %v", err)
		}
	})
}

type errReader struct{ error }

func (r errReader) Read([]byte) (int, error) { return 0, r.error }
