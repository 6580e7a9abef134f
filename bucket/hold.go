package bucket

// A hold is the span in which nobody is admitted on a key.
type hold struct {
	from, until int64
	before      int64 // sum of the holds before this one
}

// unheld is the clock that stands still under a hold. Spans on it are what patience is measured in.
func (h *hold) unheld(now int64) int64 {
	return now - h.before - (min(now, h.until) - h.from)
}

// extend holds until an instant after now. The later of two holds wins; extend reports whether it
// was this one.
func (h *hold) extend(now, until int64) bool {
	switch {
	case until <= now || until <= h.until:
		return false
	case now < h.until:
		h.until = until
	default:
		h.before += h.until - h.from
		h.from, h.until = now, until
	}
	return true
}

// holdUntil holds the key. Its release will be a ramp.
func (a *account) holdUntil(now, until int64) {
	if a.hold.extend(now, until) {
		a.ramp.begin()
	}
}

// lift ends the hold now; the ramp stays.
func (h *hold) lift(now int64) {
	h.until = min(h.until, now)
}
