package bucket

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Config goes to New. The zero Config is valid: it limits nothing, yet holds, the ramp after them
// and the queue work.
type Config struct {
	// Limits are the meters of every key. All of them, and a slot under MaxInFlight, are
	// granted together or nothing is touched. At most 64.
	Limits []Limit

	// LimitsFor gives a key limits of its own; nil means Limits, an empty slice means none. It
	// is called without locks when a key is first seen, and again after the key was forgotten,
	// so it must give the same answer each time and be safe for concurrent use. If a limit it
	// returns is invalid, Acquire returns Validate's error.
	LimitsFor func(key string) []Limit

	// Headroom scales Amount and Burst of every limit, to sit below a provider's cap: estimates
	// err, retries happen. 0 means 1: a limit means what it says. It is used in steps of
	// 1/10,000, and never takes a capacity below 1.
	Headroom float64

	// Adaptive says whether the calls of a key are paced by what its server's refusals show of how
	// it meters.
	Adaptive AdaptivePolicy

	// Learned is what was learned of keys in an earlier run; see Local.Learned. A key takes it over when
	// it is first seen, under Adaptive. Limits that are configured stand: it never lets out more than
	// they do.
	Learned map[string]Learned

	// MaxWait is how long a waiter bears that nothing at all is admitted on its key before it is
	// overdue. 0 means 30 s; negative means never. A hold stops its clock.
	MaxWait time.Duration

	// Overdue says what becomes of an overdue waiter.
	Overdue OverduePolicy

	// Oversize says what becomes of a cost above a limit's capacity.
	Oversize OversizePolicy

	// MaxQueue is how many may wait on one key; one more is refused with ErrQueueFull. 0 means
	// no bound.
	MaxQueue int

	// MaxInFlight is how many grants of one key may be open at a time: taken, and not yet
	// settled, refused or cancelled. 0 means no bound.
	MaxInFlight int

	// MaxKeys is how many keys are remembered. 0 means 10,000. Above it the fullest idle keys are
	// forgotten first; a key with waiters, debt, a hold or open grants is kept, whatever MaxKeys says.
	MaxKeys int
}

// AdaptivePolicy says whether calls are paced by what the server shows. The zero policy leaves that to
// whoever makes the Local: New takes it for AdaptiveOff, since a limit means what it says.
type AdaptivePolicy uint8

const (
	// AdaptiveDefault is AdaptiveOff here.
	AdaptiveDefault AdaptivePolicy = iota
	// AdaptiveOff lets go whatever the limits let go.
	AdaptiveOff
	// AdaptiveOn lets the calls of a crowd go one after the other, so that a refusal stops the rest,
	// and learns from refusals what the server holds, how fast it refills, and when its windows end. What
	// was learned too small is found out: a rate grows back within five minutes, a burst is tried again after
	// a minute of rest, and less often, up to an hour, each time that more is refused.
	// It keeps calls back that the limits would let go, and never the other way round, with one
	// exception: when a refusal has shown that the server counts in windows (see Grant.RefusedHinted), the
	// start of a window fills the limits again, as an answer would that stated it by Grant.Report.
	AdaptiveOn
)

// OverduePolicy says what becomes of an overdue waiter. The zero policy is OverdueProbe.
type OverduePolicy uint8

const (
	// OverdueProbe sends it all the same, charged as debt: pacing must never become hanging.
	// Overdue waiters leave one at a time, the next one when the answer's headers of the one
	// before are there, and their debt never exceeds a limit's capacity.
	OverdueProbe OverduePolicy = iota
	// OverdueRefuse refuses it with a *WaitError that matches ErrOverdue.
	OverdueRefuse
)

// OversizePolicy says what becomes of a cost above a limit's capacity. The zero policy is OversizeDebt.
type OversizePolicy uint8

const (
	// OversizeDebt admits it from a full bucket and charges the rest as debt.
	OversizeDebt OversizePolicy = iota
	// OversizeRefuse refuses it at once with an *OversizeError.
	OversizeRefuse
)

const (
	defaultMaxWait = 30 * time.Second
	defaultMaxKeys = 10_000
	maxLimits      = 64

	// headroomSteps is the denominator of Headroom in integer arithmetic.
	headroomSteps = 10_000
)

// Validate names the first constraint that c breaks.
func (c Config) Validate() error {
	if err := validateLimits(c.Limits); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(c.Learned)) {
		if err := c.Learned[key].validate(key); err != nil {
			return err
		}
	}
	switch {
	case math.IsNaN(c.Headroom) || c.Headroom < 0 || c.Headroom > 1:
		return fmt.Errorf("bucket: Headroom must be in (0, 1], or 0 for 1; is %v", c.Headroom)
	case c.MaxQueue < 0:
		return fmt.Errorf("bucket: negative MaxQueue %d", c.MaxQueue)
	case c.MaxInFlight < 0:
		return fmt.Errorf("bucket: negative MaxInFlight %d", c.MaxInFlight)
	case c.MaxKeys < 0:
		return fmt.Errorf("bucket: negative MaxKeys %d", c.MaxKeys)
	case c.Adaptive > AdaptiveOn:
		return fmt.Errorf("bucket: unknown AdaptivePolicy %d", uint8(c.Adaptive))
	case c.Overdue > OverdueRefuse:
		return fmt.Errorf("bucket: unknown OverduePolicy %d", uint8(c.Overdue))
	case c.Oversize > OversizeRefuse:
		return fmt.Errorf("bucket: unknown OversizePolicy %d", uint8(c.Oversize))
	}
	return nil
}

func validateLimits(limits []Limit) error {
	if len(limits) > maxLimits {
		return fmt.Errorf("bucket: %d limits on one key, at most %d", len(limits), maxLimits)
	}
	for _, l := range limits {
		if err := l.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// headroom returns Headroom in steps of 1/headroomSteps, at least one.
func (c Config) headroom() int64 {
	if c.Headroom == 0 {
		return headroomSteps
	}
	return max(int64(math.Round(c.Headroom*headroomSteps)), 1)
}
