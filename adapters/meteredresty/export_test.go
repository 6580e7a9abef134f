package meteredresty

import (
	"net/http"

	"github.com/go-resty/resty/v2"
)

// WithinCalls is the client's transport, with every request sent as a call of
// resty's would send it.
func WithinCalls(client *resty.Client) http.RoundTripper {
	return withinCalls{client, client.GetClient().Transport.(*transport)}
}

type withinCalls struct {
	client *resty.Client
	*transport
}

func (w withinCalls) RoundTrip(req *http.Request) (*http.Response, error) {
	r := w.client.R().SetContext(req.Context())
	if err := w.begin(w.client, r); err != nil {
		return nil, err
	}
	defer finish(r)
	resp, err := w.transport.RoundTrip(req.WithContext(r.Context()))
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}
