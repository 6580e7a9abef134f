package bucket

import "time"

// unhinted says that a refusal came without a word of the server's on how long to wait.
const unhinted = time.Duration(-1)

// soon is how near two refusals are that no mistaken burst explains: then the rate is too high.
const soon = int64(10 * time.Second)

// fewer is how many calls are between two refusals, where calls are rare, that are as near as that.
const fewer = 100

// little is the part by which one stays below a rate that was found, so that it is not found again and
// again.
const little = 32

// shallowest is what no bucket holds less than: half of what it refills in a second.
const shallowest = grain / 2

// memory is how many calls, about, the measurements are of that a learned rate is the mean of. Somebody
// else's calls come by chance: what a few calls met between two refusals may be half of what there is,
// or twice. A change is to be believed after a handful of refusals all the same.
const memory = 40

// patient and longestYield bound how a call is tried that somebody else leaves no room: from that many
// refusals in a row on the waits double, up to one that costs little when the other has gone.
const (
	patient      = 3
	longestYield = 8 * grain
)

// few is how many calls a rate is measured by at least.
const few = 4

// nobody is the index of no estimate.
const nobody = -1

// lesson learns from the refusal of c, which is still open. hint is how long the server asks to
// wait, without what the caller adds to it; inferred says that the limit is what c has taught, and that
// of a bucket there is no more to learn.
//
// What left before the first refusal of the last crowd came back belongs to that crowd: it says
// nothing new.
func (p *pacer) lesson(a *account, now int64, c *call, hint time.Duration, inferred bool) {
	if trip := max(now-c.left, 1); p.refused == 0 || trip < p.refused {
		p.refused = trip
	}
	p.unserved(a, c)
	if c.left <= p.event {
		p.crowded(a, c)
		return
	}
	if p.estimates == nil {
		p.estimate(a, now)
	}
	p.depth(a, now, c)
	period, window := p.explain(a, now, c, int64(hint))
	p.drain(c, hint > 0 || window)
	switch {
	case window:
		p.count(now, int64(hint), period)
	case period == 0 && len(p.estimates) > 0:
		// It is a penalty, or of a limit that is not known: all there is to do is to wait.
		if p.blamed = nobody; p.mode == opening {
			p.estimates = nil // it still is
		}
	case inferred:
		p.uncount()
		p.blamed = nobody
	case p.mode != counting || p.dry == dawn:
		p.draw(a, now, c, hint, period)
	}
	p.event = now
	p.vain++
}

// unserved takes the request of a refused call from what was served; its tokens come back by correct.
func (p *pacer) unserved(a *account, c *call) {
	for i := range p.estimates {
		if e, m := &p.estimates[i], &a.meters[i]; c.left > e.from {
			e.taken -= m.wholeSpan(m.share(Cost{Requests: c.cost.Requests}))
		}
	}
}

// crowded learns from another refusal in a crowd. Calls that leave together may arrive in any order:
// the bucket was empty before the least of them.
func (p *pacer) crowded(a *account, c *call) {
	if p.mode != drawing || p.blamed == nobody || len(c.depths) != len(p.estimates) {
		return
	}
	e, m := &p.estimates[p.blamed], &a.meters[p.blamed]
	own := m.span(m.share(c.cost))
	base := c.depths[p.blamed] - own
	e.proven = max(e.before, min(e.proven, base))
	if p.shallow {
		e.burst = min(e.burst, max(base, own))
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
		e := estimate{period: periodic(m.limit.Per), brim: m.span(m.capacity()), at: now, from: dawn, learned: million, since: now}
		e.burst, e.debt = e.brim, m.owing(now)
		if t := m.learnt; t != nil && t.holds > 0 {
			e.burst = m.span(t.holds)
			e.debt = min(e.debt, e.burst)
		}
		p.estimates = append(p.estimates, e)
	}
	p.shortest = p.longer(0)
	for i := range p.estimates {
		m := &a.meters[i]
		depth := p.estimates[i].debt
		for c := a.calls.tail; c != nil; c = c.prev {
			if i == 0 {
				c.depths = c.depths[:0] // of other limits
			}
			c.depths = append(c.depths, depth)
			depth = max(depth-m.span(m.share(c.cost)), 0)
		}
	}
}

// depth notes in base how much of each meter was taken when c left, itself not counted. All that
// was taken before it is thought to be served, also where no answer is here yet.
func (p *pacer) depth(a *account, now int64, c *call) {
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		if p.mode != counting {
			e.refill(now)
		}
		if i < len(c.depths) {
			e.base = max(c.depths[i]-m.span(m.share(c.cost)), 0)
		}
		e.before = e.proven
		e.prove(e.base)
	}
}

func roundUp(span int64) int64 { return (span + grain - 1) / grain * grain }

func abs(x int64) int64 { return max(x, -x) }

