package retryafter

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// Families is a set of a Source's limit headers, as [Source.Families] finds them
// in an answer. The zero value is the empty set; sets of one Source are joined
// with |. It means nothing to another Source.
type Families uint64

// Families returns which of the provider's windows an answer's headers state.
// Servers send the same ones with every answer of a key: who knows them can
// read the next answer by [Source.WindowsOf].
func (s *Source) Families(h http.Header) Families {
	var f Families
	for i := range s.gates {
		if _, ok := h[s.gates[i].header]; ok {
			f |= s.gates[i].families
		}
	}
	return f
}

// Windows appends the windows that an answer's headers state to dst and returns
// it. It reads headers only and does not allocate while dst has room (an escaped
// name in an IETF draft's field apart), so it is meant for every success. A
// stored answer (Age above 0) states nothing that still holds.
func (s *Source) Windows(dst []Window, h http.Header, now time.Time) []Window {
	if !s.drafts {
		return s.WindowsOf(^Families(0), dst, h, now)
	}
	// A host that is read by many shapes states nothing in most of its answers.
	f := s.Families(h)
	if f == 0 {
		return dst
	}
	return s.WindowsOf(f, dst, h, now)
}

// WindowsOf is Windows for these families alone.
func (s *Source) WindowsOf(f Families, dst []Window, h http.Header, now time.Time) []Window {
	start, given := len(dst), dst
	c := clock{h: h, now: now}
	drafted := false
	if f&1 != 0 && s.drafts {
		dst = appendDrafts(dst, h, &c)
		drafted = len(dst) > start
	}
	var from [16]uint8 // from[i] is the meter of window start+i, plus one
	shared := 0
	for i, m := range s.meters {
		if f>>((i+1)&63)&1 == 0 {
			continue
		}
		gate, ok := h[m.gate]
		if !ok && (m.fill == nil || !m.fill.stated(h)) {
			continue
		}
		if drafted && m.Unit == "requests" {
			continue // the same window in an older spelling
		}
		dst = append(dst, Window{Unit: m.Unit, Limit: -1, Remaining: -1, Reset: -1, Per: m.Per, Refills: m.Refills})
		n := len(dst) - 1
		if w := &dst[n]; !m.read(w, gate, h, &c) {
			dst = dst[:n]
			continue
		}
		if n -= start; n < len(from) {
			from[n] = uint8(i + 1)
		}
		if m.shared {
			shared++
		}
	}
	if len(dst) == start {
		return given
	}
	if v := h["Age"]; len(v) > 0 {
		if age, ok := parseAmount(v[0], time.Second); ok && age > 0 {
			return given
		}
	}
	if shared > 1 {
		s.nameOthers(dst[start:], from[:])
	}
	return dst
}

// nameOthers leaves the unit to one window of each and gives the others their names.
func (s *Source) nameOthers(ws []Window, from []uint8) {
	for i := range ws {
		if i >= len(from) || from[i] == 0 {
			continue
		}
		m := s.meters[from[i]-1]
		if m.Name == "" || isUnit(m.Name) {
			continue
		}
		for j := range ws {
			if j == i || j >= len(from) || from[j] == 0 || s.meters[from[j]-1].Unit != m.Unit {
				continue
			}
			if tighter(&ws[j], &ws[i]) || !tighter(&ws[i], &ws[j]) && j < i {
				ws[i].Unit = m.Name
				break
			}
		}
	}
}

// tighter reports whether a has less remaining than b, or as much and a later reset.
func tighter(a, b *Window) bool {
	ra, rb := uint64(a.Remaining), uint64(b.Remaining) // not stated: the most
	return ra < rb || ra == rb && a.Reset > b.Reset
}

func isUnit(name string) bool {
	switch name {
	case "requests", "tokens", "input_tokens", "output_tokens":
		return true
	}
	return false
}

// stated reports whether m or one that fills in after it has its gate in h.
func (m *meter) stated(h http.Header) bool {
	for ; m != nil; m = m.fill {
		if _, ok := h[m.gate]; ok && m.gate != "" {
			return true
		}
	}
	return false
}

// read reads one window, whose gate's lines are given, and reports whether there
// is one.
func (m *meter) read(w *Window, gate []string, h http.Header, c *clock) bool {
	if !m.simple {
		return m.readAny(w, h, c)
	}
	w.Remaining, w.Limit = least(gate), least(h[m.Limit])
	if w.Remaining < 0 && w.Limit < 0 {
		return false
	}
	if d, ok := m.readReset(h[m.Reset], c); ok {
		w.Reset = d
	}
	return true
}

