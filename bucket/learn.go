package bucket

import (
	"slices"
	"time"
)

// Under Adaptive a unit for which a key has no limit gets its meter from what the server states: the
// first answer that reports a Limit makes it, and later ones correct it, both ways. It is a meter as
// any other from then on, Headroom included; without Adaptive there is none.
//
// What refills continuously becomes a TokenBucket. A server's own bucket may be smaller than the
// limit it states, and few state the span that the limit is for. But how much is left and how long it
// takes to be full lie on one line, whoever spends: two answers show its slope, which is the rate,
// and where it ends, which is the burst. What does not refill is counted anew at an instant: it
// becomes a Window whose charges all come back there.

// learnt is how a meter came about that nobody configured.
type learnt struct {
	source  Source
	per     time.Duration // as stated; 0 where it is not, and Limit.Per is found or guessed
	doubt   int64         // of a Per that was found, in thousandths of it; certain to doubtful
	refills bool
	first   point // of the line
	edge    int64 // when a window ends, as stated; 0 where it is not
	holds   int64 // what it seems to hold, where that is Inferred; 0 where nothing is known
}

// A point is what one answer stated.
type point struct {
	left, full int64
}

// headroom is that of a limit of this source. What was inferred is what was served, and needs no room above.
func (a *account) headroom(s Source) int64 {
	if s == Inferred {
		return headroomSteps
	}
	return a.local.headroom
}

// inferred reports whether refusals alone have taught the limit.
func (m *meter) inferred() bool { return m.learnt != nil && m.learnt.source == Inferred }

const (
	// doubtful is the doubt about a period that was guessed.
	doubtful = 1000
	// surely is the doubt below which a period counts as known.
	surely = 150
	// sloped is how many units and how many grains of time two answers differ by at the least where
	// they show a slope.
	sloped = 4
	// farthest is the longest reset that is believed: a month, for which the slowest quotas are.
	farthest = 31 * 24 * time.Hour
)

// periods are what limits are stated for. The odd one out is read as it is.
var periods = [...]time.Duration{
	time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 24 * time.Hour, farthest,
}

// plausible returns s as far as it can be believed, and false if there is nothing to learn from it.
func (s Meter) plausible() (Meter, bool) {
	if s.Unit > OutputTokens || s.Limit <= 0 || s.Limit > maxCost || s.Remaining < 0 {
		return s, false
	}
	s.Remaining = min(s.Remaining, s.Limit)
	if s.Reset <= 0 || s.Reset > farthest {
		s.Reset = 0
	}
	if s.Per <= 0 || s.Per > farthest {
		s.Per = 0
	}
	return s, s.Per > 0 || s.Reset > 0
}

// learn returns the meter that s is about, where that is one of the server's own making; it makes it
// if there is none yet. Only the newest report raises what was learned.
func (a *account) learn(now int64, c *call, told *Meter) *meter {
	if a.pacer == nil || told.Remaining < 0 {
		return nil
	}
	s, ok := told.plausible()
	ok = ok && c.cost.Of(s.Unit) <= s.Limit // else it is no meter of such calls
	n := 0
	for i := range a.meters {
		m := &a.meters[i]
		if m.shadows > 0 {
			break
		}
		if n++; m.limit.Unit != s.Unit {
			continue
		}
		if m.learnt == nil {
			return nil // it is configured
		}
		if m.learnt.source == Stated && m.learnt.per > 0 && s.Per > 0 && m.learnt.per != s.Per {
			continue // another one of this unit
		}
		if ok {
			a.relearn(now, c, m, &s)
		}
		return &a.meters[i]
	}
	if !ok || a.slots >= maxLimits {
		return nil
	}
	l, t := guess(&s)
	m := newMeter(l, a.headroom(t.source))
	m.learnt = t
	m.anchor(now, &s)
	return a.grow(now, n, m)
}

// grow adds a meter at index i.
func (a *account) grow(now int64, i int, m meter) *meter {
	m.slot = uint8(a.slots)
	m.born = a.calls.admissions + 1
	a.slots++
	if m.log != nil {
		a.windows++
	}
	m.catchUp(now)
	a.meters = slices.Insert(slices.Clip(a.meters), i, m)
	a.changed(now)
	return &a.meters[i]
}

// changed brings to the meters what depends on them.
func (a *account) changed(now int64) {
	for i := range a.meters {
		a.meters[i].queued, a.meters[i].capped = 0, 0
	}
	a.line.heavy = 0
	for _, e := range a.line.heap {
		a.tally(e.w.cost, +1)
	}
	a.pacer.relearn(a, now)
}

// guess is the limit that the first answer suggests.
func guess(s *Meter) (Limit, *learnt) {
	t := &learnt{source: Stated, refills: s.Refills, first: point{s.Remaining, int64(s.Reset)}, per: s.Per}
	l := Limit{Unit: s.Unit, Amount: s.Limit, Per: s.Per}
	switch {
	case s.Per == 0 && s.Refills:
		l.Per, t.doubt = slope(s.Limit, s.Limit-s.Remaining, int64(s.Reset)), doubtful
	case s.Per == 0:
		l.Per, t.doubt = enclosing(s.Reset), doubtful
	}
	if !s.Refills && s.Reset > 0 {
		l.Shape = Window
	}
	return l, t
}

// slope is the period of a limit of which used takes full to be refilled. A bucket that is smaller than
// its limit makes it look too short, so nothing below a minute is believed of one answer.
func slope(limit, used, full int64) time.Duration {
	if used <= 0 || full <= 0 {
		return time.Minute
	}
	per := time.Duration(min(mulDiv(full, limit, used), int64(farthest)))
	if per < time.Minute/2 {
		return time.Minute
	}
	return nearest(per, 2)
}

