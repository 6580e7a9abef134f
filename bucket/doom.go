package bucket

import "time"

// doomed reports whether w cannot leave before its deadline.
func (a *account) doomed(now int64, w *waiter) bool {
	at, _ := a.departs(now, w.cost, w.place, w.since)
	return at > w.deadline
}

// tooLate is the refusal of a call that could not leave in time.
func (a *account) tooLate(now int64, cost Cost, place Place, since int64, cause error) error {
	at, unit := a.departs(now, cost, place, since)
	return &WaitError{Key: a.key, Unit: unit, Wait: time.Duration(at - now), cause: cause}
}

// departs is a lower bound of the instant at which a call at this place leaves, and the unit of
// the limit that binds. It assumes that nothing is refunded, that nothing but the line itself is
// charged, that every slot is free in time and that every probe is served at once.
//
// With one limit it is exact, given those assumptions, as long as nobody before the call is heavy.
// The cost of a line is not looked at one by one: whatever leaves on a level must find the sum of
// all before it and its own refilled, in whatever steps they left.
func (a *account) departs(now int64, cost Cost, place Place, since int64) (int64, Unit) {
	start := max(now, a.hold.until)
	own, sooner, pred, borne, unit := start, start, start, start, Requests
	for i := range a.meters {
		m := &a.meters[i]
		q := m.arrears(a, start, m.share(cost), place)
		if q.own > own {
			own, unit = q.own, m.limit.Unit
		}
		sooner = max(sooner, q.sooner)
		pred = max(pred, q.pred)
		if m.learnt == nil {
			borne = max(borne, q.borne)
		}
	}
	if a.local.maxWait < 0 || a.local.refuseOverdue {
		return own, unit
	}
	// It may be overdue before that, or those before it may. But nobody is, in a line that moves:
	// there it is overdue no sooner than MaxWait after the one before it left.
	overdue := a.patience(now, since)
	if overdue >= own && own == sooner {
		return own, unit
	}
	if a.moves(now, start, place) {
		overdue = max(overdue, later(pred, a.local.maxWait))
	} else {
		own = sooner
	}
	return min(own, max(overdue, borne)), unit
}

// arrears are the instants at which one meter could let go a place in line.
type arrears struct {
	own    int64 // the call at the place, if nobody before it leaves on debt
	sooner int64 // the call, if those before it may
	pred   int64 // the one before it
	borne  int64 // the call, if it may leave a capacity of debt behind
}

// arrears looks at this meter only, for a call of cost own at this place; start is when the hold ends.
func (m *meter) arrears(a *account, start, own int64, place Place) arrears {
	queued, capped := m.ahead(a, place)
	if m.log != nil {
		w := m.log
		total := capped + min(own, w.amount)
		return arrears{
			own:    w.drain(start, total, w.amount, w.amount),
			sooner: w.drain(start, total, w.amount, 2*w.amount),
			pred:   w.drain(start, capped, w.amount, w.amount),
			borne:  w.drain(start, total, 2*w.amount, 2*w.amount),
		}
	}
	c := m.cell
	c.refill(start)
	all := c.units(queued + own)
	want := all
	switch {
	case own == 0:
		// It leaves with the one before it, which need not wait for its own debt.
		all = c.units(capped)
		want = all
	case own > c.room:
		want = later(c.units(queued), c.brim)
	}
	at := max(c.reach(want), start)
	return arrears{
		own:    at,
		sooner: at, // whoever left on debt has to be refilled all the same
		pred:   max(c.reach(c.units(capped)), start),
		borne:  max(c.reach(all-c.brim), start),
	}
}

// ahead is the sum of what waits before place: whole, and what of each call fits the capacity.
func (m *meter) ahead(a *account, place Place) (queued, capped int64) {
	if !place.before(a.line.last) && place != a.line.last {
		return m.queued, m.capped
	}
	a.line.before(place, func(w *waiter) {
		own := m.share(w.cost)
		queued += own
		capped += min(own, m.capacity())
	})
	return queued, capped
}

// heavy reports whether a call of this cost could become overdue in a line that moves: because its
// cost alone takes more than MaxWait to be refilled, or because it leaves debt to those behind it.
func (a *account) heavy(cost Cost) bool {
	wait := a.local.maxWait
	if wait < 0 {
		return false
	}
	for i := range a.meters {
		m := &a.meters[i]
		own := m.share(cost)
		switch {
		case own == 0:
		case m.log != nil:
			if m.log.per > wait {
				return true
			}
		case own > m.cell.room || m.cell.span(own) > wait:
			return true
		}
	}
	return false
}

// moves reports whether nobody in line before place becomes overdue.
func (a *account) moves(now, start int64, place Place) bool {
	if a.line.first(place) || a.line.heavy > 0 {
		return false
	}
	head := a.line.head()
	leaves := start
	for i := range a.meters {
		m := &a.meters[i]
		leaves = max(leaves, m.arrears(a, start, m.share(head.cost), head.place).own)
	}
	return leaves <= a.patience(now, head.since)
}
