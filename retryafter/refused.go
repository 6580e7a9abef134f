package retryafter

import (
	"fmt"
	"net/http"
)

// RefusedError is the one copy of a refused answer. It is returned when a wait
// is cancelled or a resend is refused locally, and it is what an escalation
// wraps. The answer's body has been closed: Body holds what was kept of it.
type RefusedError struct {
	// Signal is what the answer meant.
	Signal Signal
	// Status and Header are the answer's own.
	Status int
	Header http.Header
	// Body is the beginning of the answer's body, at most [BodyLimit] bytes.
	Body []byte
	// Attempts is how often the request had been sent.
	Attempts int
	// Err is why the answer was not waited out: the context's error or a local
	// refusal. It may be nil.
	Err error
}

// Error names the class, the status, the number of attempts and the cause.
func (e *RefusedError) Error() string {
	s := fmt.Sprintf("retryafter: refused with status %d (%s), attempts %d", e.Status, e.Signal.Class, e.Attempts)
	if e.Signal.HasHint {
		s += ", retry after " + e.Signal.RetryAfter.String()
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err, so that errors.Is finds a context error.
func (e *RefusedError) Unwrap() error { return e.Err }
