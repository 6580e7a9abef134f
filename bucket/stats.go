package bucket

import (
	"slices"
	"time"
)

// KeyStats is a snapshot of one key.
type KeyStats struct {
	Key        string        `json:"key"`
	Queued     int           `json:"queued"`            // calls waiting
	InFlight   int           `json:"in_flight"`         // open grants
	HeldFor    time.Duration `json:"held_for"`          // until the hold ends; 0 when there is none
	OldestSlot time.Duration `json:"oldest_slot"`       // age of the oldest open grant; 0 when there is none
	Levels     []Level       `json:"levels"`            // one for each limit that is not off, in the order of the configuration; then those learned
	Learned    *Learned      `json:"learned,omitempty"` // what Adaptive knows of the server; nil when that is nothing
	Refusals   Refusals      `json:"refusals"`          // whose fault they were
}

// Level is what one limit has left.
type Level struct {
	Limit     Limit   `json:"limit"`
	Available float64 `json:"available"` // below zero is debt
	Capacity  float64 `json:"capacity"`  // the most it holds, Headroom included

	// Own is what calls of this key have cost since it is known, those in flight as estimated.
	Own int64 `json:"own"`
	// Foreign is what others have used of the server's meter, as far as answers show it: what should
	// be left by the answer before and by our own calls, less what is. Where servers round what they
	// state, it is as rough as that; a call that cost more than it was settled for is in it too.
	Foreign int64 `json:"foreign"`
}

// HeldFor returns how long key is held yet; 0 if it is not, or is not known.
func (l *Local) HeldFor(key string) time.Duration {
	a := l.peek(key)
	if a == nil {
		return 0
	}
	defer a.mu.Unlock()
	return time.Duration(max(a.hold.until-max(l.now(), a.clock), 0))
}

// Stats returns a snapshot of key; false if the key is not known, or was forgotten.
func (l *Local) Stats(key string) (KeyStats, bool) {
	a := l.peek(key)
	if a == nil {
		return KeyStats{}, false
	}
	defer a.mu.Unlock()
	now := max(l.now(), a.clock) // looking is no use of the key
	s := KeyStats{
		Key:      a.key,
		Queued:   a.line.len(),
		InFlight: a.calls.open,
		HeldFor:  time.Duration(max(a.hold.until-now, 0)),
		Levels:   make([]Level, 0, len(a.meters)),
		Learned:  a.learned(now),
		Refusals: a.refusals,
	}
	if oldest := a.calls.head; oldest != nil {
		s.OldestSlot = time.Duration(now - oldest.left)
	}
	for i := range a.meters {
		m := &a.meters[i]
		level := m.level(now)
		level.Own, level.Foreign = m.share(a.calls.spent()), max(m.foreign, 0)
		if m.shadows == 0 {
			s.Levels = append(s.Levels, level)
			continue
		}
		of := slices.IndexFunc(a.meters, func(o meter) bool { return o.slot+1 == m.shadows })
		s.Levels[of].Available = min(s.Levels[of].Available, level.Available)
		s.Levels[of].Foreign += level.Foreign
	}
	return s, true
}
