package bucket

import (
	"math/bits"
	"time"
)

// An estimate is what one meter of the server's seems to hold. Its unit is the time in which the
// published rate refills an amount.
type estimate struct {
	period int64 // of the limit: what a window of the server's holds
	brim   int64 // the published capacity
	burst  int64 // the capacity as learned, at most brim
	debt   int64 // what was taken and has not been refilled; the whole window's while counting
	at     int64 // the instant that debt is for

	learned int64 // the rate at the last refusal, in millionths of the published one
	since   int64 // when that was
	mean    int64 // of the spans of late calls

	from   int64 // when it was last known to be empty: a refusal that was laid to it
	taken  int64 // what was served since
	served int64 // what was, in the measurements until the last refusal, and
	during int64 // how long they took; older ones count for less
	base   int64 // at a refusal, what was taken before it; counting, the debt a second before the boundary
	wall   int64 // counting: where the last refusal of a window was
	proven int64 // the most that was taken and served
	before int64 // proven, before the last refusal
	idle   int64 // for how long there was no debt since then: what was refilled is lost
	rest   int64 // the same, since burst was made smaller or larger
	tried  int64 // what burst was before more was tried; 0 while nothing is
	vain   int   // how often that was refused
}

const (
	million = 1_000_000

	// The way from nothing back to the published rate takes as long as so many calls take at that
	// rate, within bounds: each time it goes too far some are refused, and that is to be few of all.
	// It is a cubic: flat where the learned rate is right, fast where it is not.
	recoveryCalls = 480
	soonest       = int64(50e9)
	latest        = int64(300e9)
	// callShare is the weight of a call in the mean of their spans.
	callShare = 16

	// deepestCut is what is left of a rate at the least after one refusal.
	deepestCut = 700_000

	// Below the published rate some other takes the rest, and not at an even pace. So sparedShare of
	// what a call could take, at most mostSpared, is left in the bucket for him: who empties it after
	// each hold is refused again at once, half of the time. More would be lost where the bucket fills.
	sparedShare = 4
	mostSpared  = grain / 2

	// A refusal by a bucket that somebody else had drained, or one's own last run, makes it look small. So
	// after rested without debt more is tried: if it is not refused it was there. Each time it is, the next
	// rest is twice as long, up to longestRest.
	rested      = int64(time.Minute)
	longestRest = int64(time.Hour)
	// provenShare is the part by which what a try has found must exceed what was known: less is refilled on the
	// way.
	provenShare = 8
)

// rate is the rate in use, in millionths of the published one.
func (e *estimate) rate(now int64) int64 {
	if e.learned >= million {
		return million
	}
	recovery := min(max(recoveryCalls*e.mean, soonest), latest)
	if now-e.since >= recovery {
		return million
	}
	t := float64(now-e.since) / float64(recovery)
	return min(e.learned+int64(t*t*t*million), million)
}

// refill brings debt to now.
func (e *estimate) refill(now int64) {
	dt := now - e.at
	if dt <= 0 {
		return
	}
	rate := e.rate(now)
	e.debt -= mulDiv(dt, rate, million)
	e.at = now
	if e.debt < 0 {
		lost := mulDiv(-e.debt, million, rate)
		e.idle, e.rest = later(e.idle, lost), later(e.rest, lost)
		e.debt = 0
		if e.burst < e.brim && e.rest >= min(rested<<min(e.vain, 6), longestRest) {
			e.try(min(e.burst+e.rest, e.brim))
		}
	}
}

// try lets calls find out whether the bucket holds more than was learned.
func (e *estimate) try(burst int64) {
	if e.tried == 0 {
		e.tried = e.burst
	}
	e.burst, e.rest = burst, 0
}

// sure is the capacity without what is only tried.
func (e *estimate) sure() int64 {
	if e.tried > 0 {
		return e.tried
	}
	return e.burst
}

// find notes that a call was served at that depth: if it was a try, so much is there.
func (e *estimate) find(depth int64) {
	e.prove(depth)
	if e.tried > 0 && depth > e.tried+e.tried/provenShare {
		e.tried, e.vain = min(depth, e.brim), 0
	}
}

