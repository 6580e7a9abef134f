package bucket

// A meter is one limit of one key with its state, of either shape.
type meter struct {
	cell  cell    // the level of a TokenBucket
	log   *window // the charges of a Window; nil for a TokenBucket
	mask  Cost    // all ones in each component that it counts
	limit Limit

	scaled   bool      // by a Headroom below 1
	shadows  uint8     // the slot, plus one, of the meter that it is the shadow of; 0 if it is none
	slot     uint8     // its bit in call.stated, its index in call.logged
	born     uint64    // the first admission that it charged
	reporter uint64    // the latest admission that has reported on it
	foreign  int64     // what others took, as reports show it
	told     statement // by the latest report
	strange  int64     // how much of it the latest report showed
	learnt   *learnt   // how it came about, where it is not configured

	// What waits in line: the sum of the costs, and the sum of what of them fits the capacity.
	// Less than half a million calls of maxCost fit; no line is that long.
	queued int64
	capped int64
}

var masks = [...]Cost{
	Requests:     {-1, 0, 0},
	Tokens:       {0, -1, -1},
	InputTokens:  {0, -1, 0},
	OutputTokens: {0, 0, -1},
}

// share is what a call of this cost is charged here.
func (m *meter) share(c Cost) int64 {
	return c.Requests&m.mask.Requests + c.InputTokens&m.mask.InputTokens + c.OutputTokens&m.mask.OutputTokens
}

func newMeter(l Limit, headroom int64) meter {
	m := meter{limit: l, mask: masks[l.Unit], scaled: headroom < headroomSteps}
	if l.Shape == Window {
		m.log = newWindow(l, headroom)
	} else {
		m.cell = newCell(l, headroom)
	}
	return m
}

// fresh returns a meter of the same limit that nothing was charged to.
func (m *meter) fresh() meter {
	f := *m
	if f.log != nil {
		f.log = &window{amount: m.log.amount, per: m.log.per}
	}
	return f
}

// capacity is the most that it admits at one instant, in whole units of its limit.
func (m *meter) capacity() int64 {
	if m.log != nil {
		return m.log.amount
	}
	return m.cell.room
}

// charge takes cost at now; the meter is at now.
func (m *meter) charge(now, cost int64) {
	if m.log != nil {
		m.log.charge(now, cost)
	} else {
		m.cell.charge(cost)
	}
}

// catchUp brings the meter to now.
func (m *meter) catchUp(now int64) {
	if m.log != nil {
		m.log.expire(now)
	} else {
		m.cell.refill(now)
	}
}

// ready is the instant at which a call of cost may leave, if nothing else is charged until then.
func (m *meter) ready(now, cost int64) int64 {
	if m.log != nil {
		return m.log.reach(now, m.log.amount-min(cost, m.log.amount))
	}
	return max(m.cell.reach(m.cell.need(cost)), now)
}

// bears is the instant at which a call of cost leaves no more than a capacity of debt behind.
func (m *meter) bears(now, cost int64) int64 {
	if m.log != nil {
		if cost > 2*m.log.amount {
			return never
		}
		return m.log.reach(now, 2*m.log.amount-cost)
	}
	want := m.cell.units(cost) - m.cell.brim
	if want > m.cell.brim {
		return never
	}
	return max(m.cell.reach(want), now)
}

// inDebt reports whether more is charged than the capacity. Like full it leaves the meter as it is.
func (m *meter) inDebt(now int64) bool {
	if m.log != nil {
		return m.log.reach(now, m.log.amount) > now
	}
	return m.cell.reach(0) > now
}

// full is the instant at which the meter is as good as new.
func (m *meter) full() int64 {
	if m.log != nil {
		return m.log.reach(dawn, 0)
	}
	return m.cell.reach(m.cell.brim)
}

// level is what Stats shows. It leaves the meter as it is.
func (m *meter) level(now int64) Level {
	if m.log != nil {
		return Level{Limit: m.limit, Available: float64(m.log.amount - m.log.usedAt(now)), Capacity: float64(m.log.amount)}
	}
	c := m.cell
	c.refill(now)
	return Level{Limit: m.limit, Available: float64(c.level) / float64(c.den), Capacity: float64(c.brim) / float64(c.den)}
}
