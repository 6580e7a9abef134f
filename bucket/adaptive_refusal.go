package bucket

import "time"

// unhinted says that a refusal came without a word of the server's on how long to wait.
const unhinted = time.Duration(-1)

// lesson learns from the refusal of c, which is still open. hint is how long the server asks to
// wait, without what the caller adds to it.
//
// What left before the first refusal of the last crowd came back belongs to that crowd: it says
// nothing new.
func (p *pacer) lesson(a *account, now int64, c *call, hint time.Duration) {
	if trip := max(now-c.left, 1); p.refused == 0 || trip < p.refused {
		p.refused = trip
	}
	if c.left <= p.event {
		return
	}
	first := p.estimates == nil
	if first {
		p.estimate(a, now)
	}
	after := a.calls.after(c)
	p.depth(a, now, c, after)
	if hint >= 0 && p.windowed(a, now, c, int64(hint)) {
		p.count(a, now, int64(hint))
	} else {
		p.draw(a, now, c, hint, first)
	}
	p.event = now
	for i := range p.estimates {
		p.estimates[i].taken = 0
	}
}

// estimate starts the estimates from the levels of the limits.
func (p *pacer) estimate(a *account, now int64) {
	p.estimates = make([]estimate, 0, len(a.meters))
	for i := range a.meters {
		m := &a.meters[i]
		if m.shadows > 0 {
			break // and all that follow
		}
		m.catchUp(now)
		e := estimate{brim: m.span(m.capacity()), at: now, learned: million, since: now}
		e.burst, e.debt = e.brim, m.owing(now)
		p.estimates = append(p.estimates, e)
	}
}

// depth notes in base how much of each meter was taken when c left, itself not counted.
func (p *pacer) depth(a *account, now int64, c *call, after Cost) {
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		back := m.wholeSpan(m.share(after)) + m.span(m.share(c.cost))
		if p.mode == counting {
			e.base = max(e.debt-back, 0)
			continue
		}
		e.refill(now)
		e.base = max(e.debt-back+mulDiv(now-c.left, e.rate(now), million), 0)
	}
}

// windowed reports whether only a window explains that the server asks to wait for hint: a bucket
// asks for no longer than the call takes to be refilled, at half of the published rate even.
func (p *pacer) windowed(a *account, now int64, c *call, hint int64) bool {
	if len(p.estimates) == 0 {
		return false
	}
	if p.mode == counting {
		period := p.period(a)
		if off := (later(now, hint) - p.boundary) % period; min(abs(off), period-abs(off)) <= grain+grain/2 {
			return true
		}
	}
	return hint > 2*p.longest(a, c)
}

// longest is the longest time that a bucket at the published rate asks to wait for c.
func (p *pacer) longest(a *account, c *call) int64 {
	need := grain
	for i := range p.estimates {
		m := &a.meters[i]
		need = max(need, roundUp(m.span(m.share(c.cost))))
	}
	return need
}

func roundUp(span int64) int64 { return (span + grain - 1) / grain * grain }

func abs(x int64) int64 { return max(x, -x) }

// count goes over to a window that ends when the server's hint is over.
func (p *pacer) count(a *account, now, hint int64) {
	end := later(now, hint)
	if p.mode == counting {
		// The grid stands; a hint is rounded up, so that the sooner one is nearer to the truth.
		period := p.period(a)
		for p.boundary < end-period/2 {
			p.boundary = later(p.boundary, period)
		}
		p.boundary = min(p.boundary, end)
	} else {
		p.boundary = end
	}
	p.mode = counting
	p.marked = false
	for i := range p.estimates {
		e := &p.estimates[i]
		e.debt = max(e.debt, e.brim) // nothing more is to be had of it
		e.base = e.debt
	}
}

// draw goes over to a bucket, and learns what it holds or how fast it refills.
func (p *pacer) draw(a *account, now int64, c *call, hint time.Duration, first bool) {
	was := p.mode
	p.mode = drawing
	i := p.blame(a, c, hint)
	if i < 0 {
		return
	}
	e, m := &p.estimates[i], &a.meters[i]
	own := m.span(m.share(c.cost))
	if first || was != drawing {
		e.burst = min(max(e.base, own), e.burst)
		return
	}
	rate := e.rate(now)
	spent := e.taken - m.wholeSpan(m.share(a.calls.after(c))) - own
	held := p.released - p.event
	var measured int64
	switch {
	case mulDiv(max(held, 0), rate, million) <= e.burst:
		// It was empty at both ends, and never full in between.
		measured = mulDiv(max(spent, 0), million, max(now-p.event, 1))
	case now-p.released > 3*e.burst:
		measured = mulDiv(max(spent-e.burst, 0), million, max(now-p.released, 1))
	default:
		measured = million
	}
	if measured >= rate-rate/32 {
		e.burst = max(min(e.base, e.burst-own/4), own, 1)
		return
	}
	e.learned = max(measured, mulDiv(rate, deepestCut, million))
	e.since = now
}

// blame is the meter that refused c: the only one that could ask to wait for so long, or else the one
// with the least to spare.
func (p *pacer) blame(a *account, c *call, hint time.Duration) int {
	could, n := -1, 0
	least, spare := -1, int64(0)
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		span := m.span(m.share(c.cost))
		if span == 0 {
			continue
		}
		if roundUp(span) >= int64(hint) {
			could = i
			n++
		}
		if s := e.burst - e.base - span; least < 0 || s < spare {
			least, spare = i, s
		}
	}
	if n == 1 {
		return could
	}
	return least
}

// wholeSpan is span without the bound of a capacity.
func (m *meter) wholeSpan(amount int64) int64 {
	if amount <= 0 {
		return 0
	}
	if m.log != nil {
		return mulDiv(amount, m.log.per, m.log.amount)
	}
	return satMul(mulDiv(amount, m.cell.den, m.cell.num), m.cell.step)
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

// held notes the hold that a refusal brought. A server that says how long to wait has said when it
// will serve again, the refused call at least: the release is spaced, and needs no ramp.
func (p *pacer) held(a *account, now int64, cost Cost, hint time.Duration) {
	p.released = max(now, a.hold.until)
	if hint == unhinted || len(p.estimates) == 0 {
		return
	}
	a.ramp.end()
	if p.mode != drawing {
		return
	}
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		room := max(e.burst-m.span(m.share(cost)), 0)
		e.debt = min(e.debt, later(room, mulDiv(int64(hint), e.rate(now), million)))
	}
}

// correct books that c came to cost final.
func (p *pacer) correct(a *account, c *call, final Cost) {
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		was, is := m.wholeSpan(m.share(c.cost)), m.wholeSpan(m.share(final))
		e.debt = min(max(e.debt+is-was, 0), never)
		if c.left > p.event {
			e.taken = min(max(e.taken+is-was, 0), never)
		}
	}
}

// relearn begins the estimates again for other limits: what was learned was of the old ones.
func (p *pacer) relearn(a *account, now int64) {
	if p.estimates != nil {
		p.mode = drawing
		p.estimate(a, now)
	}
}
