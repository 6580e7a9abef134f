package metertest

import (
	"net/http"
	"time"
)

// Entry is one arrival. A request whose body broke off on its way has not arrived.
type Entry struct {
	// At is the instant of the decision: when the request was there as a whole.
	At time.Time
	// Admitted tells that the meters admitted it or that a script served it, with
	// a status below 400.
	Admitted bool
	// Status is that of the answer, 0 if a fault let none through.
	Status int
	// Fault is the fault that was scripted.
	Fault Fault
	// Tokens is the cost, also of what was not admitted; 0 where the body was not
	// read.
	Tokens int64

	// Method, Host, Path, Query, Model and Header are the request's; Header is a
	// copy.
	Method, Host, Path, Query, Model string
	Header                           http.Header
	// ContentLength is what the request announced, as in http.Request. BodyLen
	// and BodySHA256 are of the bytes that came.
	ContentLength int64
	BodyLen       int64
	BodySHA256    [32]byte
}

// note writes e down and returns its row. Called with mu held.
func (p *Provider) note(e Entry) int {
	p.ledger = append(p.ledger, e)
	if e.Admitted {
		p.served++
		p.tokens += e.Tokens
	} else if e.Status != 0 {
		p.refused++
	}
	return len(p.ledger) - 1
}

// Ledger returns every arrival in the order of decisions. The neighbour's calls
// are not in it. The entries' headers are the ledger's own: read them only.
func (p *Provider) Ledger() []Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Entry(nil), p.ledger...)
}

// Hits returns the number of arrivals: those served, those refused, and those
// that met a fault without an answer.
func (p *Provider) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ledger)
}

// Served returns the number of arrivals that were admitted.
func (p *Provider) Served() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served
}

// Refused returns the number of arrivals that were answered but not admitted.
func (p *Provider) Refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// Tokens returns the cost of all that was admitted.
func (p *Provider) Tokens() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tokens
}

// Neighbour returns how many of the neighbour's calls were served and refused so
// far.
func (p *Provider) Neighbour() (served, refused int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.neighbour.catchUp(time.Since(p.start), p.charge)
	return p.neighbour.served, p.neighbour.refused
}

// OpenBodies returns how many answer bodies of in-memory Transports have not been
// closed.
func (p *Provider) OpenBodies() int { return int(p.conns.open.Load()) }

// ConnsInUse returns how many connections of in-memory Transports are busy: with
// a request on its way, or with an answer's body that was neither read to its end
// nor closed.
func (p *Provider) ConnsInUse() int { return int(p.conns.busy.Load()) }

// Dials returns how many connections in-memory Transports have opened. One whose
// last answer was read to its end is used again; one whose answer was closed
// before is not.
func (p *Provider) Dials() int { return int(p.conns.dials.Load()) }
