package escalate

import (
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Settings configures the gate of every route, in the vocabulary of
// gobreaker.Settings. The zero value is ready to use: one escalation or more
// than 5 consecutive failures open a gate, which rests for the server's hint or
// for 60 seconds and then lets one probe through.
//
// gobreaker's IsSuccessful and IsExcluded have no counterpart: the [Outcome]
// that a call reports says which it is.
//
// ReadyToTrip and OnStateChange are called without any lock held, so they may
// call back into the Router. A panic in either comes out of the Allow or Done
// during which it happened as a *PanicError; the gate's state is already right
// by then.
type Settings struct {
	// Name, if not empty, is put before the route's name, with a slash between,
	// in calls of OnStateChange.
	Name string

	// MaxRequests is how many probes may be under way when the rest is over, and
	// how many must be served to close the gate. 0 means 1.
	MaxRequests uint32

	// Interval is the cyclic period of the closed gate after which the counts
	// are cleared; with BucketPeriod, the length of a rolling window. 0 never
	// clears them. Unlike gobreaker, which ignores it, a call that outlives the
	// window it began in is counted when it fails.
	Interval time.Duration

	// BucketPeriod, if not 0, makes Interval, rounded up to a multiple of it, a
	// rolling window of buckets of this length. It means nothing without Interval, of which it may be no less than
	// 1/10,000.
	BucketPeriod time.Duration

	// Timeout is how long an open gate rests if the server gave no hint, and how
	// long a probe may take to its headers before the next call may probe too. 0
	// means 60 seconds.
	Timeout time.Duration

	// MaxRest caps any single rest, so that one absurd hint cannot take a route
	// away for good. 0 means 24 hours.
	MaxRest time.Duration

	// Escalations is how many escalations in a row, with no served call between
	// them, open a closed gate whatever ReadyToTrip says. 0 means 1: the first
	// one does.
	Escalations uint32

	// ReadyToTrip is called with a copy of the counts whenever a call fails while
	// the gate is closed: once for each Failure and Escalated. If it returns
	// true the gate opens. nil means more than 5 consecutive failures.
	//
	// Requests counts the calls let through, TotalExclusions those that ended
	// neutral or in a spent quota. A neutral call leaves ConsecutiveFailures as
	// it is; a served one clears it.
	ReadyToTrip func(counts gobreaker.Counts) bool

	// OnStateChange is called after every change of a gate's state, in the order
	// of the changes, never twice at once for one gate. When two calls change a
	// gate at the same time one of them delivers both.
	OnStateChange func(name string, from, to gobreaker.State)
}

const (
	defaultTimeout = 60 * time.Second // as gobreaker's
	defaultMaxRest = 24 * time.Hour
	maxBuckets     = 10_000
	maxInterval    = 100 * 365 * 24 * time.Hour
)

func defaultReadyToTrip(counts gobreaker.Counts) bool { // as gobreaker's
	return counts.ConsecutiveFailures > 5
}

// Validate names the first broken constraint: no duration is negative, Interval
// is at most a century and at most 10,000 BucketPeriods.
func (s Settings) Validate() error {
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"Interval", s.Interval}, {"BucketPeriod", s.BucketPeriod},
		{"Timeout", s.Timeout}, {"MaxRest", s.MaxRest},
	} {
		if d.d < 0 {
			return fmt.Errorf("escalate: Settings.%s is negative: %v", d.name, d.d)
		}
	}
	if s.Interval > maxInterval || s.BucketPeriod > maxInterval {
		return errors.New("escalate: Settings.Interval and BucketPeriod may not exceed a century")
	}
	if s.Interval > 0 && s.BucketPeriod > 0 && s.Interval/s.BucketPeriod >= maxBuckets {
		return fmt.Errorf("escalate: Settings.BucketPeriod %v is less than 1/%d of Interval %v",
			s.BucketPeriod, maxBuckets, s.Interval)
	}
	return nil
}

// orDefault returns s with its zero values filled in.
func (s Settings) orDefault() Settings {
	if s.MaxRequests == 0 {
		s.MaxRequests = 1
	}
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	if s.MaxRest == 0 {
		s.MaxRest = defaultMaxRest
	}
	if s.Escalations == 0 {
		s.Escalations = 1
	}
	if s.ReadyToTrip == nil {
		s.ReadyToTrip = defaultReadyToTrip
	}
	return s
}

// Config is what a Router is made of.
type Config struct {
	// Primary is the route a call tries first. It needs a Name, a Quota or a URL.
	Primary Route

	// Backups are tried in this order when the primary escalates or rests. There
	// may be none: the Router is then the primary's gate alone.
	Backups []Route

	// Settings is for the gate of every route.
	Settings Settings

	// RerouteLocal lets a local refusal (a bucket that would keep the call past
	// its deadline) reroute too, and not the server's refusals alone.
	RerouteLocal bool
}

// Validate names the first thing that New would refuse: a route that cannot be
// told from nothing, a bad URL, header or body field, a negative duration, two
// routes on one quota.
func (c Config) Validate() error {
	_, err := New(c)
	return err
}
