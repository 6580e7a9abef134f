package bucket

import (
	"slices"
	"time"
)

// KeyStats is a snapshot of one key.
type KeyStats struct {
	Key        string
	Queued     int           // calls waiting
	InFlight   int           // open grants
	HeldFor    time.Duration // until the hold ends; 0 when there is none
	OldestSlot time.Duration // age of the oldest open grant; 0 when there is none
	Levels     []Level       // one for each limit that is not off, in the order of the configuration
}

// Level is what one limit has left.
type Level struct {
	Limit     Limit
	Available float64 // below zero is debt
	Capacity  float64 // the most it holds, Headroom included
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
	}
	if oldest := a.calls.head; oldest != nil {
		s.OldestSlot = time.Duration(now - oldest.left)
	}
	for i := range a.meters {
		m := &a.meters[i]
		level := m.level(now)
		if m.shadows == 0 {
			s.Levels = append(s.Levels, level)
			continue
		}
		of := slices.IndexFunc(a.meters, func(o meter) bool { return o.slot+1 == m.shadows })
		s.Levels[of].Available = min(s.Levels[of].Available, level.Available)
	}
	return s, true
}
