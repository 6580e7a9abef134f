package meteredretryable_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
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

// BenchmarkServed is a call that is served at once: through retryablehttp alone,
// with a stack put under it by hand, and with the same installed. What Install
// adds to retryablehttp is the last less the first.
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
			prepare func(*retryablehttp.Client)
		}{
			{"bare", func(*retryablehttp.Client) {}},
			{"by hand", func(c *retryablehttp.Client) {
				c.HTTPClient.Transport = stack().Transport(c.HTTPClient.Transport)
			}},
			{"installed", func(c *retryablehttp.Client) {
				if err := meteredretryable.Install(c, stack()); err != nil {
					b.Fatal(err)
				}
			}},
		} {
			b.Run(method+"/"+c.name, func(b *testing.B) {
				header := http.Header{"Content-Type": {"text/plain"}, "Date": {"x"}, "Server": {"x"}}
				client := retryablehttp.NewClient()
				client.Logger = nil
				client.HTTPClient = &http.Client{Transport: memory{header}}
				c.prepare(client)
				var payload any
				if method == "POST" {
					payload = bytes.Repeat([]byte("x"), 1<<10)
				}
				b.ReportAllocs()
				for b.Loop() {
					req, err := retryablehttp.NewRequest(method, "https://api.example.com/v1/things", payload)
					if err != nil {
						b.Fatal(err)
					}
					resp, err := client.Do(req)
					if err != nil {
						b.Fatal(err)
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
	}
}
