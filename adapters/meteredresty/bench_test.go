package meteredresty_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// memory is a base that answers at once, with as little of its own as can be.
type memory struct{ header http.Header }

func (m memory) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		io.Copy(io.Discard, req.Body)
		req.Body.Close()
	}
	return &http.Response{StatusCode: 200, Header: m.header, Body: io.NopCloser(bytes.NewReader(nil)), Request: req}, nil
}

// BenchmarkServed is a call that is served at once: through resty alone, with a
// stack put under it by hand, and with the same installed. What Install adds to
// resty is the last less the first.
func BenchmarkServed(b *testing.B) {
	limits := bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1e9), bucket.PerMinute(bucket.Tokens, 1e12)}}
	stack := func() *middleware.Stack {
		s, err := middleware.New(middleware.Config{Bucket: limits})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	for _, method := range []string{"GET", "POST"} {
		for _, c := range []struct {
			name    string
			prepare func(*resty.Client)
		}{
			{"bare", func(*resty.Client) {}},
			{"by hand", func(c *resty.Client) { c.SetTransport(stack().Transport(c.GetClient().Transport)) }},
			{"installed", func(c *resty.Client) {
				if err := meteredresty.Install(c, stack()); err != nil {
					b.Fatal(err)
				}
			}},
		} {
			for _, retries := range []int{0, 3} {
				name := method + "/" + c.name
				if retries > 0 {
					name += ", retries"
				}
				b.Run(name, func(b *testing.B) {
					header := http.Header{"Content-Type": {"text/plain"}, "Date": {"x"}, "Server": {"x"}}
					client := resty.NewWithClient(&http.Client{Transport: memory{header}}).SetLogger(silent{}).SetRetryCount(retries)
					c.prepare(client)
					payload := bytes.Repeat([]byte("x"), 1<<10)
					b.ReportAllocs()
					for b.Loop() {
						r := client.R()
						if method == "POST" {
							r.SetBody(payload)
						}
						if _, err := r.Execute(method, "https://api.example.com/v1/things"); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
