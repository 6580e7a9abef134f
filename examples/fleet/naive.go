package main

import (
	"io"
	"net/http"
	"time"
)

// naiveRetry is the client that everybody writes first: what is refused goes out
// again after a fixed time, for as long as it takes. It is as patient as a client
// can be, so that it loses nothing: what it costs is refusals.
type naiveRetry struct {
	base http.RoundTripper
	wait time.Duration
}

func (n naiveRetry) RoundTrip(req *http.Request) (*http.Response, error) {
	for attempt := req; ; {
		resp, err := n.base.RoundTrip(attempt)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()

		select {
		case <-time.After(n.wait):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		attempt = req.Clone(req.Context())
		if attempt.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
}
