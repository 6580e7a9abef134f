package bench

import (
	"net/http"
	"testing"

	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// BenchmarkAdapters is what an adapter adds to a call of its host client that is
// served: over the host alone ("added"), and over the host with the same Stack put
// under it by hand ("over-hand"), where each of the host's attempts is a turn of
// its own. The second is the price of the adapter itself.
//
// The hosts are as they are used: with retries, and without a log.
func BenchmarkAdapters(b *testing.B) {
	for _, h := range hosts {
		for _, body := range []struct {
			name    string
			content []byte
		}{{"GET", nil}, {"POST", content}} {
			b.Run(h.name+"/"+body.name, func(b *testing.B) {
				var sides []side
				for _, under := range []string{"bare", "ours", "by hand"} {
					do := h.make(b, under, newMemory(plainAnswer()))
					sides = append(sides, side{under, func(n int) {
						for range n {
							if err := do(body.content); err != nil {
								b.Error(h.name, under, err)
								return
							}
						}
					}})
				}
				ns := inTurns(b, stackBlock, sides...)
				bare, ours, hand := sides[0], sides[1], sides[2]
				reportAdded(b, ns, bare, ours)
				b.ReportMetric(ns[1]/ns[0], "x/bare")
				b.ReportMetric(ns[1]-ns[2], "ns-over-hand")
				b.ReportMetric(allocsAdded(hand, ours), "allocs-over-hand")
				b.ReportMetric(ns[1]/ns[2], "x/hand")
			})
		}
	}
}

// hosts are the clients that have an adapter. make returns one over base, which
// posts its content, or gets without any: bare, with a Stack under it by hand, or
// with one installed.
var hosts = []struct {
	name string
	make func(tb testing.TB, under string, base http.RoundTripper) func(content []byte) error
}{
	{"resty", func(tb testing.TB, under string, base http.RoundTripper) func([]byte) error {
		client := newResty(base)
		switch under {
		case "by hand":
			client.SetTransport(newStack(tb).Transport(base))
		case "ours":
			installResty(tb, client, newStack(tb))
		}
		return func(content []byte) error {
			r, method := client.R(), http.MethodGet
			if content != nil {
				r, method = r.SetBody(content), http.MethodPost
			}
			_, err := r.Execute(method, endpoint)
			return err
		}
	}},
	{"retryablehttp", func(tb testing.TB, under string, base http.RoundTripper) func([]byte) error {
		client := newPlainRetryable(base)
		switch under {
		case "by hand":
			client.HTTPClient.Transport = newStack(tb).Transport(base)
		case "ours":
			installRetryable(tb, client, newStack(tb))
		}
		var scratch [2048]byte
		return func(content []byte) error {
			var raw any
			method := http.MethodGet
			if content != nil {
				raw, method = content, http.MethodPost
			}
			req, err := retryablehttp.NewRequest(method, endpoint, raw)
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			return drain(resp.Body, scratch[:])
		}
	}},
}

// newResty is resty with the retries that its documentation shows.
func newResty(base http.RoundTripper) *resty.Client {
	return resty.NewWithClient(&http.Client{Transport: base}).SetLogger(silent{}).SetRetryCount(3).
		AddRetryCondition(func(r *resty.Response, err error) bool {
			return r.StatusCode() == http.StatusTooManyRequests || r.StatusCode() >= 500
		})
}

// newPlainRetryable is retryablehttp as it comes, and hands the last answer back.
func newPlainRetryable(base http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: base}
	c.Logger = nil
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c
}

func installResty(tb testing.TB, c *resty.Client, s *middleware.Stack) {
	tb.Helper()
	if err := meteredresty.Install(c, s); err != nil {
		tb.Fatal(err)
	}
}

func installRetryable(tb testing.TB, c *retryablehttp.Client, s *middleware.Stack) {
	tb.Helper()
	if err := meteredretryable.Install(c, s); err != nil {
		tb.Fatal(err)
	}
}

type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// What an adapter allocates of a call that is served, with all the Stack below it.
func TestAdaptersAddAtMostSixAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector changes what is allocated")
	}
	for _, h := range hosts {
		for name, content := range map[string][]byte{"GET": nil, "POST": content} {
			bare := h.make(t, "bare", newMemory(plainAnswer()))
			ours := h.make(t, "ours", newMemory(plainAnswer()))
			without := testing.AllocsPerRun(1000, func() { bare(content) })
			with := testing.AllocsPerRun(1000, func() {
				if err := ours(content); err != nil {
					t.Fatal(err)
				}
			})
			if added := with - without; added > 6 {
				t.Errorf("%s %s: %v allocations added, want at most 6", h.name, name, added)
			}
		}
	}
}
