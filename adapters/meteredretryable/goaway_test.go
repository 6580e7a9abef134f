package meteredretryable_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// A real HTTP/2 server that goes away (GOAWAY) after each request's body: every
// call is one send, with its whole body, on a connection of its own.
func TestFieldReport_D3_AServerThatGoesAwayIsSentWholeBodies(t *testing.T) {
	var hits, streams atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		hits.Add(1)
		streams.Add(int32(req.ProtoMajor) / 2)
		b, _ := io.ReadAll(req.Body)
		w.Header().Set("Connection", "close") // over HTTP/2: GOAWAY
		w.Write(b)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	stack, err := middleware.New(middleware.Config{})
	if err != nil {
		t.Fatal(err)
	}
	client := retryablehttp.NewClient()
	client.Logger = nil
	client.HTTPClient = server.Client()
	if err := meteredretryable.Install(client, stack); err != nil {
		t.Fatal(err)
	}
	for i, body := range []any{[]byte(payload), opaque(payload), []byte(payload)} {
		resp, err := client.Post(server.URL, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || string(got) != payload {
			t.Errorf("call %d: %v, %d bytes, %v", i, resp.Status, len(got), err)
		}
	}
	if hits.Load() != 3 || streams.Load() != 3 {
		t.Errorf("%d requests, %d of them over HTTP/2, for 3 calls", hits.Load(), streams.Load())
	}
}
