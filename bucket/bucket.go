package bucket

import (
	"context"
	"time"
)

// Limiter grants calls their budget. Local is one; adapters have others.
type Limiter interface {
	// Acquire waits until the call may be sent.
	Acquire(ctx context.Context, key string, cost Cost) (Grant, error)
}

// Local is a Limiter within this process.
type Local struct{}

var _ Limiter = (*Local)(nil)

// New returns a Local.
func New(c Config) (*Local, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Local{}, nil
}

// Acquire waits.
func (l *Local) Acquire(ctx context.Context, key string, cost Cost) (Grant, error) {
	return Grant{}, nil
}

// TakeAt takes.
func (l *Local) TakeAt(t time.Time, key string, cost Cost) (Grant, time.Duration) { return Grant{}, 0 }

// Hold holds.
func (l *Local) Hold(key string, until time.Time) {}

// Lift lifts.
func (l *Local) Lift(key string) {}

// SetLimits replaces.
func (l *Local) SetLimits(key string, limits ...Limit) error { return validateLimits(limits) }

// Stats is a snapshot.
func (l *Local) Stats(key string) (KeyStats, bool) { return KeyStats{}, false }

// Keys lists.
func (l *Local) Keys() []string { return nil }
