package retryafter

import (
	"net/http"
	"strings"
	"time"
)

// The RateLimit fields of draft-ietf-httpapi-ratelimit-headers, in all the
// forms that servers were built to:
//
//	00-03  RateLimit-Limit: 100, 100;w=60   RateLimit-Remaining: 0   RateLimit-Reset: 48
//	04-06  RateLimit-Limit: 100             RateLimit-Policy: 100;w=60   and the same two
//	07     RateLimit: limit=100, remaining=50, reset=5   RateLimit-Policy: 100;w=60
//	08-10  RateLimit: "default";r=50;t=30   RateLimit-Policy: "default";q=100;w=60
//
// A field that is malformed is ignored as a whole.

// maxItems bounds how many windows of one answer are read.
const maxItems = 8

// quotaPolicy is one item of RateLimit-Policy.
type quotaPolicy struct {
	name, unit string
	quota      int64 // -1: not stated
	per        time.Duration
}

// appendDrafts appends the windows of the RateLimit fields.
func appendDrafts(dst []Window, h http.Header, c *clock) []Window {
	lines := h["Ratelimit"]
	if lines == nil {
		if h["Ratelimit-Remaining"] == nil {
			return dst
		}
		return appendSplit(dst, h, c)
	}
	var policies [maxItems]quotaPolicy
	n := readPolicies(&policies, h["Ratelimit-Policy"])
	if w, ok := combined(lines); ok {
		w.Per = lengthOf(policies[:n], w.Limit)
		return append(dst, w)
	}
	return appendItems(dst, lines, policies[:n])
}

// appendSplit reads drafts 00 to 06. Reset goes by size, since some servers
// send these names with seconds since 1970.
func appendSplit(dst []Window, h http.Header, c *clock) []Window {
	w := Window{Unit: "requests", Limit: -1, Remaining: least(h["Ratelimit-Remaining"]), Reset: -1}
	if d, ok := Auto.parse(first(h, "Ratelimit-Reset"), c); ok {
		w.Reset = d
	}
	var policies [maxItems]quotaPolicy
	lines := h["Ratelimit-Limit"]
	if len(lines) > 0 {
		limit, _ := cutItem(lines[0])
		if n, ok := parseCount(limit); ok {
			w.Limit = n
		}
		w.Per = lengthOf(policies[:readPolicies(&policies, lines)], w.Limit)
	}
	if w.Per == 0 {
		w.Per = lengthOf(policies[:readPolicies(&policies, h["Ratelimit-Policy"])], w.Limit)
	}
	if w.Limit < 0 && w.Remaining < 0 {
		return dst
	}
	return append(dst, w)
}

// lengthOf returns the window length of the policy with this quota, 0 if none is stated.
func lengthOf(policies []quotaPolicy, quota int64) time.Duration {
	for _, p := range policies {
		if p.quota == quota && p.per > 0 {
			return p.per
		}
	}
	return 0
}

// combined reads draft 07: limit=100, remaining=50, reset=5.
func combined(lines []string) (Window, bool) {
	w := Window{Unit: "requests", Limit: -1, Remaining: -1, Reset: -1}
	for _, line := range lines {
		for line != "" {
			var item string
			item, line = cutItem(line)
			name, v, ok := strings.Cut(item, "=")
			if !ok {
				return w, false
			}
			n, ok := parseCount(v)
			switch trim(name) {
			case "limit":
				if !ok {
					return w, false
				}
				w.Limit = n
			case "remaining":
				if !ok {
					return w, false
				}
				w.Remaining = n
			case "reset":
				if w.Reset, ok = parseAmount(v, time.Second); !ok {
					return w, false
				}
			}
		}
	}
	return w, w.Remaining >= 0
}

