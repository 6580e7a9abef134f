package metertest

import (
	"net/http"
	"testing"
	"time"
)

// Provider is a metered API to test against.
type Provider struct{}

// Entry is one arrival.
type Entry struct {
	At            time.Time
	Admitted      bool
	Status        int
	Fault         Fault
	Tokens        int64
	Method        string
	Host          string
	Path          string
	Model         string
	Header        http.Header
	BodySHA256    [32]byte
	BodyLen       int64
	ContentLength int64
}

// Match selects requests.
type Match struct{ Host, Path, Model string }

// New returns a provider.
func New(c Config) *Provider                                         { return &Provider{} }
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {}
func (p *Provider) Transport() http.RoundTripper                     { return nil }
func (p *Provider) Script(answers ...Answer)                         {}
func (p *Provider) ScriptFor(m Match, answers ...Answer)             {}
func (p *Provider) ClearScript()                                     {}
func (p *Provider) SetStatus(code int)                               {}
func (p *Provider) SetLimits(requests, tokens int64)                 {}
func (p *Provider) SetBursts(requests, tokens int64)                 {}
func (p *Provider) Ledger() []Entry                                  { return nil }
func (p *Provider) Hits() int                                        { return 0 }
func (p *Provider) Served() int                                      { return 0 }
func (p *Provider) Refused() int                                     { return 0 }
func (p *Provider) Tokens() int64                                    { return 0 }
func (p *Provider) OpenBodies() int                                  { return 0 }
func (p *Provider) ConnsInUse() int                                  { return 0 }
func (p *Provider) Dials() int                                       { return 0 }
func (p *Provider) Neighbour() (served, refused int)                 { return 0, 0 }

// Hosts routes by host.
type Hosts map[string]*Provider

// Transport routes.
func (h Hosts) Transport() http.RoundTripper { return nil }

// TestRoundTripper is the contract suite.
func TestRoundTripper(t *testing.T, wrap func(base http.RoundTripper) http.RoundTripper) {}
