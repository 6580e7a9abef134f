package bucket

// A window is the exact log of one limit of Shape Window: every charge of the last Per, in the
// order of time. A charge keeps its place for as long as it counts, so that a refund finds it at
// once.
type window struct {
	amount int64
	per    int64
	used   int64    // sum of the log
	ring   []charge // length is a power of two
	first  int64    // position of the oldest charge
	next   int64    // position of the next one
	edge   int64    // where not 0, all charges come back together: then, and each per after
}

type charge struct {
	at   int64
	cost int64
}

// unlogged is the position of a charge of nothing.
const unlogged = -1

// newWindow returns the empty log of limit l, scaled by headroom/headroomSteps.
func newWindow(l Limit, headroom int64) *window {
	return &window{amount: windowAmount(l, headroom), per: int64(l.Per)}
}

func windowAmount(l Limit, headroom int64) int64 {
	whole, rest := l.Amount/headroomSteps, l.Amount%headroomSteps
	return max(whole*headroom+rest*headroom/headroomSteps, 1)
}

func (w *window) slot(pos int64) *charge { return &w.ring[pos&int64(len(w.ring)-1)] }

// expire drops the charges that are Per old at now.
func (w *window) expire(now int64) {
	for w.first < w.next {
		c := w.slot(w.first)
		if now-c.at < w.per {
			return
		}
		w.used -= c.cost
		w.first++
	}
	if len(w.ring) > 1024 {
		w.ring = nil // a storm has passed
	}
}

// usedAt is what will be used at now, if nothing is charged until then.
func (w *window) usedAt(now int64) int64 {
	used := w.used
	for pos := w.first; pos < w.next && now-w.slot(pos).at >= w.per; pos++ {
		used -= w.slot(pos).cost
	}
	return used
}

// admits brings the log to now and reports whether a call of cost may leave.
func (w *window) admits(now, cost int64) bool {
	w.expire(now)
	return w.used <= w.amount-min(cost, w.amount)
}

// charge logs cost at now and returns its position. Charges of one instant share a position.
func (w *window) charge(now, cost int64) int64 {
	if cost == 0 {
		return unlogged
	}
	w.used += cost
	if w.edge != 0 {
		now = w.end(now) - w.per
	}
	if w.first < w.next {
		if last := w.slot(w.next - 1); last.at >= now {
			last.cost += cost
			return w.next - 1
		}
	}
	if w.next-w.first == int64(len(w.ring)) {
		w.grow()
	}
	*w.slot(w.next) = charge{now, cost}
	w.next++
	return w.next - 1
}

func (w *window) grow() {
	old := *w
	w.ring = make([]charge, max(2*len(old.ring), 8))
	for pos := old.first; pos < old.next; pos++ {
		*w.slot(pos) = *old.slot(pos)
	}
}

// end is when what is charged at now comes back.
func (w *window) end(now int64) int64 {
	if w.edge == 0 {
		return later(now, w.per)
	}
	if now < w.edge {
		return max(w.edge-(w.edge-now-1)/w.per*w.per, now+1)
	}
	return later(w.edge, satMul((now-w.edge)/w.per+1, w.per))
}

// move has all that counts come back at edge, and each per after.
func (w *window) move(edge, per int64) {
	w.edge, w.per = edge, per
	for pos := w.first; edge != 0 && pos < w.next; pos++ {
		w.slot(pos).at = edge - per
	}
}

// refund takes cost off the charge at pos, if it still counts.
func (w *window) refund(pos, cost int64) {
	if pos < w.first || pos >= w.next {
		return
	}
	c := w.slot(pos)
	back := min(c.cost, cost)
	c.cost -= back
	w.used -= back
}

// relieve takes cost off the oldest charges, those that would have come back soonest anyway.
func (w *window) relieve(cost int64) {
	for pos := w.first; pos < w.next && cost > 0; pos++ {
		c := w.slot(pos)
		back := min(c.cost, cost)
		c.cost -= back
		w.used -= back
		cost -= back
	}
}

// reach is the first instant from start on at which no more than room is used, if nothing is
// charged until then.
func (w *window) reach(start, room int64) int64 {
	at, used := start, w.used
	for pos := w.first; used > room && pos < w.next; pos++ {
		c := w.slot(pos)
		used -= c.cost
		if c.cost > 0 {
			at = max(at, later(c.at, w.per))
		}
	}
	return at
}

// drain is a lower bound of the instant at which the last of a line that costs total leaves, when
// the log may hold last at that time, and most before. It is exact while total is no more than
// last; what lies beyond must wait until as much of the line itself has come back.
func (w *window) drain(start, total, last, most int64) int64 {
	if total <= last {
		return w.reach(start, last-total)
	}
	total -= last
	rounds := (total - 1) / most
	total -= rounds * most
	return later(w.end(w.reach(start, most-total)), satMul(rounds, w.per))
}
