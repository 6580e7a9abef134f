package bucket

// Refusals are how many calls the server refused, by whose fault it was:
//
//   - Own: the call left beyond what the key's limits and reports allowed: overdue, on debt, or above a
//     capacity.
//   - Foreign: somebody else used the quota. The latest answers had less left than this key's calls
//     explain, by more than they are rounded; or, under Adaptive, what the server lets through or its
//     window held falls short of the limit by more than a fifth, though this key kept below it.
//   - Unknown: neither shows. A limit that holds less at once than it says is one reason.
//
// Those of a crowd that was in flight together are laid to the same as its first.
type Refusals struct {
	Own     int64 `json:"own"`
	Foreign int64 `json:"foreign"`
	Unknown int64 `json:"unknown"`
}

// short is the share of a limit, in fifths, below which others must have had the rest.
const short = 4

// attribute counts the refusal of c, of which the pacer has just learned.
func (a *account) attribute(c *call) {
	for i := range a.meters {
		if m := &a.meters[i]; m.reporter == c.number {
			m.strange += m.share(c.cost) // what is refused is not charged
			m.foreign += m.share(c.cost)
		}
	}
	switch {
	case c.beyond || a.oversize(c.cost) != nil:
		a.refusals.Own++
	case a.others(c):
		a.refusals.Foreign++
	default:
		a.refusals.Unknown++
	}
}

// others reports whether anything shows that the quota of c was used by somebody else.
func (a *account) others(c *call) bool {
	for i := range a.meters {
		m := &a.meters[i]
		// What answers state is rounded, by one at the most.
		if own := m.share(c.cost); own > 0 && m.strange > max(min(own, m.limit.Amount/100)-1, 1) {
			return true
		}
	}
	p := a.pacer
	if p == nil || p.estimates == nil {
		return false
	}
	if p.mode == counting {
		// Where the last refusal of a window was.
		for i := range p.estimates {
			if e := &p.estimates[i]; e.wall > 0 {
				return e.wall < e.period/5*short
			}
		}
		return false
	}
	if p.blamed == nobody || p.shallow {
		return false
	}
	m := &a.meters[p.blamed]
	return p.estimates[p.blamed].learned < million/5*short && (m.learnt == nil || m.learnt.source == Stated)
}

// A statement is what an answer said is left of a meter.
type statement struct {
	left    int64
	at      int64 // when it came; 0 when there was none
	reset   int64
	charged int64 // what had been admitted by then, the call that it answers included
}

// compare holds what an answer to c states as left against what the one before it, the refill and our
// own calls since make of it. Only the latest answer is compared.
func (m *meter) compare(now int64, c *call, s *Meter) {
	if c.number < m.reporter {
		return
	}
	amount := m.limit.Amount
	was, is := m.told, statement{s.Remaining, max(now, 1), int64(s.Reset), m.share(c.charged)}
	m.told, m.strange = is, 0
	if s.Limit > 0 {
		amount = min(s.Limit, maxCost)
	}
	if was.at == 0 || is.left > amount || m.log != nil && is.reset > was.reset || is.charged == 0 {
		return // the first, or a lie, or a new window, or a unit that nobody counts here
	}
	left := was.left
	if m.log == nil {
		refill := mulDiv(max(now-was.at, 0), amount, int64(m.limit.Per))
		m.told.at = max(was.at+mulDiv(refill, int64(m.limit.Per), amount), 1) // what is not whole yet counts the next time
		left = satAdd(left, refill)
		if s.Reset > 0 {
			// It may hold less than its limit: what would be refilled above that is nobody's.
			left = min(left, satAdd(is.left, mulDiv(int64(s.Reset), amount, int64(m.limit.Per)))+1)
		}
	}
	if left >= amount {
		left, m.told.at = amount, is.at
	}
	left -= is.charged - was.charged
	m.strange = left - is.left
	m.foreign = max(m.foreign+m.strange, -max(amount/100, 1))
}
