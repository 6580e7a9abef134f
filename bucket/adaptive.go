package bucket

import (
	"math/rand/v2"
	"time"
)

// A pacer is what Adaptive knows of one key's server. It keeps calls back that the limits would let
// go, and never lets one go that they would not.
//
// No limit tells how a server meters: 600 a minute may be a bucket of 600, one of 10 that refills
// ten times a second, or a count that starts again with every minute. They look alike until one
// refuses. So the calls of a crowd are let out one after the other, a gap apart: the refusal of one
// stops the rest, and what was taken before it is what the server holds.
//
// A pacer is in one of three modes. It starts opening; a refusal makes it drawing or counting. All
// times and amounts are integer nanoseconds: an amount is the time in which the published rate
// refills it, so that requests and tokens can be held against each other.
type pacer struct {
	mode  mode
	first int64 // when the first call left
	next  int64 // nobody leaves before, unless few are unanswered
	gap   int64 // between two departures, while opening and while counting
	late  int64 // drawing: how long the next call leaves more than it needs in buckets of the shortest period

	flying  int   // calls that have no answer yet
	served  int64 // the fastest round trip of a served call; 0 when none is known
	refused int64 // the fastest of a refused one
	halved  int64 // when gap was last made smaller

	event    int64 // when the first refusal of the latest crowd came back
	vain     int64 // crowds refused since a call was served that left after one
	released int64 // when the hold that followed it ended
	boundary int64 // counting: when the server's window ends, at the latest
	period   int64 // counting: how long it is
	blur     int64 // counting: how much sooner it may end
	stated   bool  // counting: the server said when it ends
	marked   bool  // counting: the time in which it may end has begun
	belied   int   // counting: how often in it something was served soon after a refusal that told no wait

	dry   int64 // when the first call left of those that nothing was served after and that no hint came back for
	dried int64 // when the latest of them left

	estimates []estimate // one for each meter, once a refusal has come
	shortest  int64      // of their periods
	blamed    int        // the one that the last refusal was laid to
	shallow   bool       // and it was its burst
}

// A mode is how the server meters, as far as one knows.
type mode uint8

const (
	opening  mode = iota // it has not refused yet: the limits are believed
	drawing              // from a bucket: what it holds and how fast it refills is learned
	counting             // in a window that ends at a known time
)

const (
	// quickest is how fast a refusal is taken to come back until one has: a round trip within a
	// continent. A served answer says more: a refusal takes about a tenth of it.
	quickest    = 25 * time.Millisecond
	servedShare = 10

	// crowd is how many may be without an answer before anybody is kept back that has not been
	// refused, and how many may be sent in the time that a refusal takes, once the server has served
	// some: so many may be refused with the first one. Half a percent of a minute's calls is not much
	// at any rate, nor is a fiftieth of what was taken before it.
	crowd      = 5
	crowdShare = 200
	takenShare = 50

	// pourShare is how many leave in the time of a refusal at the start of a window.
	pourShare = 8

	// wallShare is the part of a window in which calls leave alone again before one was refused.
	wallShare = 16

	// chanceShare is the part of a burst that may be left to chance; see ready.
	chanceShare = 8

	// grain is what servers round a Retry-After up to.
	grain = int64(time.Second)
)

// refusalTime is how long a refusal takes to come back.
func (p *pacer) refusalTime() int64 {
	if p.refused > 0 {
		return p.refused
	}
	if p.served > 0 {
		return p.served / servedShare
	}
	return int64(quickest)
}

// alone is the gap in which a refusal comes back before the next call leaves.
func (p *pacer) alone() int64 {
	t := p.refusalTime()
	return t + t/4
}

// newPacer returns the pacer of a key with these limits, of whose server nothing is known. Whoever has
// stated the shape of every limit, by a Burst or as a Window, is believed until a refusal.
func newPacer(meters []meter) *pacer {
	p := &pacer{blamed: nobody, first: dawn, next: dawn, halved: dawn, event: dawn, released: dawn, dry: dawn}
	if len(meters) == 0 {
		p.gap = p.alone()
	}
	for i := range meters {
		if meters[i].log == nil && meters[i].limit.Burst == 0 {
			p.gap = p.alone()
		}
	}
	return p
}

