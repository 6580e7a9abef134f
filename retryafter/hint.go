package retryafter

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// Parse returns the wait that the headers state, and false where they state
// none that can be used.
//
// Retry-After-Ms and X-Ms-Retry-After-Ms (milliseconds) come before Retry-After
// (seconds, or an HTTP date); the first of these with a usable value decides.
// Numbers may have decimals and are exact. All lines of a name are read, and
// lists joined by commas; the longest usable value wins. Negative, signed, hex,
// exponent and wordy values count as absent. A date that has passed is 0, an
// enormous number is the longest time.Duration. A date is compared with the
// answer's own Date where there is one and no Age, else with now
// (RFC 9110, sections 10.2.3 and 5.6.7).
func Parse(h http.Header, now time.Time) (time.Duration, bool) {
	c := clock{h: h, now: now}
	for _, name := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if d, ok := longest(h[name], time.Millisecond, &c); ok {
			return d, true
		}
	}
	return longest(h["Retry-After"], time.Second, &c)
}

// longest returns the longest usable value of a header's lines. Dates are
// usable among seconds only.
func longest(lines []string, unit time.Duration, c *clock) (wait time.Duration, ok bool) {
	for _, line := range lines {
		for line != "" {
			var v string
			v, line = cutValue(line)
			d, usable := parseAmount(v, unit)
			if !usable && unit == time.Second {
				var t time.Time
				if t, usable = parseDate(v, c.now); usable {
					d = c.until(t)
				}
			}
			if usable {
				wait, ok = max(wait, d), true
			}
		}
	}
	return wait, ok
}

// cutValue cuts the first value from a list joined by commas; the comma after a
// date's weekday is no separator.
func cutValue(list string) (v, rest string) {
	i := strings.IndexByte(list, ',')
	if i < 0 {
		return list, ""
	}
	if day := trim(list[:i]); day != "" && weekday(day) == len(day) {
		if j := strings.IndexByte(list[i+1:], ','); j >= 0 {
			i += 1 + j
		} else {
			return list, ""
		}
	}
	return list[:i], list[i+1:]
}

// parse reads a wait in this format, or the time until an instant.
func (f Format) parse(s string, c *clock) (time.Duration, bool) {
	s = trim(s)
	if s == "" {
		return 0, false
	}
	switch f {
	case Seconds:
		return parseAmount(s, time.Second)
	case Milliseconds:
		return parseAmount(s, time.Millisecond)
	case Duration:
		return parseDuration(s)
	case UnixSeconds, UnixMilliseconds:
		n, rest, ok := scanDecimal(s)
		if !ok || rest != "" {
			return 0, false
		}
		return c.untilUnix(n, f == UnixMilliseconds), true
	}
	if s[0]-'0' > 9 || f == Date {
		if t, ok := parseStamp(s); ok {
			return c.until(t), true
		}
		if t, ok := parseDate(s, c.now); ok {
			return c.until(t), true
		}
		return 0, false
	}
	if d, ok := quickDuration(s); ok {
		return d, true
	}
	n, rest, _ := scanDecimal(s)
	if rest != "" {
		if t, ok := parseStamp(s); ok {
			return c.until(t), true
		}
		return parseDuration(s)
	}
	switch {
	case n.whole >= 1e11:
		return c.untilUnix(n, true), true
	case n.whole >= 1e9:
		return c.untilUnix(n, false), true
	}
	return n.times(time.Second), true
}

// untilUnix returns how long it is until n seconds, or milliseconds, after 1970.
func (c *clock) untilUnix(n decimal, millis bool) time.Duration {
	fraction := decimal{frac: n.frac, den: n.den}
	if millis {
		// The seconds in any number of milliseconds fit a time.Time.
		sec, ms := n.whole/1000, n.whole%1000
		return c.until(time.Unix(int64(sec), int64(ms*1e6)+int64(fraction.times(time.Millisecond))))
	}
	if n.whole > 1<<40 { // 34,865 years
		return math.MaxInt64
	}
	return c.until(time.Unix(int64(n.whole), int64(fraction.times(time.Second))))
}