// draw goes over to a bucket, and learns what one of that period holds or how fast it refills.
func (p *pacer) draw(a *account, now int64, c *call, hint time.Duration, period int64) {
	p.uncount()
	i := p.blame(a, now, c, hint, period)
	if i == nobody {
		return
	}
	e, m := &p.estimates[i], &a.meters[i]
	own := m.span(m.share(c.cost))
	p.blamed, p.shallow = i, true
	e.tire(own)
	rate := e.rate(now)
	steady := e.learned == million && now-e.from >= soon // nothing speaks against the published rate
	switch {
	case e.base+own > e.proven:
		// So much has never been served: it is more than the bucket holds.
		e.shrink(now, max(e.base, own))
	case e.idle > 0 && steady && e.burst > own:
		// It was full since the last refusal, and yet did not hold what it held before.
		e.shrink(now, max(min(e.base, e.burst-own/4), own))
	case e.idle > 0 && steady:
		// It holds one call: only a slower rate leaves something to spare.
		e.slow(now, rate-rate/little)
		e.empty(now)
	default:
		// It was empty at both ends, and not full for long in between.
		p.shallow = false
		spent := e.taken - m.wholeSpan(m.share(a.calls.after(c))) - m.wholeSpan(m.share(Cost{InputTokens: c.cost.InputTokens, OutputTokens: c.cost.OutputTokens}))
		if spent < few*own { // too little to tell a rate by: measure on
			e.slow(now, rate-rate/little)
			break
		}
		lately, together := e.measure(spent, max(now-e.from-e.idle, 1))
		found := min(together, max(lately, rate))
		e.slow(now, found-found/little)
		e.empty(now)
	}
}

// blame is the meter of that period that refused c: the only one that could ask to wait for so long, or else the one
// of which so much was never served before, or else the one with the least to spare.
func (p *pacer) blame(a *account, now int64, c *call, hint time.Duration, period int64) int {
	could, n := nobody, 0
	newest, beyond := nobody, int64(0)
	least, spare := nobody, int64(0)
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		span := m.span(m.share(c.cost))
		if span == 0 || e.period != period {
			continue
		}
		if roundUp(span) >= int64(hint) {
			could = i
			n++
		}
		if b := e.base + span - e.proven; b > 0 && e.base+span >= shallowest && (newest == nobody || e.base+span > beyond) {
			newest, beyond = i, e.base+span
		}
		if s := e.burst - e.base - span; least == nobody || s < spare {
			least, spare = i, s
		}
	}
	switch {
	case n == 1:
		return could
	case newest != nobody:
		return newest
	}
	if least != nobody && least == p.blamed && now-p.event < max(soon, fewer*p.estimates[least].mean) {
		// What it was taught just now has not helped: perhaps it was another one.
		for i := range p.estimates {
			e, m := &p.estimates[i], &a.meters[i]
			if span := m.span(m.share(c.cost)); i != least && span > 0 && e.period == period && e.base+span >= max(min(e.burst/2, span+span/2), shallowest) {
				return i
			}
		}
	}
	return least
}

// held notes the hold that a refusal brought. A server that says how long to wait has said when it
// will serve again, the refused call at least: the release is spaced, and needs no ramp.
func (p *pacer) held(a *account, now int64, cost Cost, hint time.Duration) {
	p.released = max(now, a.hold.until)
	if hint == unhinted || len(p.estimates) == 0 || hint == 0 && p.mode == counting {
		return // of a window's end, zero says nothing
	}
	a.ramp.end()
	if p.mode != drawing {
		return
	}
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		room := max(e.burst-m.span(m.share(cost)), 0)
		rate := e.rate(now)
		e.debt = min(e.debt, later(room, mulDiv(int64(hint), rate, million)))
		if i == p.blamed { // a hint is rounded up
			rest := max(int64(hint)-grain, 0, p.yield(int64(hint)))
			e.debt = max(e.debt, later(room, mulDiv(rest, rate, million)))
		}
	}
}

// yield is how long to leave the server alone when it has refused patient times in a row and served nothing
// in between: the wait it asks for is not enough, somebody else takes what comes in. A large call meets
// this beside a quick client; asking on would only count refusals.
func (p *pacer) yield(hint int64) int64 {
	if p.vain < patient {
		return 0
	}
	return min(min(max(hint, grain), longestYield)<<min(p.vain-patient, longestYield/grain), longestYield)
}

// correct books that c came to cost final.
func (p *pacer) correct(a *account, c *call, final Cost) {
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		was, is := m.wholeSpan(m.share(c.cost)), m.wholeSpan(m.share(final))
		e.debt = min(max(e.debt+is-was, 0), never)
		if c.left > e.from {
			e.taken = min(e.taken+is-was, never)
		}
	}
}

// relearn begins the estimates again for other limits: what was learned was of the old ones.
func (p *pacer) relearn(a *account, now int64) {
	if p.estimates != nil {
		p.mode, p.blamed = drawing, nobody
		p.estimate(a, now)
	}
}
