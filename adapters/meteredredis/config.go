package meteredredis

import (
	"errors"
	"fmt"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// Config goes to New. The limits are those of the whole fleet, as the provider states them; the rest of
// what bucket.Config says of its fields goes for those of the same name here.
type Config struct {
	// Limits are the meters of every key.
	Limits []bucket.Limit

	// LimitsFor gives a key limits of its own; nil means Limits, an empty slice means none.
	LimitsFor func(key string) []bucket.Limit

	// Headroom scales Amount and Burst of every limit. 0 means 1.
	Headroom float64

	// MaxWait is how long a waiter bears that nothing at all is admitted on its key, by any process, before
	// it is overdue. 0 means 30 s; negative means never. A hold begins it anew.
	MaxWait time.Duration

	// Overdue says what becomes of an overdue waiter, and Oversize of a cost above a capacity.
	Overdue  bucket.OverduePolicy
	Oversize bucket.OversizePolicy

	// MaxQueue, MaxInFlight and MaxKeys are of this process alone: a place that is taken by a process
	// that dies would have to be reclaimed.
	MaxQueue    int
	MaxInFlight int
	MaxKeys     int

	// Prefix begins the names of all that is kept in the store. "" means "metered". Processes that
	// share a budget have the same Prefix. It must not contain braces.
	Prefix string

	// Timeout is how long one call to the store may take, whatever the client library does with a context.
	// 0 means 50 ms.
	Timeout time.Duration

	// OnStoreDown says what happens while the store is away.
	OnStoreDown StoreDownPolicy

	// Processes is how many processes share the budgets at least, for LocalShare: the store tells how many it has
	// seen in the last ten seconds. 0 means that it is not known; until the store has told, it is taken for
	// two.
	Processes int

	// Observer is told once when the store goes (StoreDown, with the reason in Err), once when it is there
	// again (StoreUp), and once for each key of which another process was told lower limits (Doubted, with
	// ErrLimitsDiffer in Err). It may be slow: it is called beside the requests. nil tells nobody.
	Observer middleware.Observer
}

// StoreDownPolicy says what happens while the store is away. The zero policy is LocalShare.
type StoreDownPolicy uint8

const (
	// LocalShare goes on with this process's share of the limits: divided by the number of processes that
	// were seen last, less a twentieth, from the level that was known last.
	LocalShare StoreDownPolicy = iota
	// Open lets everybody go; holds after a refusal still hold this process.
	Open
	// Closed refuses everybody with an error that matches ErrStoreDown.
	Closed
)

// String returns local_share, open or closed.
func (p StoreDownPolicy) String() string {
	switch p {
	case LocalShare:
		return "local_share"
	case Open:
		return "open"
	case Closed:
		return "closed"
	}
	return fmt.Sprintf("StoreDownPolicy(%d)", uint8(p))
}

const (
	defaultPrefix    = "metered"
	defaultTimeout   = 50 * time.Millisecond
	defaultMaxWait   = 30 * time.Second
	defaultMaxKeys   = 10_000
	defaultProcesses = 2

	// margin is the part of its share that a process leaves alone while the store is away.
	margin = 0.05
)

// Validate names the first constraint that c breaks.
func (c Config) Validate() error {
	if err := c.local().Validate(); err != nil {
		return fmt.Errorf("meteredredis: %w", err)
	}
	switch {
	case c.Timeout < 0:
		return fmt.Errorf("meteredredis: negative Timeout %v", c.Timeout)
	case c.Processes < 0:
		return fmt.Errorf("meteredredis: negative Processes %d", c.Processes)
	case c.OnStoreDown > Closed:
		return fmt.Errorf("meteredredis: unknown StoreDownPolicy %d", uint8(c.OnStoreDown))
	}
	for i := range len(c.Prefix) {
		if c.Prefix[i] == '{' || c.Prefix[i] == '}' {
			return fmt.Errorf("meteredredis: Prefix %q has braces, which are the cluster's", c.Prefix)
		}
	}
	return nil
}

// local is the part of c that a local limiter has too.
func (c Config) local() bucket.Config {
	return bucket.Config{
		Limits: c.Limits, LimitsFor: c.LimitsFor, Headroom: c.Headroom, MaxWait: c.MaxWait,
		Overdue: c.Overdue, Oversize: c.Oversize,
		MaxQueue: c.MaxQueue, MaxInFlight: c.MaxInFlight, MaxKeys: c.MaxKeys,
	}
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&c.Timeout, defaultTimeout)
	def(&c.MaxWait, defaultMaxWait)
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if c.Headroom == 0 {
		c.Headroom = 1
	}
	return c
}

// answerTime is how long an answer is waited for that lets others go: a probe's.
func (c Config) answerTime() time.Duration {
	if c.MaxWait < 0 {
		return defaultMaxWait
	}
	return c.MaxWait
}

var (
	// ErrStoreDown: the store is away, and Config.OnStoreDown is Closed. The error is a *StoreError.
	ErrStoreDown = errors.New("meteredredis: the store is down")

	// ErrClosed: the Limiter was closed.
	ErrClosed error = localError("meteredredis: the limiter is closed")

	// ErrLimitsDiffer: another process that draws on the same budget was told lower limits. The lower ones
	// hold for all.
	ErrLimitsDiffer = errors.New("meteredredis: limits differ between processes, the lower ones hold")
)

// StoreError is a refusal of our own, for want of the store. It matches ErrStoreDown; nothing was sent.
type StoreError struct {
	Key string
	Err error // what the store, or the way to it, had last
}

// Error says which key, and what the store's last error was.
func (e *StoreError) Error() string {
	return fmt.Sprintf("meteredredis: the store is down, no budget for key %q: %v", e.Key, e.Err)
}

// Unwrap returns ErrStoreDown and Err.
func (e *StoreError) Unwrap() []error { return []error{ErrStoreDown, e.Err} }

// Local returns true: nothing was sent.
func (e *StoreError) Local() bool { return true }

type localError string

func (e localError) Error() string { return string(e) }
func (e localError) Local() bool   { return true }