// nearest is the usual period within factor times of per, or per.
func nearest(per time.Duration, factor float64) time.Duration {
	for _, p := range periods {
		if r := float64(per) / float64(p); r < factor && r > 1/factor {
			return p
		}
	}
	return per
}

// enclosing is the shortest usual period that a window may have of which reset is left.
func enclosing(reset time.Duration) time.Duration {
	for _, p := range periods {
		if reset <= p && p != 10*time.Second && p != 5*time.Minute {
			return p
		}
	}
	return farthest
}

// relearn holds what an answer states against what was learned before.
func (a *account) relearn(now int64, c *call, m *meter, s *Meter) {
	t, newest := m.learnt, c.number >= m.reporter
	if !newest && s.Limit >= m.limit.Amount {
		return
	}
	l := m.limit
	switch {
	case t.source != Stated || s.Limit != l.Amount || s.Per != t.per:
		l, m.learnt = guess(s)
		if t.source == Stated && s.Per == 0 && t.per == 0 && t.doubt <= surely {
			l.Per, m.learnt.doubt = m.limit.Per, t.doubt // the limit is another one, not its span
		}
	case newest && t.refills:
		l = t.line(l, s)
	case newest && l.Shape == Window && s.Reset > 0:
		l.Per = t.next(now, l, s)
	}
	if l != m.limit {
		a.become(now, m, l)
	}
	if newest {
		m.anchor(now, s)
	}
}

// line returns the limit as the line has it on which s is another point.
func (t *learnt) line(l Limit, s *Meter) Limit {
	if s.Reset <= 0 || l.Shape == Window {
		return l
	}
	used, longer := t.first.left-s.Remaining, int64(s.Reset)-t.first.full
	fine := int64(time.Millisecond)
	if s.Reset%time.Second == 0 {
		fine = grain
	}
	if used > 0 && longer < -2*fine && t.first.full > 0 {
		// Less is left, and yet it is full sooner: that is no bucket.
		t.refills = false
		l.Shape, l.Burst = Window, 0
		if t.per == 0 {
			l.Per, t.doubt = enclosing(time.Duration(t.first.full)), doubtful
		}
		return l
	}
	if used < 0 {
		used, longer = -used, -longer
	}
	if t.per == 0 && used >= sloped && longer >= sloped*fine {
		per := mulDiv(longer, l.Amount, used)
		doubt := 1000/used + 2000*fine/longer
		if per > 0 && per < int64(farthest) && doubt < t.doubt {
			l.Per, t.doubt = nearest(time.Duration(per), 1+float64(doubt)/1000), doubt
		}
	}
	if t.doubt <= surely {
		// Where nothing would be left to refill.
		brim := s.Remaining + mulDiv(int64(s.Reset), l.Amount, int64(l.Per))
		if l.Burst > 0 {
			brim = max(brim, l.Burst)
		}
		if l.Burst = max(brim, 1); brim > l.Amount-l.Amount/10 {
			l.Burst = 0
		}
	}
	return l
}

// become gives a meter another limit; what was charged carries over where the shape is the same.
func (a *account) become(now int64, m *meter, l Limit) {
	source := Configured
	if m.learnt != nil {
		source = m.learnt.source
	}
	to := newMeter(l, a.headroom(source))
	for i := range a.meters {
		o := &a.meters[i]
		if o != m && o.shadows != m.slot+1 {
			continue
		}
		o.catchUp(now)
		switch {
		case o.log != nil && to.log != nil:
			o.log.amount = to.log.amount
			o.log.move(o.log.edge, int64(l.Per))
		case o.log == nil && to.log == nil:
			cell := to.cell
			cell, o.cell = o.cell, cell
			cell.resize(o.cell)
			o.cell = cell
		default:
			o.born = a.calls.admissions + 1
			o.cell, o.log = to.cell, to.log
			o.catchUp(now)
		}
		o.limit = l
	}
	a.windows = 0
	slot := m.slot
	a.meters = slices.DeleteFunc(a.meters, func(o meter) bool { return to.log != nil && o.shadows == slot+1 })
	for i := range a.meters {
		if a.meters[i].log != nil {
			a.windows++
		}
	}
	a.changed(now)
}

// anchor notes when the server's window ends.
func (m *meter) anchor(now int64, s *Meter) {
	w, t := m.log, m.learnt
	if w == nil || s.Reset <= 0 {
		return
	}
	w.expire(now)
	edge := later(now, int64(s.Reset))
	if t.edge > 0 && abs(edge-t.edge) < 2*grain {
		// The same window: the answer that was on its way for the shortest time knows best, but for
		// what is rounded to seconds.
		if s.Reset%time.Second == 0 {
			edge = max(edge, t.edge)
		} else {
			edge = min(edge, t.edge)
		}
	}
	t.edge = edge
	w.move(edge, w.per)
}

// next is the period of the windows, of which one more may have begun: it is the least time between
// two ends.
func (t *learnt) next(now int64, l Limit, s *Meter) time.Duration {
	edge := later(now, int64(s.Reset))
	gap := time.Duration(edge - t.edge)
	if t.per > 0 || t.edge == 0 || gap < 2*time.Duration(grain) || gap < s.Reset {
		return l.Per
	}
	if gap = nearest(gap, 1.05); t.doubt == doubtful || gap < l.Per {
		t.doubt = 0
		return gap
	}
	return l.Per
}

// restful is the longest that a key rests for the end of a window without a probe.
const restful = int64(time.Minute) + 2*grain

// anchored reports whether the server has stated that a window of its own ends then, soon enough to
// wait for it.
func (m *meter) anchored(now, at int64) bool {
	return m.log != nil && m.log.edge != 0 && at-now <= restful
}
