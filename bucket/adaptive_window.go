package bucket

import "time"

// wholeShare is the part of a limit by which one may be wrong about all of it: calls arrive in another
// order than they leave in.
const wholeShare = 64

// periodic is a period that a server may count by: no shorter than a hint tells, and a span that can be added to.
func periodic(per time.Duration) int64 { return min(max(int64(per), grain), never) }

// explain finds the period of the limits that c was refused by, and whether they are windows. The shortest
// period that a hint can come from is the one: a bucket asks to wait for no longer than the call takes to be
// refilled, at half of the published rate even, a window for no longer than it is. A window that is nearly over
// asks for no longer than a bucket, but then all of a limit was taken in one period of it.
func (p *pacer) explain(a *account, now int64, c *call, hint int64) (period int64, window bool) {
	if p.mode == counting && hint > 0 && hint <= p.period+grain {
		if off := (later(now, hint) - p.boundary) % p.period; min(abs(off), p.period-abs(off)) <= grain+grain/2 {
			return p.period, true
		}
	}
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		if hint > 0 && (m.anchored(now, later(now, hint)) && m.log.used >= m.log.amount || p.mode == opening && e.whole(m, now-p.first, c)) {
			return e.period, true
		}
	}
	for period = p.longer(0); period > 0; period = p.longer(period + 1) {
		switch need := p.need(a, c, period); {
		case need == 0: // c takes nothing of it
		case hint <= 2*need:
			return period, false
		case hint <= period+grain:
			return period, true
		}
	}
	return 0, false
}

// longer is the shortest period of a limit that is no shorter than least; 0 if there is none.
func (p *pacer) longer(least int64) int64 {
	shortest := int64(0)
	for i := range p.estimates {
		if e := &p.estimates[i]; e.period >= least && (shortest == 0 || e.period < shortest) {
			shortest = e.period
		}
	}
	return shortest
}

// need is the longest time for which a bucket of that period at the published rate asks to wait for c; 0 if c takes
// nothing of any.
func (p *pacer) need(a *account, c *call, period int64) int64 {
	need := int64(0)
	for i := range p.estimates {
		if m := &a.meters[i]; p.estimates[i].period == period && m.share(c.cost) > 0 {
			span := m.span(m.share(c.cost))
			if m.inferred() && m.learnt.holds > m.limit.Amount {
				span = mulDiv(span, m.limit.Amount, m.learnt.holds) // a drought says nothing of a rate
			}
			need = max(need, grain, roundUp(span))
		}
	}
	return min(need, never/2) // twice as long is a span, too
}

// whole reports whether all that was taken since the key's first call comes to a limit, without what a
// bucket would have refilled.
func (e *estimate) whole(m *meter, since int64, c *call) bool {
	own, over := m.span(m.share(c.cost)), m.wholeSpan(m.share(c.charged))-e.period
	full := e.base+own > e.brim-e.brim/wholeShare // a bucket as large would have refused it as well
	return since < e.period && over > 0 && over-own <= e.period/wholeShare && !full
}

// count goes over to windows of that period, of which one ends when the server's hint is over.
func (p *pacer) count(now, hint, period int64) {
	end := later(now, hint)
	again := p.mode == counting && p.period == period
	if again {
		// The grid stands; a hint is rounded up, so that the sooner one is nearer to the truth.
		end = min(nextOnGrid(p.boundary, period, end-period/2), end)
	}
	p.mode, p.period, p.boundary, p.blur = counting, period, end, grain
	p.stated, p.marked, p.blamed, p.belied = true, false, nobody, 0
	fullest := nobody // of what a window has been seen to hold
	for i := range p.estimates {
		e := &p.estimates[i]
		e.wall = 0
		if e.period != period {
			continue
		}
		if again && (fullest == nobody || e.base > p.estimates[fullest].base) {
			fullest = i
		}
		e.debt = max(e.debt, e.period) // nothing more is to be had of it
	}
	if fullest != nobody {
		p.estimates[fullest].wall = p.estimates[fullest].base
	}
	p.mark()
}

