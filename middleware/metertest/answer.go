package metertest

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Answer is one scripted answer. The zero Answer is what the meters decide.
type Answer struct {
	// Status of 0 leaves the decision to the meters: admitted, the call gets the
	// rest of this Answer with status 200; refused, it gets the refusal and the
	// Answer is spent. Any other Status is given without asking the meters, and
	// literally: no header or body of the dialect is added.
	Status int
	// Header is added to the answer. A Date is added, as a server does, unless
	// Header has the key "Date"; a nil value there leaves it out.
	Header http.Header
	// Body is the body, at once and whole. See also Events and Endless.
	Body string
	// Events are sent one by one, each after its delay, and Body is not sent. The
	// Content-Type is text/event-stream unless Header says otherwise.
	Events []Event
	// Endless sends Body again and again until the client closes it, one copy
	// each Every; an Every of 0 is a flood.
	Endless bool
	Every   time.Duration
	// Trailer is sent behind the body, its names announced before it.
	Trailer http.Header
	// Length is a Content-Length that is not the truth; 0 means the truth where
	// it is known, -1 that none is given. More than the truth makes the client's
	// read end in io.ErrUnexpectedEOF; less cuts the body.
	Length int64

	// Delay comes on top of the provider's latency, before the headers.
	Delay time.Duration
	// Fault is what goes wrong with the connection. Where it lets no header
	// through (DialError, the resets before and after the request, Hang), Status
	// has no effect and the meters are not asked.
	Fault Fault
	// Early answers before the request's body is read; the body is then never
	// read. A metered answer (Status 0) cannot be early.
	Early bool
	// Times is how often this Answer is given: 0 means once, below zero for ever.
	Times int
}

// Event is one piece of a streamed body.
type Event struct {
	// After is the time since the event before, or since the headers.
	After time.Duration
	// Data is sent as it is, and flushed. SSE makes the usual form.
	Data string
}

// SSE returns one event of an event stream in its wire form: name may be empty,
// data is one line.
func SSE(name, data string) string {
	if name == "" {
		return "data: " + data + "\n\n"
	}
	return "event: " + name + "\ndata: " + data + "\n\n"
}

// Reply returns an Answer with a status, a body, and header fields given as
// names and values in turn: Reply(429, "x", "Retry-After", "2"). A last name
// without a value has the empty one.
func Reply(status int, body string, header ...string) Answer {
	a := Answer{Status: status, Body: body}
	for i := 0; i < len(header); i += 2 {
		value := ""
		if i+1 < len(header) {
			value = header[i+1]
		}
		if a.Header == nil {
			a.Header = make(http.Header)
		}
		a.Header.Add(header[i], value)
	}
	return a
}

// Fault is a failure of the connection.
type Fault uint8

const (
	// NoFault is none.
	NoFault Fault = iota
	// DialError is a connection that is refused: nothing was written, nothing was
	// read of the request's body. The error is a *net.OpError of a dial and
	// matches syscall.ECONNREFUSED. A Handler, whose connection stands already,
	// cuts it without reading anything instead.
	DialError
	// ResetBefore cuts the connection when the request's header is there, before
	// its body is read. The errors of all resets match syscall.ECONNRESET.
	ResetBefore
	// ResetAfter cuts it when the whole request was read, before any header.
	ResetAfter
	// ResetDuringBody cuts it in the middle of the answer's body: behind half of
	// the bytes of Body, or half of Events, rounded down.
	ResetDuringBody
	// Hang reads the whole request and then never answers. The call ends with its
	// context.
	Hang
	// HangDuringBody sends what ResetDuringBody sends, and then nothing. A read
	// ends with the call's context or with Close.
	HangDuringBody
)

// String returns the name in words, "dial error" for example.
func (f Fault) String() string {
	names := [...]string{"none", "dial error", "reset before", "reset after", "reset during body", "hang", "hang during body"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("Fault(%d)", uint8(f))
}

func (a Answer) validate() error {
	switch {
	case a.Status != 0 && (a.Status < 200 || a.Status > 999):
		return fmt.Errorf("metertest: Status %d is not a final status", a.Status)
	case a.Delay < 0 || a.Every < 0:
		return errors.New("metertest: Delay and Every must not be negative")
	case a.Length < -1:
		return errors.New("metertest: Length must not be below -1")
	case a.Fault > HangDuringBody:
		return fmt.Errorf("metertest: unknown %v", a.Fault)
	case a.Early && a.Status == 0 && a.Fault == NoFault:
		return errors.New("metertest: a metered answer cannot be Early")
	case a.Endless && a.Body == "":
		return errors.New("metertest: Endless needs a Body")
	}
	for _, e := range a.Events {
		if e.After < 0 {
			return errors.New("metertest: an Event's After must not be negative")
		}
	}
	return nil
}
