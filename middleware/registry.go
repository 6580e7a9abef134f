package middleware

import (
	"net/http"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// meter is what the Pace layer knows of one key: its interned name, its
// figures, and how to read the answers that come for it.
type meter struct {
	key      string
	tally    tally
	doubts   atomic.Uint64                         // what was told of, see doubt
	past     [bucket.OutputTokens + 1]atomic.Int64 // since when a reset has passed, plus one; by unit
	lastUsed atomic.Int64                          // when it was last sent for, by registry.now
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

// families returns which limit headers to read an answer for, and whether all of it was looked at.
func (s *hostSource) families(h http.Header) (f retryafter.Families, looked bool) {
	shown := s.shown.Load()
	if looked = s.answers.Add(1)%lookAgain == 1; looked {
		shown |= uint64(s.Source.Families(h))
		s.shown.Store(shown)
	}
	return retryafter.Families(shown), looked
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
			out[i].RefusedBy = out[i].Budget.Refusals
		}
	}
	return out
}