// readAny reads a window that several Meters state, or that is not stated by
// the usual three headers.
func (m *meter) readAny(w *Window, h http.Header, c *clock) bool {
	found := m.fillIn(w, h, c)
	for f := m.fill; f != nil; f = f.fill {
		if f.gate != "" || found {
			found = f.fillIn(w, h, c) || found
		}
	}
	return found
}

// fillIn reads what w does not state yet and reports whether anything of a
// window was found.
func (m *meter) fillIn(w *Window, h http.Header, c *clock) bool {
	if m.quantities {
		if !m.readQuantities(w, h) {
			return false
		}
	} else if m.Present != "" {
		switch strings.ToLower(trim(first(h, m.Present))) {
		case "", "no", "false", "0":
			return false
		}
	}
	found := m.quantities || m.Present != ""
	if m.Reset != "" && w.Reset < 0 {
		if d, ok := m.readReset(h[m.Reset], c); ok {
			w.Reset, found = d, true
		}
	}
	if m.Interval != "" {
		m.readInterval(w, h)
	}
	return found
}

// readQuantities reads how much there is. Where Remaining is declared it is the
// sign by which the window is known.
func (m *meter) readQuantities(w *Window, h http.Header) bool {
	limit, remaining, used := int64(-1), int64(-1), int64(-1)
	if m.Remaining != "" {
		v, ok := h[m.Remaining]
		if !ok {
			return false
		}
		remaining = least(v)
	}
	if m.Limit != "" {
		limit = least(h[m.Limit])
	}
	if m.UsedOf != "" {
		used, limit = usedOf(h[m.UsedOf], m.UsedOfKey)
	}
	if m.Used != "" && (limit < 0 || remaining < 0) {
		used = least(h[m.Used])
	}
	if used >= 0 {
		switch {
		case remaining < 0 && limit >= 0:
			remaining = max(limit-used, 0)
		case remaining >= 0 && limit < 0:
			if limit = math.MaxInt64; used < math.MaxInt64-remaining {
				limit = used + remaining
			}
		}
	}
	if w.Remaining < 0 {
		w.Remaining = remaining
	}
	if w.Limit < 0 {
		w.Limit = limit
	}
	return limit >= 0 || remaining >= 0
}

// readReset returns the latest usable reset of a header's lines.
func (m *meter) readReset(lines []string, c *clock) (time.Duration, bool) {
	if len(lines) == 1 {
		return m.Format.parse(lines[0], c)
	}
	latest, ok := time.Duration(0), false
	for _, line := range lines {
		if d, usable := m.Format.parse(line, c); usable {
			latest, ok = max(latest, d), true
		}
	}
	return latest, ok
}

// readInterval reads the window's length, with FillRate the time in which all
// of Limit comes back.
func (m *meter) readInterval(w *Window, h http.Header) {
	unit := m.IntervalUnit
	if unit <= 0 {
		unit = time.Second
	}
	d, ok := parseAmount(first(h, m.Interval), unit)
	if !ok || d <= 0 {
		return
	}
	if m.FillRate != "" {
		rate, ok := parseCount(first(h, m.FillRate))
		if !ok || rate < 1 || w.Limit < 0 {
			return
		}
		d = scale(d, w.Limit, rate)
	}
	w.Per = d
}

// least returns the smallest usable number of a header's lines, -1 without one.
func least(lines []string) int64 {
	if len(lines) == 1 {
		if n, ok := parseCount(lines[0]); ok {
			return n
		}
	}
	n := int64(-1)
	for _, line := range lines {
		if v, ok := parseCount(line); ok {
			if n < 0 || v < n {
				n = v
			}
			continue
		}
		for line != "" {
			var piece string
			piece, line = cutValue(line)
			if v, ok := parseCount(piece); ok && (n < 0 || v < n) {
				n = v
			}
		}
	}
	return n
}

// usedOf reads "used/limit", or key=used/limit in a list, from a header's lines.
func usedOf(lines []string, key string) (used, limit int64) {
	for _, line := range lines {
		for line != "" {
			var v string
			v, line = cutValue(line)
			if key != "" {
				name, val, ok := strings.Cut(v, "=")
				if !ok || trim(name) != key {
					continue
				}
				v, _, _ = strings.Cut(val, "(")
			}
			u, l, ok := strings.Cut(v, "/")
			if !ok {
				continue
			}
			used, ok1 := parseCount(u)
			limit, ok2 := parseCount(l)
			if ok1 && ok2 {
				return used, limit
			}
		}
	}
	return -1, -1
}
