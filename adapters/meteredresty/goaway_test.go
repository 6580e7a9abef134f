package meteredresty_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
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
	client := resty.NewWithClient(server.Client())
	if err := meteredresty.Install(client, stack); err != nil {
		t.Fatal(err)
	}
	for i, body := range []any{payload, opaque(payload), payload} {
		resp, err := client.R().SetBody(body).Post(server.URL)
		if err != nil || resp.StatusCode() != 200 || resp.String() != payload {
			t.Errorf("call %d: %v, %d bytes, %v", i, resp.Status(), len(resp.String()), err)
		}
	}
	if hits.Load() != 3 || streams.Load() != 3 {
		t.Errorf("%d requests, %d of them over HTTP/2, for 3 calls", hits.Load(), streams.Load())
	}
}
