package bucket

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// localError is a sentinel. Like all errors of this package it has a method Local that returns true:
// nothing was sent, whatever the text may say of limits.
type localError string

func (e localError) Error() string { return string(e) }
func (e localError) Local() bool   { return true }

var (
	// ErrQueueFull: MaxQueue calls wait on the key already. Nothing was taken.
	ErrQueueFull error = localError("bucket: queue is full")

	// ErrOversize: the cost is above a limit's capacity and Config.Oversize is OversizeRefuse.
	// The error is an *OversizeError. Nothing was taken.
	ErrOversize error = localError("bucket: cost is above capacity")

	// ErrOverdue: nothing was admitted on the key for MaxWait and Config.Overdue is
	// OverdueRefuse. The error is a *WaitError. Nothing was taken.
	ErrOverdue error = localError("bucket: overdue")
)

// WaitError is a refusal of our own: the call could not have left in time. Nothing was taken and
// nothing was sent. It always matches context.DeadlineExceeded, and ErrOverdue where MaxWait
// rather than the context's deadline was too short.
type WaitError struct {
	Key  string
	Unit Unit          // the unit of the limit that binds; Requests where a hold binds instead
	Wait time.Duration // from the refusal: no call of this cost could leave sooner

	cause error // ErrOverdue, or the context's cause; may be nil
}

// Error says which key, how long, and what for.
func (e *WaitError) Error() string {
	if errors.Is(e.cause, ErrOverdue) {
		return fmt.Sprintf("bucket: overdue on key %q: %s at least %v away", e.Key, e.Unit, e.Wait)
	}
	return fmt.Sprintf("bucket: the wait on key %q is too long: %s at least %v away", e.Key, e.Unit, e.Wait)
}

// NewWaitError returns the WaitError of a limiter of another package. cause is ErrOverdue, the cause of
// the context that ended, or nil.
func NewWaitError(key string, unit Unit, wait time.Duration, cause error) *WaitError {
	return &WaitError{Key: key, Unit: unit, Wait: wait, cause: cause}
}

// Is reports whether target is context.DeadlineExceeded.
func (e *WaitError) Is(target error) bool { return target == context.DeadlineExceeded }

// Unwrap returns ErrOverdue, the cause of the context that ended during the wait, or nil.
func (e *WaitError) Unwrap() error { return e.cause }

// Local returns true: nothing was sent.
func (e *WaitError) Local() bool { return true }

// Timeout returns true, as net.Error has it, and so does url.Error around it.
func (e *WaitError) Timeout() bool { return true }

// OversizeError says that a cost can never fit a limit. It matches ErrOversize.
type OversizeError struct {
	Key      string
	Unit     Unit
	Cost     int64 // in that unit
	Capacity int64 // the most the limit ever holds, Headroom included
}

// Error says which limit is too small for which cost.
func (e *OversizeError) Error() string {
	return fmt.Sprintf("bucket: cost of %d %s on key %q is above the capacity of %d", e.Cost, e.Unit, e.Key, e.Capacity)
}

// Local returns true: nothing was sent.
func (e *OversizeError) Local() bool { return true }

// Is reports whether target is ErrOversize.
func (e *OversizeError) Is(target error) bool { return target == ErrOversize }

// interruptedError is what a cancelled context makes of a wait: it matches both what ctx.Err says
// and the cause that the canceller gave.
type interruptedError struct {
	key        string
	err, cause error
}

// Interrupted returns what Acquire returns for a key when ctx, which has been cancelled, ended the wait: it matches
// both ctx.Err and context.Cause. It is for limiters of other packages.
func Interrupted(ctx context.Context, key string) error { return interrupted(ctx, key) }

func interrupted(ctx context.Context, key string) error {
	return &interruptedError{key: key, err: ctx.Err(), cause: context.Cause(ctx)}
}

func (e *interruptedError) Error() string {
	return fmt.Sprintf("bucket: waiting on key %q: %v", e.key, e.cause)
}

func (e *interruptedError) Local() bool { return true }

func (e *interruptedError) Unwrap() []error { return []error{e.err, e.cause} }

func (e *interruptedError) Timeout() bool { return errors.Is(e.err, context.DeadlineExceeded) }
