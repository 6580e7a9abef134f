package bucket

import (
	"sync"
	"sync/atomic"
)

// An account is one key: its meters, its open grants, its queue, its hold. Everything below mu is
// guarded by it. Its parts are in the files named after them; they meet in look, which says
// whether a call may leave, and advance, which lets out the head of the queue.
type account struct {
	local *Local
	key   string
	hash  uint64
	next  atomic.Pointer[account] // in its chain of the table of keys

	mu    sync.Mutex
	gone  bool  // forgotten: look the key up again
	clock int64 // the latest instant it has seen

	meters  []meter
	windows int // how many of them are logs
	slots   int // length of call.logged

	calls calls
	line  line
	hold  hold
	ramp  ramp

	pacer    *pacer // of Adaptive; nil when it is off
	inferred inference
	refusals Refusals

	lastLeft  int64 // when somebody last left who was not overdue, on the unheld clock
	probe     *call // the overdue call whose answer is awaited
	probeEnds int64 // when it is awaited no longer
}

// A way is what may become of the call at the head.
type way uint8

const (
	stays   way = iota
	leaves      // its cost is there
	probes      // it is overdue, and leaves on debt
	expires     // it is overdue, and is refused
)

// look says what may become of a call of this cost at the head of the line, whose patience began
// at since on the unheld clock. For one that stays it adds the instant at which to look again;
// never, if only an event can help it.
func (a *account) look(now int64, cost Cost, since int64) (way, int64) {
	if now < a.hold.until {
		return stays, a.hold.until
	}
	if a.ramp.size > 0 && a.ramp.blocks(now, a.local.answerTime) {
		return stays, a.ramp.relief(a.local.answerTime)
	}
	if most := a.local.maxInFlight; most > 0 && a.calls.open >= most {
		a.ramp.end()
		return a.slotless(now, since)
	}
	if a.fits(now, cost) {
		return leaves, now
	}
	a.ramp.end()

	ready, rest := now, now
	for i := range a.meters {
		m := &a.meters[i]
		at := m.ready(now, m.share(cost))
		if m.anchored(now, at) {
			rest = max(rest, at) // nobody is overdue before
		}
		ready = max(ready, at)
	}
	if a.pacer != nil {
		if ready = max(ready, a.pacer.ready(a, now, cost)); now < a.hold.until {
			return stays, a.hold.until
		}
	}
	w, at := a.overdue(now, cost, since)
	if at = max(at, rest); at <= now {
		return w, now
	}
	return stays, min(ready, at)
}

// clear reports whether nothing but the meters can keep a call back.
func (a *account) clear(now int64) bool {
	most := a.local.maxInFlight
	return now >= a.hold.until && a.ramp.size == 0 && (most == 0 || a.calls.open < most)
}

// fits brings all meters to now and reports whether each has room for a call of this cost, and
// nothing that is known of the server speaks against it.
func (a *account) fits(now int64, cost Cost) bool {
	fits := a.pacer == nil || a.pacer.ready(a, now, cost) <= now
	meters := a.meters
	for i := range meters {
		m := &meters[i]
		own := m.share(cost)
		if m.log != nil {
			fits = m.log.admits(now, own) && fits
			continue
		}
		m.cell.refill(now)
		fits = m.cell.level >= m.cell.need(own) && fits
	}
	return fits
}

// admit charges a call that look lets leave, and opens its grant.
func (a *account) admit(now int64, cost Cost, w way) *call {
	c := a.calls.begin(a, now, cost)
	meters := a.meters
	for i := range meters {
		m := &meters[i]
		if own := m.share(cost); m.log != nil {
			c.logged[m.slot] = m.log.charge(now, own)
		} else {
			m.cell.charge(own)
		}
	}
	if a.ramp.size > 0 {
		a.ramp.join(c)
	}
	if a.pacer != nil {
		a.pacer.sent(a, now, c)
		if len(meters) == 0 {
			a.inferred.watch(cost)
		}
	}
	if w == probes {
		c.beyond = true
		a.probe = c
		a.probeEnds = later(now, a.local.maxWait)
	} else {
		a.lastLeft = a.hold.unheld(now)
	}
	return c
}

// arrival is a new place at the end of the line.
func (a *account) arrival(now int64) Place {
	at := max(now, a.line.arrival.at+1)
	if at == 0 {
		at = 1 // zero is nobody's place
	}
	a.line.arrival.at = at
	return a.line.arrival
}

func newAccount(l *Local, hash uint64, key string, meters []meter) *account {
	a := &account{local: l, key: key, hash: hash, meters: meters, slots: len(meters), clock: dawn, lastLeft: dawn}
	if l.adaptive {
		a.pacer = newPacer(meters)
	}
	a.hold.from, a.hold.until = dawn, dawn
	a.line.arrival.at = dawn
	a.line.last.at = dawn
	a.line.alarm = never
	for i := range meters {
		meters[i].slot = uint8(i)
		if meters[i].log != nil {
			a.windows++
		}
	}
	return a
}
