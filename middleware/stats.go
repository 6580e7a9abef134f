package middleware

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Stats is what a Stack has seen and how it stands, at one moment.
type Stats struct {
	Keys   []KeyStats            // sorted by key
	Routes []escalate.RouteStats // in order; nil without a router
}

// KeyStats are the figures of one budget.
type KeyStats struct {
	Key     string
	Sends   int64 // requests that went out
	Served  int64 // of these, answered without a refusal
	Refused map[retryafter.Class]int64
	Failed  int64 // of these, ended without an answer
	// RefusedBy is whose fault the refusals were, as far as the budget shows it: see
	// bucket.Refusals. Zero where the limiter cannot tell. It counts since the budget was last
	// forgotten, and not what came in the middle of a served answer.
	RefusedBy bucket.Refusals
	Wasted1   float64       // refused / sent over the last minute
	Wasted5   float64       // over the last 5 minutes
	Wasted15  float64       // over the last 15 minutes
	WaitP50   time.Duration // waiting for the budget, of all sends, rounded up by at most a quarter
	WaitP90   time.Duration
	WaitP99   time.Duration
	WaitMax   time.Duration
	Health    Health          // by Wasted5
	Budget    bucket.KeyStats // queue, slots, hold and levels; zero where the limiter cannot tell
}

// Health is the 429 rate in one word.
type Health string

// Green is below 0.1 % of sends refused, Amber below 1 %, Red above.
const (
	Green Health = "green"
	Amber Health = "amber"
	Red   Health = "red"
)

func health(wasted float64) Health {
	switch {
	case wasted < 0.001:
		return Green
	case wasted < 0.01:
		return Amber
	}
	return Red
}

// tally counts what happens to one key, without a lock.
type tally struct {
	sends, served, failed atomic.Int64
	refused               [int(retryafter.Other) + 1]atomic.Int64

	slots   [slotCount]slot
	waits   [waitBuckets]atomic.Int64
	waitMax atomic.Int64
}

// The last 15 minutes, in slots of 10 s; one more, so that the slot being
// filled and the oldest still asked for are never the same.
const (
	slotLength = 10 * time.Second
	slotCount  = 91
)

type slot struct {
	epoch         atomic.Int64 // which 10 s it holds
	sent, refused atomic.Int64
}

// at returns the slot of now. Sends of a few nanoseconds around a slot's first
// use may be lost to the reset; the totals above never are.
func (c *tally) at(now time.Duration) *slot {
	epoch := int64(now/slotLength) + 1
	s := &c.slots[epoch%slotCount]
	if old := s.epoch.Load(); old != epoch && s.epoch.CompareAndSwap(old, epoch) {
		s.sent.Store(0)
		s.refused.Store(0)
	}
	return s
}

func (c *tally) wasted(now, over time.Duration) float64 {
	epoch := int64(now/slotLength) + 1
	var sent, refused int64
	for i := range c.slots {
		s := &c.slots[i]
		if e := s.epoch.Load(); e <= epoch && e > epoch-int64(over/slotLength) {
			sent += s.sent.Load()
			refused += s.refused.Load()
		}
	}
	if sent == 0 {
		return 0
	}
	return min(1, float64(refused)/float64(sent))
}

// Waits are counted in buckets four to the octave, from 1 us on: bucket 0 is
// no wait, and the last takes all from some 13 hours up.
const waitBuckets = 1 + 4*36

func waitBucket(d time.Duration) int {
	us := uint64((d + time.Microsecond - 1) / time.Microsecond)
	if us == 0 {
		return 0
	}
	octave := bits.Len64(us) - 1
	quarter := 0
	if octave >= 2 {
		quarter = int(us>>(octave-2)) & 3
	}
	return min(1+4*octave+quarter, waitBuckets-1)
}

// waitBound is the upper end of a bucket.
func waitBound(b int) time.Duration {
	if b == 0 {
		return 0
	}
	octave, quarter := (b-1)/4, (b-1)%4
	if octave < 2 {
		return time.Duration(2<<octave-1) * time.Microsecond
	}
	return time.Duration(uint64(5+quarter)<<(octave-2)) * time.Microsecond
}

func (c *tally) waited(d time.Duration) {
	c.waits[waitBucket(d)].Add(1)
	for {
		old := c.waitMax.Load()
		if int64(d) <= old || c.waitMax.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

func (c *tally) percentiles(ps ...float64) []time.Duration {
	var counts [waitBuckets]int64
	var total int64
	for i := range counts {
		counts[i] = c.waits[i].Load()
		total += counts[i]
	}
	out := make([]time.Duration, len(ps))
	for i, p := range ps {
		rank := int64(p * float64(total))
		var seen int64
		for b, n := range counts {
			if seen += n; n > 0 && seen > rank {
				out[i] = min(waitBound(b), time.Duration(c.waitMax.Load()))
				break
			}
		}
	}
	return out
}

func (c *tally) snapshot(key string, now time.Duration) KeyStats {
	s := KeyStats{
		Key:      key,
		Sends:    c.sends.Load(),
		Served:   c.served.Load(),
		Failed:   c.failed.Load(),
		Refused:  map[retryafter.Class]int64{},
		Wasted1:  c.wasted(now, time.Minute),
		Wasted5:  c.wasted(now, 5*time.Minute),
		Wasted15: c.wasted(now, 15*time.Minute),
		WaitMax:  time.Duration(c.waitMax.Load()),
	}
	for class := range c.refused {
		if n := c.refused[class].Load(); n > 0 {
			s.Refused[retryafter.Class(class)] = n
		}
	}
	p := c.percentiles(0.50, 0.90, 0.99)
	s.WaitP50, s.WaitP90, s.WaitP99 = p[0], p[1], p[2]
	s.Health = health(s.Wasted5)
	return s
}
