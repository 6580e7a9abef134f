package escalate

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is the panic of a hook of the user's (Rewrite, ReadyToTrip,
// OnStateChange, a function given to Watch), turned into an error so that it
// surfaces as the error of the request it happened under and nothing is leaked.
type PanicError struct {
	Hook  string // "Rewrite", "ReadyToTrip", "OnStateChange" or "Watch"
	Value any    // what was passed to panic
	Stack []byte // the stack of the panicking goroutine
}

// Error returns the hook and the panic value, without the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("escalate: %s hook panicked: %v", e.Hook, e.Value)
}

// Unwrap returns Value if it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// guard runs f and returns its panic as a *PanicError.
func guard(hook string, f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Hook: hook, Value: v, Stack: debug.Stack()}
		}
	}()
	f()
	return nil
}

// joined is errors.Join where there is more than one, and the one where there
// is not.
func joined(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return errors.Join(a, b)
	}
}
