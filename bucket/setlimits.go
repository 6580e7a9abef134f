package bucket

import (
	"math/bits"
	"slices"
	"strings"
)

// SetLimits gives key limits of its own from now on, instead of Config's; with none, nothing is
// charged any more. They stay in force even when the key is forgotten and comes back, and Headroom
// scales them too. Whoever the new limits let go leaves at once. The error is Limit.Validate's;
// nothing is changed then.
//
// A limit with the Unit, Shape and Per of one before carries on from it: a TokenBucket keeps the
// tokens it has, up to its new capacity, and a Window keeps its charges. Any other limit starts
// full, and calls in flight get nothing back from it that they did not pay.
func (l *Local) SetLimits(key string, limits ...Limit) error {
	if err := validateLimits(limits); err != nil {
		return err
	}
	meters := l.newMeters(limits)
	hash := l.keys.hash(key)
	k := &l.keys
	k.mu.Lock()
	if k.set == nil {
		k.set = make(map[string][]Limit)
	}
	k.set[strings.Clone(key)] = slices.Clone(limits)
	a := k.find(hash, key)
	if a != nil {
		// With mu held, so that of two calls at once the same one is last in both places.
		a.mu.Lock()
		now := a.tick(l.now())
		a.replace(now, meters)
		a.advance(now)
		a.mu.Unlock()
	}
	k.mu.Unlock()
	if a != nil {
		return nil
	}
	a, err := l.open(key)
	if err == nil {
		a.mu.Unlock()
	}
	return err
}

// replace changes the meters and carries over what carries on.
func (a *account) replace(now int64, meters []meter) {
	var taken uint64 // slots that a carried meter keeps
	fresh := make([]bool, len(meters))
	for i := range meters {
		m := &meters[i]
		j := slices.IndexFunc(a.meters, func(o meter) bool { return taken>>o.slot&1 == 0 && o.shadows == 0 && m.continues(&o) })
		if fresh[i] = j < 0; fresh[i] {
			continue
		}
		m.inherit(now, &a.meters[j])
		taken |= 1 << m.slot
	}
	a.meters = meters
	if a.pacer != nil {
		a.pacer.relearn(a, now)
	}
	a.windows, a.slots = 0, 0
	for i := range meters {
		m := &meters[i]
		if fresh[i] {
			m.slot = uint8(bits.TrailingZeros64(^taken))
			taken |= 1 << m.slot
			m.born = a.calls.admissions + 1
		}
		a.slots = max(a.slots, int(m.slot)+1)
		if m.log != nil {
			a.windows++
		}
	}
	a.line.heavy = 0
	for _, e := range a.line.heap {
		a.tally(e.w.cost, +1)
	}
}

// continues reports whether m is the same limit as old, perhaps by another amount.
func (m *meter) continues(old *meter) bool {
	return m.limit.Unit == old.limit.Unit && m.limit.Shape == old.limit.Shape && m.limit.Per == old.limit.Per
}

// inherit takes over the state of old.
func (m *meter) inherit(now int64, old *meter) {
	old.catchUp(now)
	m.slot, m.born, m.reporter = old.slot, old.born, old.reporter
	if m.log != nil {
		old.log.amount = m.log.amount
		m.log = old.log
		return
	}
	to := m.cell
	m.cell = old.cell
	m.cell.resize(to)
}
