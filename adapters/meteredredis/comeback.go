package meteredredis

import (
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A comeback is what a process tells the store of one budget after an outage. The store may have lost the
// budget, or have refilled it all the while, and other processes have shares of it too. So the first one back
// starts from what is left of its own share. All go back at one instant, that the store names, so that nobody
// has the whole while another still has a share; who finds the store later owes what it took since. A process that
// was away alone had its share beside the others, who had the whole: it owes that.
type comeback struct {
	lost, found time.Time
	levels      []float64 // of this process's share, when the store was found
	spent       []float64 // in the outage
	share       float64
	heard       time.Time // when the store said last
	full        []float64 // what it had let go in all by then, and what was left
}

// grace is how long after the first process the last one has found the store: one pause of the search, and
// calls that were given up.
func (l *Limiter) grace() time.Duration {
	return lastTry + lastTry/4 + min(2*l.config.Timeout, lastTry)
}

// comeBack notes what is to be told, and goes on from what is left of the fallback's share.
func (b *budget) comeBack(o *outage) {
	now := time.Now()
	stats, used := o.local.Stats(b.key)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known.levels == nil && !used {
		return
	}
	r := &comeback{lost: o.began, found: now, levels: make([]float64, len(b.limits)), spent: b.spent, share: o.share}
	if b.back != nil { // it went again before it was told
		for i, n := range b.back.spent {
			r.spent[i] += n
		}
		r.lost, r.heard, r.full = b.back.lost, b.back.heard, b.back.full
	} else if b.known.charged != nil {
		r.heard, r.full = b.known.at, make([]float64, len(b.limits))
		for i := range r.full {
			r.full[i] = b.known.levels[i] + float64(b.known.charged[i])
		}
	}
	for i := range b.limits {
		switch {
		case b.limiter.config.OnStoreDown == Open: // it was no share that was kept to
			r.levels[i], r.share = max(b.level(i, now), 0), 0
		case used && i < len(stats.Levels):
			r.levels[i] = stats.Levels[i].Available
		default:
			r.levels[i] = max(b.level(i, now), 0) * o.share
		}
	}
	b.back = r
	b.spent = make([]float64, len(b.limits))
	b.known.levels, b.known.at = append([]float64(nil), r.levels...), now
}

// told is r in the store's words.
func (r *comeback) told(limits []limit, now time.Time) [][]string {
	var out [][]string
	for i := range limits {
		l := &limits[i]
		level, since := r.levels[i], micros(now.Sub(r.found))
		if l.Shape == bucket.TokenBucket {
			level += l.rate * since
		} else if since >= l.per {
			level = float64(l.capacity)
		}
		out = append(out, []string{opBack, whole(int64(i + 1)), float(min(level, float64(l.capacity))),
			float(micros(now.Sub(r.lost))), float(r.spent[i]), float(l.rate * r.share), float(r.rest(i, l.rate, now))})
	}
	return out
}

// rest is how much the store may have let go in all by now, for what was spent beside it to be within the limit. If
// that is not known, or was no share, nothing is owed.
func (r *comeback) rest(i int, rate float64, now time.Time) float64 {
	if r.full == nil || r.share == 0 {
		return 1 << 53
	}
	return r.full[i] + rate*micros(now.Sub(r.heard)) - r.spent[i]
}
