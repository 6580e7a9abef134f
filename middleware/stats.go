package middleware

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Stats is what a Stack has seen and how it stands, at one moment. It goes to JSON, with durations in
// nanoseconds.
type Stats struct {
	Keys   []KeyStats            `json:"keys"`             // sorted by key
	Routes []escalate.RouteStats `json:"routes,omitempty"` // in order; nil without a router
}

// KeyStats are the figures of one budget.
type KeyStats struct {
	Key     string                     `json:"key"`
	Sends   int64                      `json:"sends"`  // requests that went out
	Served  int64                      `json:"served"` // of these, answered without a refusal
	Refused map[retryafter.Class]int64 `json:"refused"`
	Failed  int64                      `json:"failed"` // of these, ended without an answer
	// RefusedBy is whose fault the refusals were, as far as the budget shows it: see
	// bucket.Refusals. Zero where the limiter cannot tell. It counts since the budget was last
	// forgotten, and not what came in the middle of a served answer.
	RefusedBy bucket.Refusals `json:"refused_by"`
	Tokens    Tokens          `json:"tokens"`
	Wasted1   float64         `json:"wasted_1m"` // refused / sent over the last minute
	Wasted5   float64         `json:"wasted_5m"`
	Wasted15  float64         `json:"wasted_15m"`
	// History is the last 15 minutes, in 90 slots of 10 s, oldest first; the last one is not full yet.
	History []Slot          `json:"history"`
	WaitP50 time.Duration   `json:"wait_p50"` // waiting for the budget, of all sends, rounded up by at most a quarter
	WaitP90 time.Duration   `json:"wait_p90"`
	WaitP99 time.Duration   `json:"wait_p99"`
	WaitMax time.Duration   `json:"wait_max"`
	Health  Health          `json:"health"` // by Wasted5
	Budget  bucket.KeyStats `json:"budget"` // queue, slots, hold and levels; zero where the limiter cannot tell
}

// Slot is what was sent in ten seconds.
type Slot struct {
	Sent    int64 `json:"sent"`
	Refused int64 `json:"refused"`
}

// Tokens says what became of the tokens that were reserved, input and output together.
type Tokens struct {
	Settled int64 `json:"settled"` // what answered calls cost, as far as that is known, else their estimates
	Saved   int64 `json:"saved"`   // reserved beyond the cost, or for calls that were refused or never sent: they came back
	Wasted  int64 `json:"wasted"`  // of calls that were sent and lost: paid, perhaps, for nothing
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

	tokensSettled, tokensSaved, tokensWasted atomic.Int64
	refused                                  [int(retryafter.Other) + 1]atomic.Int64

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

// history is the slots of the last 15 minutes, oldest first.
func (c *tally) history(now time.Duration) []Slot {
	out := make([]Slot, slotCount-1)
	last := int64(now/slotLength) + 1
	for i := range c.slots {
		s := &c.slots[i]
		if age := last - s.epoch.Load(); age >= 0 && age < int64(len(out)) {
			out[int64(len(out))-1-age] = Slot{s.sent.Load(), s.refused.Load()}
		}
	}
	return out
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

// settled counts the tokens of a call that was sent: lost says that no answer came.
func (c *tally) settled(reserved, cost int64, lost bool) {
	switch {
	case cost == 0 && reserved == 0:
	case lost:
		c.tokensWasted.Add(cost)
	default:
		c.tokensSettled.Add(cost)
		if saved := reserved - cost; saved > 0 {
			c.tokensSaved.Add(saved)
		}
	}
}

// gaveBack counts the tokens of a call that was refused or never sent.
func (c *tally) gaveBack(cost bucket.Cost) {
	if n := cost.Of(bucket.Tokens); n > 0 {
		c.tokensSaved.Add(n)
	}
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
		Tokens:   Tokens{c.tokensSettled.Load(), c.tokensSaved.Load(), c.tokensWasted.Load()},
		History:  c.history(now),
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