// A call leaves up to its own refill later than its bucket would let it, by chance: two clients in step
// would else never meet, and one of them would take all. The bucket keeps what is not taken.

// ready is the instant from which a call of this cost may leave, as far as the pacer goes.
func (p *pacer) ready(a *account, now int64, cost Cost) int64 {
	at := p.next
	if p.flying == 0 || p.flying < crowd && p.mode == opening {
		at = now
	}
	if p.mode == opening {
		return at
	}
	if p.mode == counting {
		p.turn(a, now)
	}
	for i := range p.estimates {
		e, m := &p.estimates[i], &a.meters[i]
		span := m.span(m.share(cost))
		if p.mode == drawing {
			late := p.late
			if e.period > p.shortest {
				late = 0
			}
			at = max(at, e.ready(now, span, late))
		} else if e.period == p.period && e.spent(e.debt, span) {
			if p.stated && p.boundary-now <= restful {
				a.hold.extend(now, p.boundary) // patience stands still until then
			}
			at = max(at, p.boundary)
		}
	}
	return at
}

// sent notes that c leaves now.
func (p *pacer) sent(a *account, now int64, c *call) {
	p.flying++
	if p.first == dawn {
		p.first = now
	}
	gap := p.gap
	switch p.mode {
	case drawing:
		gap = p.alone()
		steady, chance := int64(0), int64(0)
		for i := range p.estimates {
			e, m := &p.estimates[i], &a.meters[i]
			span := m.span(m.share(c.cost))
			c.depths = append(c.depths, e.take(now, span))
			if lasts := e.lasts(span); lasts > steady && e.period == p.shortest {
				steady, chance = lasts, min(span, (e.burst-min(span, e.burst))/chanceShare)
			}
		}
		if steady > 0 {
			gap = min(gap, steady/2)
			p.late = rand.Int64N(chance + 1)
		}
	case counting:
		for i := range p.estimates {
			e, m := &p.estimates[i], &a.meters[i]
			if e.period != p.period {
				e.refill(now)
			}
			depth := e.take(now, m.span(m.share(c.cost)))
			c.depths = append(c.depths, depth)
			if e.wall > 0 && abs(depth-e.wall) < e.period/wallShare {
				gap = max(gap, p.alone())
			}
		}
		if now >= later(p.halved, p.alone()) {
			// What left that long ago was not refused.
			p.halved = now
			p.gap = max(p.gap/2, p.refusalTime()/pourShare)
		}
	}
	p.next = later(now, gap)
}

// landed notes that a call is served, or has ended without that.
func (p *pacer) landed() { p.flying-- }

// measures reports whether the time of a served answer is of use.
func (p *pacer) measures() bool { return p.mode != opening || p.gap > 0 }

// proved notes that c, which is served now, was not too much, and how long it took.
func (p *pacer) proved(a *account, now int64, c *call) {
	if c.left > p.event {
		p.flood(a, now, c)
	}
	if p.mode == drawing {
		for i := range p.estimates {
			// Whatever serves a call holds as much, whatever was thought of it.
			e, m := &p.estimates[i], &a.meters[i]
			e.burst = max(e.burst, m.span(m.share(c.cost)))
			if c.left > p.event && i < len(c.depths) {
				e.find(c.depths[i])
			}
		}
	}
	trip := max(now-c.left, 1)
	if p.served == 0 || trip < p.served {
		p.served = trip
	}
	if p.mode != opening || now < later(p.halved, p.served) {
		return
	}
	p.halved = now
	p.gap = max(p.gap/2, p.least(a, now))
}

// least is the smallest gap while opening.
func (p *pacer) least(a *account, now int64) int64 {
	many, taken := int64(0), int64(0) // a minute's calls, and how many are taken and not refilled
	for i := range a.meters {
		if m := &a.meters[i]; m.limit.Unit == Requests {
			if n := m.perMinute(); many == 0 || n < many {
				many, taken = n, mulDiv(m.owing(now), n, int64(time.Minute))
			}
		}
	}
	if many == 0 {
		return 0
	}
	return p.refusalTime() / max(crowd, many/crowdShare, taken/takenShare)
}
