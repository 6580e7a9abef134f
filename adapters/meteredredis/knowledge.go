package meteredredis

import (
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// knowledge is what the store said last.
type knowledge struct {
	epoch     int64 // 0 if none is known
	at        time.Time
	levels    []float64
	charged   []int64 // in all; nil before it is known
	hold      time.Time
	beat      time.Time // when this process last said that it lives
	processes int       // seen lately; 0 if it is not known
}

// A window is what the store said of the head that one keeps back: it does not fit in again before.
type window struct {
	head  *waiter
	until time.Time
	unit  bucket.Unit
}

// learn notes what the store said of the budget.
func (b *budget) learn(r reply, out *batch, now time.Time) {
	k := &b.known
	if out.back == b.back {
		b.back = nil
	}
	k.epoch, k.at, k.hold = r.epoch, now, now.Add(r.hold)
	if k.levels == nil {
		k.levels = make([]float64, len(b.limits))
	}
	for i := range k.levels {
		k.levels[i] = r.limits[i].available
	}
	if r.processes > 0 {
		k.processes = r.processes
	}
}

// level is what of a limit there should be now, as far as one knows.
func (b *budget) level(i int, now time.Time) float64 {
	l := &b.limits[i]
	if b.known.levels == nil {
		return float64(l.capacity)
	}
	level := b.known.levels[i] - b.spent[i]
	if l.Shape == bucket.TokenBucket {
		level += l.rate * micros(now.Sub(b.known.at))
	} else if now.Sub(b.known.at) >= l.Per {
		level = float64(l.capacity) - b.spent[i]
	}
	return min(level, float64(l.capacity))
}

// declaration is what is said to a store that has lost the budget.
func (b *budget) declaration(now time.Time) *declaration {
	d := &declaration{levels: make([]float64, len(b.limits)), hold: max(b.known.hold.Sub(now), 0)}
	for i := range d.levels {
		d.levels[i] = b.level(i, now)
	}
	return d
}
