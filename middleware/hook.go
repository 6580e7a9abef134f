package middleware

import (
	"fmt"
	"net/http"
)

// surface makes a hook's panic that request's error. A host's turn goes on: its
// next request is not to fail for it again.
func (t *turn) surface(resp *http.Response, err error) (*http.Response, error) {
	hookErr := t.hookFailed()
	if hookErr == nil {
		return resp, err
	}
	if t.hosted {
		t.hookErr.Store(nil)
	}
	if resp != nil {
		resp.Body.Close()
	}
	return nil, hookErr
}

// hook runs f, a function of the user's, and keeps a panic of it for surface.
func (t *turn) hook(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			t.hookPanicked(&hookError{what, p})
		}
	}()
	f()
}

// hookError is a panic of a user's function.
type hookError struct {
	what  string
	value any
}

func (e *hookError) Error() string {
	return fmt.Sprintf("middleware: %s panicked: %v", e.what, e.value)
}

// Unwrap returns the panic's value, where that is an error.
func (e *hookError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// hookPanicked makes err, a panic of a hook of the user's, the turn's error.
func (t *turn) hookPanicked(err error) { t.hookErr.CompareAndSwap(nil, &err) }

// hookFailed returns the error that a panic of a hook has become, or nil.
func (t *turn) hookFailed() error {
	if err := t.hookErr.Load(); err != nil {
		return *err
	}
	return nil
}
