package retryafter

import "net/http"

// Illegible returns the name of a limit header of the provider's that is there and yet cannot be read,
// the empty string if there is none. What it would have said counts as not stated everywhere else. A value
// that is empty or -1, as some servers write for what they do not report, is none. Whoever reads Windows by
// himself asks it to tell a server that states nothing from one that is misread; a Stack tells of it as Doubted.
func (s *Source) Illegible(h http.Header) string {
	if s.Families(h) == 0 {
		return ""
	}
	c := clock{h: h}
	for _, m := range s.meters {
		for f := m; f != nil; f = f.fill {
			for _, name := range [...]string{f.Limit, f.Remaining, f.Used} {
				if lines := h[name]; states(lines) && least(lines) < 0 {
					return name
				}
			}
			if lines := h[f.Reset]; states(lines) {
				if _, ok := f.readReset(lines, &c); !ok {
					return f.Reset
				}
			}
		}
	}
	if lines := h["Ratelimit"]; s.drafts && states(lines) && len(appendDrafts(nil, h, &c)) == 0 {
		return "Ratelimit"
	}
	return ""
}

// states reports whether a header says anything.
func states(lines []string) bool {
	for _, line := range lines {
		if v := trim(line); v != "" && v != "-1" {
			return true
		}
	}
	return false
}