// appendItems reads drafts 08 to 10: each item is a policy's name with what
// remains (r) and when there will be more (t).
func appendItems(dst []Window, lines []string, policies []quotaPolicy) []Window {
	start := len(dst)
	var names [maxItems]string
	for _, line := range lines {
		for line != "" {
			var item string
			item, line = cutItem(line)
			if trim(item) == "" {
				continue
			}
			name, params, ok := itemName(item)
			if !ok {
				return dst[:start]
			}
			w := Window{Unit: "requests", Limit: -1, Remaining: -1, Reset: -1}
			for params != "" {
				var key, v string
				if key, v, params, ok = cutParam(params); !ok {
					return dst[:start]
				}
				n, isCount := parseCount(v)
				if (key == "r" || key == "t") && !isCount {
					return dst[:start]
				}
				switch key {
				case "r":
					w.Remaining = n
				case "t":
					w.Reset = decimal{whole: uint64(n), den: 1}.times(time.Second)
				}
			}
			if w.Remaining < 0 {
				return dst[:start]
			}
			for _, p := range policies {
				if p.name == name {
					w.Limit, w.Per, w.Unit = p.quota, p.per, p.unit
				}
			}
			if n := len(dst) - start; n < len(names) {
				names[n] = name
				dst = append(dst, w)
			}
		}
	}
	// One window keeps the unit, the others go by their policies' names.
	ws := dst[start:]
	var keeps [maxItems]bool
	for i := range ws {
		keeps[i] = true
		for j := range ws {
			if j != i && ws[j].Unit == ws[i].Unit && (tighter(&ws[j], &ws[i]) || !tighter(&ws[i], &ws[j]) && j < i) {
				keeps[i] = false
			}
		}
	}
	for i := range ws {
		if !keeps[i] && names[i] != "" && !isUnit(names[i]) {
			ws[i].Unit = names[i]
		}
	}
	return dst
}

// readPolicies reads quota policies of either form (100;w=60 or "name";q=100;w=60)
// and returns how many there are: none where a line is malformed.
func readPolicies(dst *[maxItems]quotaPolicy, lines []string) (n int) {
	for _, line := range lines {
		for line != "" {
			var item string
			item, line = cutItem(line)
			if trim(item) == "" {
				continue
			}
			name, params, ok := itemName(item)
			if !ok {
				return 0
			}
			p := quotaPolicy{name: name, unit: "requests", quota: -1}
			if q, ok := parseCount(name); ok {
				p.quota = q
			}
			for params != "" {
				var key, v string
				if key, v, params, ok = cutParam(params); !ok {
					return 0
				}
				switch key {
				case "q":
					if p.quota, ok = parseCount(v); !ok {
						return 0
					}
				case "w":
					if p.per, ok = parseAmount(v, time.Second); !ok {
						return 0
					}
				case "qu":
					p.unit = unquote(v)
				}
			}
			if p.unit == "" {
				p.unit = "requests"
			}
			if n < len(dst) {
				dst[n] = p
				n++
			}
		}
	}
	return n
}

// cutItem cuts the first item of a list; commas within quotes do not count.
func cutItem(list string) (item, rest string) {
	i := indexOutside(list, ',')
	if i < 0 {
		return list, ""
	}
	return list[:i], list[i+1:]
}

// indexOutside finds b outside of quoted strings.
func indexOutside(s string, b byte) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case !quoted && s[i] == b:
			return i
		}
	}
	return -1
}

// itemName cuts the name of an item, quoted or bare, from its parameters.
func itemName(item string) (name, params string, ok bool) {
	i := indexOutside(item, ';')
	if i >= 0 {
		item, params = item[:i], item[i+1:]
	}
	item = trim(item)
	return unquote(item), params, item != "" && item != `"`
}

// cutParam cuts the first of an item's parameters; one without a value has "".
func cutParam(s string) (key, v, rest string, ok bool) {
	if i := indexOutside(s, ';'); i >= 0 {
		s, rest = s[:i], s[i+1:]
	}
	key, v, _ = strings.Cut(s, "=")
	key = trim(key)
	return key, trim(v), rest, key != ""
}

// unquote returns the text of a quoted string, or s itself where it is a token.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	s = s[1 : len(s)-1]
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		out = append(out, s[i])
	}
	return string(out)
}