// tire ends the try, at a refusal: what was there before stands, and what was served beyond.
func (e *estimate) tire(own int64) {
	if e.tried == 0 {
		return
	}
	if e.base+own > e.tried {
		e.vain++
	}
	e.find(e.base)
	e.burst, e.tried, e.rest = min(e.tried, e.burst), 0, 0
}

// spent reports whether a window of which debt was taken has nothing left for span.
func (e *estimate) spent(debt, span int64) bool { return debt > e.period-span && debt > 0 }

// shrink notes at a refusal that the bucket holds less than was thought.
func (e *estimate) shrink(now, burst int64) {
	e.burst, e.rest = min(burst, e.burst), 0
	e.empty(now)
}

// ready is when a call that takes span may leave, if late more is to be there, as far as that fits.
func (e *estimate) ready(now, span, late int64) int64 {
	e.refill(now)
	rate, room := e.rate(now), max(e.burst-span-late, 0)
	if rate < million {
		room -= min(room/sparedShare, mostSpared)
	}
	over := e.debt - room
	if over <= 0 {
		return now
	}
	return later(now, mulDiv(over, million, rate)+1)
}

// lasts is how long a span takes to be refilled.
func (e *estimate) lasts(span int64) int64 { return mulDiv(span, million, e.rate(e.at)) }

// take charges span and returns the debt.
func (e *estimate) take(now, span int64) int64 {
	e.at = max(e.at, now)
	e.debt = later(e.debt, span)
	e.taken = later(e.taken, span)
	e.mean += (min(span, latest) - e.mean) / callShare
	return e.debt
}

// empty begins to measure anew: nothing is there now.
func (e *estimate) empty(now int64) { e.from, e.taken, e.idle = now, 0, 0 }

// measure adds a measurement and returns what rate it found, and the mean of all that count.
func (e *estimate) measure(spent, took int64) (lately, together int64) {
	e.served, e.during = later(e.served, spent), later(e.during, took)
	lately, together = mulDiv(spent, million, took), mulDiv(e.served, million, e.during)
	if most := memory * e.mean; e.served > most {
		e.served, e.during = most, mulDiv(e.during, most, e.served)
	}
	return lately, together
}

// slow sets the rate that was found at a refusal.
func (e *estimate) slow(now, rate int64) {
	e.learned = max(rate, mulDiv(e.rate(now), deepestCut, million), 1)
	e.since = now
}

// prove notes that so much could be taken.
func (e *estimate) prove(depth int64) { e.proven = max(e.proven, depth) }

// mulDiv is x*num/den, at most never, for operands that are not negative.
func mulDiv(x, num, den int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(num))
	if hi >= uint64(den) {
		return never
	}
	q, _ := bits.Div64(hi, lo, uint64(den))
	return int64(min(q, uint64(never)))
}

// span is how long the published rate takes to refill amount, at most a capacity; rounded down, so that
// the parts of a whole fit into it.
func (m *meter) span(amount int64) int64 { return m.wholeSpan(min(amount, m.capacity())) }

// wholeSpan is span without the bound of a capacity.
func (m *meter) wholeSpan(amount int64) int64 {
	if amount <= 0 {
		return 0
	}
	if m.log != nil {
		return mulDiv(amount, m.log.per, m.log.amount)
	}
	return min(satMul(mulDiv(amount, m.cell.den, m.cell.num), m.cell.step), never)
}

// owing is what is taken and not refilled, as the limit has it.
func (m *meter) owing(now int64) int64 {
	if m.log != nil {
		return mulDiv(m.log.usedAt(now), m.log.per, m.log.amount)
	}
	return max(m.cell.reach(m.cell.brim)-now, 0)
}

// perMinute is how much the limit allows in a minute.
func (m *meter) perMinute() int64 { return mulDiv(m.limit.Amount, 60e9, int64(m.limit.Per)) }
