package llm

import (
	"bytes"
	"io"
)

// scanner reads JSON from r through a window of fixed size, once, and keeps
// nothing. It is lenient: it accepts some things that are not JSON, since to
// judge them is the server's business.
type scanner struct {
	r      io.Reader
	window []byte
	i, n   int   // what is left of the window
	read   int64 // bytes read from r
	err    error // how r ended
	broken bool  // what came is not JSON, or ends too early, or is nested too deeply
	short  [maxShort]byte
}

const (
	windowSize = 16 << 10
	maxShort   = 128 // the longest key, number or name that is looked at
	maxDepth   = 128 // the deepest nesting that is followed
)

// fill reads more when the window is used up.
func (s *scanner) fill() bool {
	for tries := 0; s.i == s.n && s.err == nil; tries++ {
		s.i = 0
		s.n, s.err = s.r.Read(s.window)
		s.n = max(0, min(s.n, len(s.window)))
		s.read += int64(s.n)
		if s.n == 0 && s.err == nil && tries == 100 {
			s.err = io.ErrNoProgress
		}
	}
	return s.i < s.n
}

// next returns the next byte that is not space; at the end of the input it is 0
// and the scanner broken.
func (s *scanner) next() byte {
	for s.fill() {
		for s.i < s.n {
			c := s.window[s.i]
			s.i++
			if c > ' ' {
				return c
			}
		}
	}
	s.broken = true
	return 0
}

// piece returns what of a string is in the window and whether the string ends
// with it. It never ends behind a lone backslash. It is nil where the input ends.
func (s *scanner) piece() (p []byte, last bool) {
	if !s.fill() || s.n-s.i == 1 && s.window[s.i] == '\\' && !s.extend() {
		s.broken = true
		return nil, true
	}
	p = s.window[s.i:s.n]
	q := bytes.IndexByte(p, '"')
	if q >= 0 {
		p = p[:q]
	}
	switch lone := loneBackslash(p); {
	case q >= 0 && !lone:
		s.i += q + 1
		return p, true
	case q >= 0:
		p = p[:q+1] // the quote is part of the text
	case lone:
		p = p[:len(p)-1] // the escape goes on beyond the window
	}
	s.i += len(p)
	return p, false
}

// extend reads more behind the one byte that is left of the window.
func (s *scanner) extend() bool {
	s.window[0] = s.window[s.i]
	s.i = s.n
	rest := scanner{r: s.r, window: s.window[1:], err: s.err}
	ok := rest.fill()
	s.i, s.n, s.err, s.read = 0, rest.n+1, rest.err, s.read+rest.read
	return ok
}

// loneBackslash reports whether p ends within an escape. p does not begin in one.
func loneBackslash(p []byte) bool {
	n := 0
	for n < len(p) && p[len(p)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// skipString skips the rest of a string.
func (s *scanner) skipString() {
	for last := false; !last; {
		_, last = s.piece()
	}
}

// measure adds the rest of a string to t.
func (s *scanner) measure(t *text) {
	for last := false; !last; {
		var p []byte
		p, last = s.piece()
		t.escaped(p)
	}
	t.hexLeft = 0
	t.endRun()
}

// shortString returns the rest of a string, escapes and all, if it is short;
// else nothing. It is good until the next call.
func (s *scanner) shortString() []byte {
	n := 0
	for last := false; !last; {
		var p []byte
		p, last = s.piece()
		if n+len(p) > maxShort {
			n = maxShort + 1
			continue
		}
		n += copy(s.short[n:], p)
	}
	if n > maxShort {
		return nil
	}
	return s.short[:n]
}

// literal returns a number or word that begins with c, if it is short; else
// nothing. It is good until the next call.
func (s *scanner) literal(c byte) []byte {
	s.short[0] = c
	n := 1
	for s.fill() {
		for ; s.i < s.n; s.i++ {
			switch c := s.window[s.i]; {
			case c <= ' ', c == ',', c == '}', c == ']', c == ':', c == '"', c == '{', c == '[':
				if n > maxShort {
					return nil
				}
				return s.short[:n]
			case n < maxShort:
				s.short[n] = c
				n++
			default:
				n = maxShort + 1
			}
		}
	}
	if n > maxShort {
		return nil
	}
	return s.short[:n]
}

// skip skips the value that begins with c.
func (s *scanner) skip(c byte) {
	switch c {
	case '"':
		s.skipString()
		return
	case '{', '[':
	default:
		s.literal(c)
		return
	}
	for depth := 1; depth > 0 && !s.broken; {
		switch s.next() {
		case '"':
			s.skipString()
		case '{', '[':
			if depth++; depth > maxDepth {
				s.broken = true
			}
		case '}', ']':
			depth--
		}
	}
}
