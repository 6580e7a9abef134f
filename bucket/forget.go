package bucket

import (
	"cmp"
	"slices"
	"time"
)

// forget is how idle keys are dropped: one by one, as new ones come.
type forget struct {
	cursor int         // the next chain to look at for keys that are long full
	next   []candidate // whom to drop next when there are too many, soonest full first
	rest   int         // keys to be added before the table is searched again
}

type candidate struct {
	a    *account
	full int64
}

const (
	// forgetAfter is how long a full and idle key is remembered while there is room.
	forgetAfter = int64(10 * time.Minute)
	// smallTable is how many keys may be searched for each key that is added.
	smallTable = 512
)

// makeRoom drops keys until one more fits under MaxKeys, as far as keys may be dropped. In a large
// table a quarter is picked at one go, so that adding a key stays cheap; those picked are looked at
// again before they are dropped. Called with mu held.
func (k *keys) makeRoom(l *Local) {
	now := l.now()
	f := &k.forget
	k.dropOld(now)
	f.rest--
	for k.count >= l.maxKeys {
		if len(f.next) == 0 {
			if f.rest > 0 {
				return
			}
			k.pick(now, l.maxKeys)
			if len(f.next) == 0 {
				return
			}
		}
		c := f.next[0]
		f.next[0] = candidate{}
		f.next = f.next[1:]
		k.drop(c.a, now, c.full)
	}
}

// pick lists the keys to drop next: of those that may be dropped, those that are full soonest.
func (k *keys) pick(now int64, maxKeys int) {
	f := &k.forget
	f.next = nil
	for a := range k.all() {
		if !a.mu.TryLock() {
			continue // not idle
		}
		if a.idle(now) {
			f.next = append(f.next, candidate{a, a.full()})
		}
		a.mu.Unlock()
	}
	slices.SortFunc(f.next, func(a, b candidate) int { return cmp.Compare(a.full, b.full) })
	if k.count <= smallTable {
		f.next = f.next[:min(len(f.next), max(k.count-maxKeys+1, 1))]
		return
	}
	f.next = slices.Clone(f.next[:min(len(f.next), k.count/4)])
	f.rest = k.count / 4
}

// dropOld drops what is long full and idle from the next two chains.
func (k *keys) dropOld(now int64) {
	for range 2 {
		heads := k.chain.Load().heads
		k.forget.cursor = (k.forget.cursor + 1) & (len(heads) - 1)
		for a := heads[k.forget.cursor].Load(); a != nil; {
			next := a.next.Load()
			k.drop(a, now, now-forgetAfter)
			a = next
		}
	}
}

// drop forgets a if it is idle and was full by then.
func (k *keys) drop(a *account, now, by int64) {
	if !a.mu.TryLock() {
		return
	}
	defer a.mu.Unlock()
	if a.gone || !a.idle(now) || a.full() > by {
		return
	}
	a.gone = true
	k.remove(a)
}

// idle reports whether a may be forgotten, full or not: nobody waits, nothing is open, nothing is
// owed and nobody is held. A ramp that nobody climbs ends with the answer time.
func (a *account) idle(now int64) bool {
	now = max(now, a.clock)
	if a.line.len() > 0 || a.calls.open > 0 || now < a.hold.until {
		return false
	}
	if a.ramp.size > 0 && now < later(max(a.hold.until, a.clock), a.local.answerTime) {
		return false
	}
	for i := range a.meters {
		if a.meters[i].inDebt(now) {
			return false
		}
	}
	return true
}

// full is the instant at which a is as good as new; its last use, if that is later.
func (a *account) full() int64 {
	at := a.clock
	for i := range a.meters {
		at = max(at, a.meters[i].full())
	}
	return at
}
