package bucket

// overdue says when patience with a call at the head is over, and what then: it is refused, or it
// leaves as a probe. Nobody is held now.
//
// A call is overdue when nobody has left in the ordinary way for MaxWait of unheld time while it
// waited. Probes leave one at a time, and only as far as no meter owes more than its capacity.
func (a *account) overdue(now int64, cost Cost, since int64) (way, int64) {
	if a.local.maxWait < 0 {
		return stays, never
	}
	at := a.patience(now, since)
	if a.local.refuseOverdue {
		return expires, at
	}
	if a.probe != nil {
		if now < a.probeEnds {
			at = max(at, a.probeEnds)
		} else {
			a.probe = nil
		}
	}
	for i := range a.meters {
		m := &a.meters[i]
		if m.learnt != nil {
			continue // what nobody configured keeps nobody for longer than MaxWait
		}
		at = max(at, m.bears(now, m.share(cost)))
	}
	return probes, at
}

// slotless says what becomes of a call at the head that no slot is free for. MaxInFlight binds
// probes too, so only a refusal can end its patience.
func (a *account) slotless(now, since int64) (way, int64) {
	if a.local.maxWait < 0 || !a.local.refuseOverdue {
		return stays, never
	}
	if at := a.patience(now, since); at > now {
		return stays, at
	}
	return expires, now
}

// patience is the instant at which a call becomes overdue that waits since then, if no further hold
// and nobody's leaving puts it off. MaxWait is not negative.
func (a *account) patience(now, since int64) int64 {
	left := later(max(since, a.lastLeft), a.local.maxWait) - a.hold.unheld(now)
	return later(max(now, a.hold.until), max(left, 0))
}

// answered ends the probe, if c is it.
func (a *account) answered(c *call) {
	if c == a.probe {
		a.probe = nil
	}
}