// uncount goes over to a bucket.
func (p *pacer) uncount() {
	if p.mode == counting {
		for i := range p.estimates {
			e := &p.estimates[i]
			e.debt = min(e.debt, e.brim) // what windows count is not refilled
		}
	}
	p.mode = drawing
}

// turn goes over to the next window when the last one has ended. What was sent while it may have ended
// may have counted in the new one.
func (p *pacer) turn(a *account, now int64) {
	if !p.marked && now >= p.boundary-p.blur {
		p.marked = true
		p.mark()
	}
	if now < p.boundary {
		return
	}
	p.gap, p.halved, p.belied = p.alone(), now, 0
	for i := range p.estimates {
		if e, m := &p.estimates[i], &a.meters[i]; e.period == p.period {
			e.debt = max(e.debt-e.base, 0)
			if p.stated || m.inferred() {
				m.renew(now, e.debt)
			}
		}
	}
	p.boundary = nextOnGrid(p.boundary, p.period, now+1)
	if p.marked = now >= p.boundary-p.blur; p.marked {
		p.mark()
	}
}

// mark notes what was taken before a boundary that may have been passed.
func (p *pacer) mark() {
	for i := range p.estimates {
		p.estimates[i].base = p.estimates[i].debt
	}
}

// renew makes the limit whole again at the start of a window of the server's, less debt: what an
// answer's headers would say there.
func (m *meter) renew(now, debt int64) {
	m.catchUp(now)
	if m.log != nil {
		m.log.relieve(m.log.used)
		return
	}
	m.cell.level = max(m.cell.level, m.cell.brim-satMul(debt/m.cell.step, m.cell.num))
}

// nextOnGrid is the first of at, at+period, ... that is not before from.
func nextOnGrid(at, period, from int64) int64 {
	if at >= from {
		return at
	}
	return later(at, satMul((from-at-1)/period+1, period))
}

// Where nobody says how long to wait, a window shows itself by a drought: nothing is served for longer than
// any bucket takes to refill a call, and then all of a sudden something is. It is not stated: the limits, which
// a stated window's start fills again, stay as they are, but for those that refusals alone have taught.

// drain notes that c was refused, and whether that told how long to wait.
func (p *pacer) drain(c *call, told bool) {
	switch {
	case told:
		p.dry = dawn
	case p.dry == dawn:
		p.dry, p.dried = c.left, c.left
	default:
		p.dried = c.left
	}
}

// flood learns from c, which is the first that is served after refusals.
func (p *pacer) flood(a *account, now int64, c *call) {
	dry := p.dry
	p.vain, p.dry = 0, dawn
	if p.mode == counting && p.early(a, c) {
		p.relearn(a, now)
		return
	}
	if dry == dawn {
		return
	}
	period := p.longer(p.dried - dry)
	need, stated := p.need(a, c, period), p.mode == counting && p.stated
	if need == 0 || p.dried-dry <= 2*need {
		// That was no window. Once in a while something else refuses, too, beside one that was stated.
		if p.belied++; !stated || p.belied >= patient {
			p.uncount()
		}
		return
	}
	if stated {
		return
	}
	a.widen(now, period)
	p.mode, p.period, p.boundary, p.blur = counting, period, later(c.left, period), min(max(c.left-p.dried, grain), period)
	p.stated, p.marked, p.gap, p.halved, p.blamed = false, false, p.alone(), now, nobody
	began := a.calls.after(c).plus(c.cost)
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		if e.period == period {
			e.wall, e.learned = 0, million // what the drought has taught was wrong
			e.debt = m.wholeSpan(m.share(began))
			if m.inferred() {
				m.renew(now, e.debt)
			}
		}
	}
}

// early reports whether c was a probe of a window of which nothing more was to be had, and left too soon for the
// next one. If it is served, what the server asked to wait for was something else.
func (p *pacer) early(a *account, c *call) bool {
	left := p.boundary - c.left
	if left <= p.blur || left >= p.period {
		return false
	}
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		if own := m.span(m.share(c.cost)); e.period == p.period && i < len(c.depths) && own > 0 && e.spent(c.depths[i]-own, own) {
			return true
		}
	}
	return false
}
