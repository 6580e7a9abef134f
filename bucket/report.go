package bucket

import "slices"

// report: what the answer said is left.
func (c *call) report(id uint64, meters []Meter) {
	if c.foreign != nil {
		c.foreign.Report(id, slices.Clone(meters)) // a clone, so that the caller's need not escape
		return
	}
	a := c.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.id != id {
		return
	}
	var later Cost
	var now int64
	learnt, looked := false, false
	for i := range meters {
		s := &meters[i]
		m := a.match(s)
		if m == nil && a.pacer == nil {
			continue
		}
		if !looked {
			looked = true
			later = a.calls.after(c)
			now = a.tick(a.local.now())
		}
		if m == nil || m.learnt != nil {
			if m = a.learn(now, c, s); m == nil {
				continue
			}
		}
		learnt = true
		if m.log == nil && (m.scaled || s.Limit > m.limit.Amount && m.learnt == nil) {
			m = a.shadow(m)
		}
		m.catchUp(now)
		m.compare(now, c, s)
		if m.state(now, c.number, s, m.share(later)) {
			c.stated |= 1 << m.slot
		}
	}
	if learnt {
		a.moveUp()
	}
}

// match finds the limit that a meter of the server's speaks of, or nil.
func (a *account) match(s *Meter) *meter {
	if s.Remaining < 0 {
		return nil
	}
	var only, same *meter
	n, exact := 0, 0
	for i := range a.meters {
		m := &a.meters[i]
		if m.limit.Unit != s.Unit || m.shadows > 0 {
			continue
		}
		only = m
		n++
		if s.Per > 0 && m.limit.Per == s.Per || s.Per <= 0 && m.limit.Amount == s.Limit {
			same = m
			exact++
		}
	}
	switch {
	case n == 1:
		return only
	case exact == 1:
		return same
	}
	return nil
}

// shadow returns the meter that stands in for the server's own where m keeps below it, by Headroom
// or by a smaller Amount. It is charged and refills as m does, and a call must fit both; but what
// the server says sets the shadow alone, so that m stays a limit however much the server has left,
// and an answer that told of too little is put right by the next.
func (a *account) shadow(m *meter) *meter {
	for i := range a.meters {
		if a.meters[i].shadows == m.slot+1 {
			return &a.meters[i]
		}
	}
	if a.slots >= maxLimits {
		return m
	}
	s := *m
	s.shadows = m.slot + 1
	s.slot = uint8(a.slots)
	s.foreign, s.strange, s.told = 0, 0, statement{}
	a.slots++
	a.meters = append(slices.Clip(a.meters), s)
	return &a.meters[len(a.meters)-1]
}

// state sets the level to what the server says is left, less what it cannot know yet: all that was
// admitted after the call that it answered, and reports whether the server speaks for the level from
// now on, so that the call's refund is dropped. A level is raised only by the latest call that has an
// answer: an older answer knows less, not more. A limit of one's own is only ever lowered, and keeps
// the refund of whoever did not lower it.
func (m *meter) state(now int64, number uint64, s *Meter, later int64) bool {
	raise := number >= m.reporter
	if raise {
		m.reporter = number
	}
	own := m.shadows == 0 && (m.scaled || s.Limit > m.limit.Amount) // a Window: others have a shadow
	raise = raise && !own
	remaining := s.Remaining
	if m.log != nil {
		left := remaining - later
		switch have := m.log.amount - m.log.used; {
		case left < have:
			m.log.charge(now, have-left)
		case raise:
			m.log.relieve(left - have)
		default:
			return !own
		}
		return true
	}
	level := m.cell.brim
	if left := remaining - later; left < 0 {
		level = max(-m.cell.units(-left), floor)
	} else {
		level = min(m.cell.units(left), level)
	}
	if !raise && level >= m.cell.level {
		return !own
	}
	m.cell.level = level
	return true
}
