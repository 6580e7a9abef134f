package retryafter

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Classify says what an answer means, from its status, its headers and the
// beginning of its body. It is pure (a Provider's own Header and Body apart): it
// changes and keeps nothing of what it is given. now is when the answer came.
//
// The status decides unless a structured field of a known provider says more.
// A body is looked at for providers that declare where; a body that does not
// parse counts as none. An answer below 400 is OK, unless its body was given
// and holds an error in the provider's way of saying so: a GraphQL error, or an
// error event in a stream.
func (s *Source) Classify(status int, h http.Header, body []byte, now time.Time) Signal {
	c := clock{h: h, now: now}
	sig := Signal{Windows: s.Windows(nil, h, now)}
	sig.RetryAfter, sig.HasHint = Parse(h, now)
	for i := 0; i < len(s.headerHints) && !sig.HasHint; i++ {
		hint := &s.headerHints[i]
		sig.RetryAfter, sig.HasHint = hint.longest(h[hint.Header], &c)
	}

	var doc any
	switch {
	case len(body) == 0:
	case status >= 400:
		if s.ReadsBody(status) {
			if docs := documents(h, body); len(docs) > 0 {
				doc = docs[0]
			}
		}
	case status >= 100 && (len(s.embedded) > 0 || s.body != nil):
		for _, d := range documents(h, body) {
			if e := s.embeddedStatus(d); e >= 400 {
				status, doc = e, d
				break
			}
			if doc == nil {
				doc = d
			}
		}
	}
	if doc != nil {
		s.readBody(&sig, doc, &c)
	}
	if status < 100 || status >= 400 {
		s.judge(&sig, status, h, doc)
	}
	if s.header != nil {
		s.header(&sig, h, c.time())
	}
	if s.body != nil && doc != nil {
		s.body(&sig, doc)
	}
	return sig
}

// embeddedStatus returns the status that a body's error code stands for, 0
// without one.
func (s *Source) embeddedStatus(doc any) int {
	status := 0
	for _, path := range s.embedded {
		lookup(doc, path, func(v any) bool {
			word, ok := text(v)
			if !ok {
				return false
			}
			if n, err := strconv.Atoi(word); err == nil && n >= 400 && n <= 599 {
				status = n
			} else if n, ok := s.codes[strings.ToLower(word)]; ok {
				status = n
			}
			return status != 0
		})
		if status != 0 {
			break
		}
	}
	return status
}

// readBody adds what a body states: the hint, where no header had one, and windows.
func (s *Source) readBody(sig *Signal, doc any, c *clock) {
	for i := range s.bodyHints {
		if sig.HasHint {
			break
		}
		lookup(doc, s.bodyHints[i].path, func(v any) bool {
			if t, ok := text(v); ok {
				sig.RetryAfter, sig.HasHint = s.bodyHints[i].read(t, c)
			}
			return sig.HasHint
		})
	}
	if s.bodyHeaders != nil {
		lookup(doc, s.bodyHeaders, func(v any) bool {
			members, ok := v.(map[string]any)
			if !ok {
				return false
			}
			h := http.Header{}
			for _, name := range slices.Sorted(maps.Keys(members)) {
				if t, ok := text(members[name]); ok {
					h.Set(name, t)
				}
			}
			sig.Windows = s.Windows(sig.Windows, h, c.time())
			return true
		})
	}
}

// longest returns the longest wait in a header's lines.
func (h *Hint) longest(lines []string, c *clock) (wait time.Duration, ok bool) {
	for _, line := range lines {
		if d, usable := h.read(line, c); usable {
			wait, ok = max(wait, d), true
			continue
		}
		for len(h.After) == 0 && line != "" {
			var v string
			v, line = cutValue(line)
			if d, usable := h.read(v, c); usable {
				wait, ok = max(wait, d), true
			}
		}
	}
	return wait, ok
}

// read returns the wait in a text.
func (h *Hint) read(s string, c *clock) (time.Duration, bool) {
	if len(h.After) == 0 {
		return h.Format.parse(s, c)
	}
	return durationAfter(s, h.After)
}

// durationAfter returns the duration with units that follows one of the
// phrases, which are lower case.
func durationAfter(s string, phrases []string) (time.Duration, bool) {
	s = strings.ToLower(s)
	for _, phrase := range phrases {
		for rest := s; phrase != ""; {
			_, after, found := strings.Cut(rest, phrase)
			if !found {
				break
			}
			if d, _, ok := scanDuration(after); ok {
				return d, true
			}
			rest = after
		}
	}
	return 0, false
}

// judge gives a refused answer its class.
func (s *Source) judge(sig *Signal, status int, h http.Header, doc any) {
	var retry Retry
	sig.Class, sig.Retryable = byStatus(status)
	for i := range s.rules {
		r := &s.rules[i]
		if !r.holds(sig, status, h, doc) {
			continue
		}
		if r.Class != sig.Class {
			switch sig.Class = r.Class; r.Class {
			case RateLimited, Overloaded:
				sig.Retryable = true
			case QuotaExhausted:
				sig.Retryable = false
			case Other, ServerError:
				sig.Retryable = retryStatus(status)
			}
		}
		sig.Floor = r.Floor
		if retry = r.Retry; retry != ByClass {
			sig.Retryable = retry == Again
		}
		break
	}
	if s.shouldRetry == "" {
		return
	}
	switch strings.ToLower(trim(first(h, s.shouldRetry))) {
	case "false":
		sig.Retryable = false
	case "true":
		if retry != Never && sig.Class != QuotaExhausted {
			sig.Retryable = true
		}
	}
}

// byStatus is what a status means on its own.
func byStatus(status int) (Class, bool) {
	switch {
	case status == http.StatusTooManyRequests:
		return RateLimited, true
	case status == http.StatusServiceUnavailable || status == 529:
		return Overloaded, true
	case status >= 500 && status <= 599:
		return ServerError, retryStatus(status)
	}
	return Other, retryStatus(status)
}

// retryStatus holds for the failures that may pass by themselves.
func retryStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// holds reports whether all conditions of the rule hold.
func (r *rule) holds(sig *Signal, status int, h http.Header, doc any) bool {
	if len(r.Status) > 0 {
		found := false
		for _, want := range r.Status {
			found = found || want == status
		}
		if !found {
			return false
		}
	}
	if r.HintOver > 0 && !(sig.HasHint && sig.RetryAfter > r.HintOver) {
		return false
	}
	if r.Header != "" {
		for _, v := range h[r.Header] {
			if r.fits(trim(v)) {
				return true
			}
		}
		return false
	}
	if len(r.paths) == 0 {
		return true
	}
	for _, path := range r.paths {
		if lookup(doc, path, func(v any) bool {
			t, ok := text(v)
			return ok && r.fits(t)
		}) {
			return true
		}
	}
	return false
}

// fits reports whether a value is, or contains, what the rule asks for.
func (r *rule) fits(v string) bool {
	if len(r.Is)+len(r.Contains) == 0 {
		return true
	}
	v = strings.ToLower(v)
	for _, want := range r.Is {
		if v == want {
			return true
		}
	}
	for _, want := range r.Contains {
		if strings.Contains(v, want) {
			return true
		}
	}
	return false
}
