package retryafter

import (
	"net/http"
	"time"
)

// BodyLimit is how much of an error body is looked at, in bytes.
const BodyLimit = 64 << 10

// Reader reads answers. The zero Reader knows the providers of the package's table.
type Reader struct {
	// Providers are looked at before the table; a Provider with the name of one
	// in the table replaces it.
	Providers []Provider
	// Hosts says which provider a host speaks, by Provider.Name. Keys are as
	// Provider.Hosts, with a port where only that port is meant.
	Hosts map[string]string
}

// Validate ...
func (r Reader) Validate() error { return nil }

func (r Reader) For(host string) *Source { return &Source{} }

func (r Reader) Classify(host string, status int, h http.Header, body []byte, now time.Time) Signal {
	return r.For(host).Classify(status, h, body, now)
}

func (r Reader) Read(resp *http.Response, now time.Time) Signal { return Signal{} }

func (r Reader) Windows(dst []Window, host string, h http.Header, now time.Time) []Window {
	return r.For(host).Windows(dst, h, now)
}

func Classify(host string, status int, h http.Header, body []byte, now time.Time) Signal {
	return Reader{}.Classify(host, status, h, body, now)
}

func Read(resp *http.Response, now time.Time) Signal { return Reader{}.Read(resp, now) }

// Source is a Reader resolved for one host.
type Source struct{}

func (s *Source) Classify(status int, h http.Header, body []byte, now time.Time) Signal {
	return Signal{}
}
func (s *Source) Read(resp *http.Response, now time.Time) Signal { return Signal{} }
func (s *Source) Windows(dst []Window, h http.Header, now time.Time) []Window {
	return dst
}

func Parse(h http.Header, now time.Time) (time.Duration, bool) { return 0, false }
func Detect(err error) (Signal, bool)                          { return Signal{}, false }
