package retryafter

import (
	"math"
	"strings"
	"time"
)

// decimal is an unsigned decimal number, exact to 18 places after the point and
// rounded up beyond them.
type decimal struct {
	whole uint64 // saturates
	frac  uint64 // in units of 1/den
	den   uint64 // a power of ten; 1 without a fraction
	over  bool   // whole is saturated
}

// scanDecimal reads digits with an optional fraction from the front of s and
// returns the rest. No sign, no exponent, no hex: those are left in the rest,
// or fail.
func scanDecimal(s string) (n decimal, rest string, ok bool) {
	n.den = 1
	i := 0
	for ; i < len(s) && s[i]-'0' <= 9; i++ {
		d := uint64(s[i] - '0')
		if n.whole > (math.MaxUint64-d)/10 {
			n.over = true
			continue
		}
		n.whole = n.whole*10 + d
	}
	if i == 0 {
		return n, s, false
	}
	if n.over {
		n.whole = math.MaxUint64
	}
	if i+1 >= len(s) || s[i] != '.' || s[i+1]-'0' > 9 {
		return n, s[i:], true
	}
	sticky := false
	for i++; i < len(s) && s[i]-'0' <= 9; i++ {
		if n.den == 1e18 {
			sticky = sticky || s[i] != '0'
			continue
		}
		n.frac = n.frac*10 + uint64(s[i]-'0')
		n.den *= 10
	}
	if sticky {
		n.frac++
	}
	return n, s[i:], true
}

// times returns n units, rounded up to the nanosecond and saturating.
func (n decimal) times(unit time.Duration) time.Duration {
	if n.over || n.whole > uint64(math.MaxInt64/unit) {
		return math.MaxInt64
	}
	d := time.Duration(n.whole) * unit
	if n.frac == 0 {
		return d
	}
	return plus(d, scale(unit, int64(n.frac), int64(n.den)))
}

// plus adds two durations of 0 or more, saturating.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// parseAmount reads the whole of s, blanks around it allowed, as a number of units.
func parseAmount(s string, unit time.Duration) (time.Duration, bool) {
	n, rest, ok := scanDecimal(trim(s))
	if !ok || rest != "" {
		return 0, false
	}
	return n.times(unit), true
}

// parseCount reads a whole number of 0 or more; a fraction is cut off, commas
// between thousands are tolerated, too large a number saturates. A sign makes
// it no number: some servers say -1 for "not reported".
func parseCount(s string) (int64, bool) {
	s = trim(s)
	if len(s) == 0 {
		return 0, false
	}
	if len(s) <= 18 {
		n := int64(0)
		for i := 0; ; i++ {
			if i == len(s) {
				return n, true
			}
			d := s[i] - '0'
			if d > 9 {
				break
			}
			n = n*10 + int64(d)
		}
	}
	digits, rest := s, ""
	if i := strings.IndexByte(s, '.'); i >= 0 {
		digits, rest = s[:i], s[i+1:]
		if rest == "" {
			return 0, false
		}
	}
	for i := range len(rest) {
		if rest[i]-'0' > 9 {
			return 0, false
		}
	}
	if i := strings.IndexByte(digits, ','); i >= 0 {
		return parseThousands(digits, i)
	}
	n, rest, ok := scanDecimal(digits)
	if !ok || rest != "" {
		return 0, false
	}
	return n.count(), true
}

// parseThousands reads s, whose first comma is at i, as groups of three digits.
func parseThousands(s string, i int) (int64, bool) {
	if i == 0 || i > 3 || (len(s)-i)%4 != 0 {
		return 0, false
	}
	n := decimal{}
	for j := range len(s) {
		if j >= i && (j-i)%4 == 0 {
			if s[j] != ',' {
				return 0, false
			}
			continue
		}
		d := uint64(s[j] - '0')
		if d > 9 {
			return 0, false
		}
		if n.over = n.over || n.whole > math.MaxInt64/10-1; !n.over {
			n.whole = n.whole*10 + d
		}
	}
	return n.count(), true
}

// count returns the whole part, saturating.
func (n decimal) count() int64 {
	if n.over || n.whole > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n.whole)
}

// parseDuration reads the whole of s as a length of time with units, such as
// "6m0s", "17ms" or "45 seconds".
func parseDuration(s string) (time.Duration, bool) {
	d, rest, ok := scanDuration(trim(s))
	return d, ok && trim(rest) == ""
}

// quickDuration is parseDuration for what servers send most: whole numbers of
// at most six digits, with h, m, s or ms.
func quickDuration(s string) (sum time.Duration, ok bool) {
	for i := 0; i < len(s); {
		n, from := time.Duration(0), i
		for ; i < len(s) && s[i]-'0' <= 9; i++ {
			n = n*10 + time.Duration(s[i]-'0')
		}
		if i == from || i-from > 6 || i == len(s) {
			return 0, false
		}
		unit := time.Second
		switch s[i] {
		case 's':
		case 'm':
			if unit = time.Minute; i+1 < len(s) && s[i+1] == 's' {
				unit = time.Millisecond
				i++
			}
		case 'h':
			unit = time.Hour
		default:
			return 0, false
		}
		i++
		if sum += n * unit; sum > math.MaxInt64/2 {
			return 0, false
		}
	}
	return sum, len(s) > 0
}

// scanDuration reads numbers with units from the front of s, as many as there
// are, and returns the rest.
func scanDuration(s string) (sum time.Duration, rest string, ok bool) {
	for {
		t := s
		for ok && t != "" && t[0] == ' ' {
			t = t[1:]
		}
		n, t, digits := scanDecimal(t)
		if !digits {
			return sum, s, ok
		}
		if t != "" && t[0] == ' ' {
			t = t[1:]
		}
		i := 0
		for i < len(t) && isLetter(t[i]) {
			i++
		}
		unit := unitOf(t[:i])
		if unit == 0 {
			return sum, s, ok
		}
		sum, s, ok = plus(sum, n.times(unit)), t[i:], true
	}
}

// isLetter holds for ASCII letters and for the bytes of a micro sign.
func isLetter(b byte) bool {
	return b|0x20-'a' < 26 || b >= 0x80
}

// unitOf returns the length of a named unit of time, 0 for any other word.
func unitOf(word string) time.Duration {
	switch word {
	case "s":
		return time.Second
	case "ms":
		return time.Millisecond
	case "m":
		return time.Minute
	case "h":
		return time.Hour
	case "d":
		return 24 * time.Hour
	case "us", "µs", "μs":
		return time.Microsecond
	case "ns":
		return time.Nanosecond
	}
	switch strings.ToLower(word) {
	case "sec", "secs", "second", "seconds":
		return time.Second
	case "min", "mins", "minute", "minutes":
		return time.Minute
	case "hr", "hrs", "hour", "hours":
		return time.Hour
	case "day", "days":
		return 24 * time.Hour
	case "millisecond", "milliseconds", "msec", "msecs":
		return time.Millisecond
	}
	return 0
}

// trim cuts the optional whitespace of RFC 9110 (blanks and tabs) from both ends.
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
