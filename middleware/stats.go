package middleware

import (
	"math/bits"
	"net/http"
	"sort"
	"sync"
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
	Key      string
	Sends    int64 // requests that went out
	Served   int64 // of these, answered without a refusal
	Refused  map[retryafter.Class]int64
	Failed   int64         // of these, ended without an answer
	Wasted1  float64       // refused / sent over the last minute
	Wasted5  float64       // over the last 5 minutes
	Wasted15 float64       // over the last 15 minutes
	WaitP50  time.Duration // waiting for the budget, of all sends, rounded up by at most a quarter
	WaitP90  time.Duration
	WaitP99  time.Duration
	WaitMax  time.Duration
	Health   Health          // by Wasted5
	Budget   bucket.KeyStats // queue, slots, hold and levels; zero where the limiter cannot tell
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

// meter is what the Pace layer knows of one key: its interned name, its
// figures, and how to read the answers that come for it.
type meter struct {
	key      string
	tally    tally
	lastUsed atomic.Int64 // when it was last sent for, by registry.now
	lastHost atomic.Pointer[hostSource]
}

func (m *meter) sent(now time.Duration) {
	m.tally.sends.Add(1)
	m.tally.at(now).sent.Add(1)
	m.lastUsed.Store(int64(now))
}

func (m *meter) refused(now time.Duration, c retryafter.Class) {
	m.tally.refused[c].Add(1)
	m.tally.at(now).refused.Add(1)
}

// hostSource is how answers of a host are read, and which limit headers the
// host has shown: successes are scanned for those alone.
type hostSource struct {
	host string
	*retryafter.Source
	shown   atomic.Uint64
	answers atomic.Uint64
}

// lookAgain is how many answers of a host go by before one is scanned for limit
// headers that it had not shown.
const lookAgain = 64

// families returns which limit headers to read an answer for.
func (s *hostSource) families(h http.Header) retryafter.Families {
	shown := s.shown.Load()
	if s.answers.Add(1)%lookAgain == 1 {
		shown |= uint64(s.Source.Families(h))
		s.shown.Store(shown)
	}
	return retryafter.Families(shown)
}

// source returns how reader reads answers of host, which m is charged for.
func (r *registry) source(m *meter, reader *retryafter.Reader, host string) *hostSource {
	if s := m.lastHost.Load(); s != nil && s.host == host {
		return s
	}
	r.mu.RLock()
	s := r.hosts[host]
	r.mu.RUnlock()
	if s == nil {
		s = &hostSource{host: host, Source: reader.For(host)}
		r.mu.Lock()
		if len(r.hosts) >= maxMeters {
			clear(r.hosts)
		}
		r.hosts[host] = s
		r.mu.Unlock()
	}
	m.lastHost.Store(s)
	return s
}

// registry holds the meters of a Stack, or of a Pace layer on its own.
type registry struct {
	start time.Time

	mu      sync.RWMutex
	byKey   map[string]*meter
	origins map[origin]*originMeter
	hosts   map[string]*hostSource
	last    atomic.Pointer[originMeter]
}

// maxMeters bounds the keys that figures are kept for; above it the quarter
// that was not looked up for longest is forgotten.
const maxMeters = 10_000

// origin is the default key's raw material: no string is built to look it up.
type origin struct{ scheme, host string }

type originMeter struct {
	origin
	*meter
}

func newRegistry() *registry {
	return &registry{start: time.Now(), byKey: map[string]*meter{}, origins: map[origin]*originMeter{}, hosts: map[string]*hostSource{}}
}

func (r *registry) now() time.Duration { return time.Since(r.start) }

// meter returns the meter of key.
func (r *registry) meter(key string) *meter {
	r.mu.RLock()
	m := r.byKey[key]
	r.mu.RUnlock()
	if m != nil {
		return m
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(key)
}

// ofOrigin returns the meter of the origin of a URL.
func (r *registry) ofOrigin(scheme, host string) *meter {
	o := origin{scheme, host}
	if m := r.last.Load(); m != nil && m.origin == o {
		return m.meter
	}
	r.mu.RLock()
	m := r.origins[o]
	r.mu.RUnlock()
	if m == nil {
		key := originKey(scheme, host)
		r.mu.Lock()
		defer r.mu.Unlock()
		m = &originMeter{o, r.add(key)}
		if len(r.origins) >= 2*maxMeters { // one host can be spelt in many ways
			clear(r.origins)
		}
		r.origins[o] = m
	}
	r.last.Store(m)
	return m.meter
}

func (r *registry) add(key string) *meter {
	if m := r.byKey[key]; m != nil {
		return m
	}
	if len(r.byKey) >= maxMeters {
		r.forget()
	}
	m := &meter{key: key}
	r.byKey[key] = m
	return m
}

func (r *registry) forget() {
	all := make([]*meter, 0, len(r.byKey))
	for _, m := range r.byKey {
		all = append(all, m)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].lastUsed.Load() < all[j].lastUsed.Load() })
	for _, m := range all[:len(all)/4] {
		delete(r.byKey, m.key)
	}
	r.last.Store(nil)
	for o, m := range r.origins {
		if r.byKey[m.key] != m.meter {
			delete(r.origins, o)
		}
	}
}

func (r *registry) snapshot(limiter bucket.Limiter) []KeyStats {
	r.mu.RLock()
	meters := make([]*meter, 0, len(r.byKey))
	for _, m := range r.byKey {
		meters = append(meters, m)
	}
	r.mu.RUnlock()
	sort.Slice(meters, func(i, j int) bool { return meters[i].key < meters[j].key })
	teller, _ := limiter.(interface {
		Stats(key string) (bucket.KeyStats, bool)
	})
	out := make([]KeyStats, len(meters))
	now := r.now()
	for i, m := range meters {
		out[i] = m.tally.snapshot(m.key, now)
		if teller != nil {
			out[i].Budget, _ = teller.Stats(m.key)
		}
	}
	return out
}
