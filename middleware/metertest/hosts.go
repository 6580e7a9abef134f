package metertest

import (
	"net"
	"net/http"
)

// Hosts is a little network: providers by host, "api.example.com" or, where the
// URL has a port, "api.example.com:8443".
type Hosts map[string]*Provider

// Transport returns a new RoundTripper that reaches each provider under its host
// by a Transport of its own. Another host is a dial error of the kind
// *net.DNSError. Changes of h after the call have no effect.
func (h Hosts) Transport() http.RoundTripper {
	t := make(hostTransport, len(h))
	for host, p := range h {
		t[host] = p.Transport()
	}
	return t
}

type hostTransport map[string]http.RoundTripper

func (t hostTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	host := ""
	if req.URL != nil {
		host = req.URL.Host
	}
	if to, ok := t[host]; ok {
		return to.RoundTrip(req)
	}
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
}

// CloseIdleConnections passes the call on to each.
func (t hostTransport) CloseIdleConnections() {
	for _, to := range t {
		to.(*transport).CloseIdleConnections()
	}
}
