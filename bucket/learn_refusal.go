package bucket

import "time"

// Where neither configuration nor answers say what the limits are, refusals do. What was served before
// the first one is what the server holds; what it served between two is its rate, since it was empty at
// both ends. Until the second one calls leave alone, a gap apart. One meter is made of that, of tokens
// where the calls' tokens differ and of requests else: where all calls cost the same, either says it all.

// An inference is what refusals have shown of a key without limits.
type inference struct {
	at     int64 // of the first refusal; 0 before
	taken  Cost  // what was served before it
	spent  Cost  // by all calls until it
	raised int64 // when the meter was made, or last raised, or refused

	least, most int64 // tokens of the calls
}

const (
	// wide is the span for which no bucket that is worth waiting for holds enough.
	wide = int64(5 * time.Minute)
	// settles is how long a rate is measured at the least before it corrects another.
	settles = int64(4 * time.Second)
	// steps is how long an inferred limit goes unrefused, while calls wait for it, before it is raised by
	// a quarter.
	steps = int64(30 * time.Second)
)

// watch notes what the calls cost that no limit is for.
func (f *inference) watch(c Cost) {
	tokens := c.Of(Tokens)
	if f.most == 0 {
		f.least = tokens
	}
	f.least, f.most = min(f.least, tokens), max(f.most, tokens)
}

// unit is the one that an inferred meter counts.
func (f *inference) unit() Unit {
	if f.most > f.least {
		return Tokens
	}
	return Requests
}

// infer learns from the refusal of c on a key without limits, and reports whether that made or changed one.
func (a *account) infer(now int64, c *call, hint time.Duration) bool {
	f := &a.inferred
	switch {
	case c.left <= a.pacer.event:
		return false
	case len(a.meters) > 0:
		return a.lower(now, c)
	case hint > time.Minute+time.Duration(grain):
		return false // a penalty, or a quota of hours, which is no pace
	}
	unit := f.unit()
	own := max(c.cost.Of(unit), 1)
	spent := a.calls.spent().minus(a.calls.after(c)).minus(c.cost)
	since := spent.minus(f.spent).Of(unit)
	switch {
	case int64(hint) > grain && satMul(max(since, 0)/own, int64(hint)-grain) > wide:
		// A bucket that holds so much and asks for so long would take hours to fill: it is a window.
		a.deduce(now, Limit{Unit: unit, Amount: max(since, own), Per: time.Minute}, 0)
	case f.at == 0:
		f.at, f.taken, f.spent = now, spent, spent.plus(Cost{Requests: c.cost.Requests})
		return false
	default:
		taken := max(f.taken.Of(unit), own)
		amount := mulDiv(max(since, own), int64(time.Minute), max(now-f.at, 1))
		if since > taken/2 {
			amount += amount / 2 // it may have been full in between, and what it refilled then was lost
		}
		a.deduce(now, Limit{Unit: unit, Amount: amount + amount/10 + 1, Per: time.Minute}, taken)
	}
	return true
}

// deduce makes the meter, with nothing left in it; holds is what it held, 0 where that is not known.
func (a *account) deduce(now int64, l Limit, holds int64) {
	if l.Amount = min(l.Amount, maxCost); holds > l.Amount {
		l.Burst = min(holds, maxCost)
	}
	m := newMeter(l, a.headroom(Inferred))
	m.learnt = &learnt{source: Inferred, refills: true, holds: holds}
	m.catchUp(now)
	m.cell.level = 0
	a.inferred.raised = now
	a.grow(now, 0, m)
}

// widen makes an inferred limit of that period what a window of it has held: what was served before the first
// refusal.
func (a *account) widen(now, period int64) {
	for i := range a.meters {
		if m := &a.meters[i]; m.inferred() && periodic(m.limit.Per) == period && m.learnt.holds > m.limit.Amount {
			l := m.limit
			l.Amount, l.Burst = m.learnt.holds, 0
			a.become(now, m, l)
			return
		}
	}
}

// lower puts a rate right that was found in too short a time: calls that cost much are refused by a
// bucket that is not empty. What was served since the first refusal tells it the better the longer.
func (a *account) lower(now int64, c *call) bool {
	f := &a.inferred
	m := &a.meters[0]
	f.raised = now
	if !m.inferred() || a.pacer.mode == counting {
		return false
	}
	spent := a.calls.spent().minus(a.calls.after(c)).minus(c.cost)
	if f.at == 0 { // it was given back
		f.at, f.spent = now, spent
	}
	if now-f.at < settles {
		return false
	}
	l := m.limit
	l.Amount = mulDiv(max(m.share(spent.minus(f.spent)), 1), int64(l.Per), now-f.at)
	l.Amount += l.Amount/50 + 1
	lowered := l.Amount < m.limit.Amount/2
	if lowered {
		m.catchUp(now)
		m.cell.level = min(m.cell.level, 0)
		a.become(now, m, l)
	}
	if now-f.at > int64(time.Minute) {
		f.at, f.spent = now, spent // limits change
	}
	return lowered
}

// raise lets an inferred limit find out whether there is more: refusals only ever show that there is less.
func (a *account) raise(now int64) {
	f := &a.inferred
	if f.raised == 0 || now < later(f.raised, steps) {
		return
	}
	f.raised = now
	for i := range a.meters {
		if m := &a.meters[i]; m.inferred() {
			mode := a.pacer.mode
			l := m.limit
			l.Amount = min(l.Amount+(l.Amount+3)/4, maxCost)
			a.become(now, m, l)
			a.pacer.mode = mode
			return
		}
	}
}
