package bucket

import "time"

// An instant is nanoseconds on a Local's own clock, which starts at its base. All instants lie
// between dawn and never, so that the difference of two of them, and a span added to one, can be
// told from an overflow.
const (
	never = int64(1) << 62 // some 146 years after the base
	dawn  = -never + 1
)

// now is the instant on the monotonic clock.
func (l *Local) now() int64 { return min(int64(time.Since(l.base)), never) }

// instant turns a time of the caller's into an instant.
func (l *Local) instant(t time.Time) int64 { return min(max(int64(t.Sub(l.base)), dawn), never) }

// time is the wall time of an instant.
func (l *Local) time(at int64) time.Time { return l.base.Add(time.Duration(at)).Round(0) }

// later is at plus a span that is not negative, or never.
func later(at, span int64) int64 {
	if span >= never-at {
		return never
	}
	return at + span
}

// tick moves the key's clock to now and returns it. A clock that steps back, or a goroutine that
// read it before another, finds the latest instant that the key has seen: time stands still for
// it, and nothing is minted twice.
func (a *account) tick(now int64) int64 {
	if now > a.clock {
		a.clock = now
	}
	return a.clock
}
