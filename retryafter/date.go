package retryafter

import (
	"net/http"
	"strings"
	"time"
)

// clock is the instant that an answer's absolute times are compared with: the
// answer's own Date where it has one and was not stored on the way (no Age), so
// that a skew between the two clocks does no harm; else the reader's now.
type clock struct {
	h    http.Header
	now  time.Time
	ref  time.Time
	have bool
}

func (c *clock) time() time.Time {
	if c.have {
		return c.ref
	}
	c.ref, c.have = c.now, true
	if v := c.h["Date"]; len(v) > 0 && len(c.h["Age"]) == 0 {
		if t, ok := parseDate(v[0], c.now); ok {
			c.ref = t
		}
	}
	return c.ref
}

// until returns how long it is until t: 0 where that is past.
func (c *clock) until(t time.Time) time.Duration {
	return max(t.Sub(c.time()), 0)
}

// parseDate reads an HTTP date in any of the three forms of RFC 9110, section
// 5.6.7. now settles the century of the form with two digits.
func parseDate(s string, now time.Time) (time.Time, bool) {
	s = trim(s)
	if t, ok := parseFixdate(s); ok {
		return t, true
	}
	if len(s) < len("Mon Jan  2 15:04:05 2006") || weekday(s) == 0 {
		return time.Time{}, false
	}
	if strings.IndexByte(s, ',') < 0 {
		t, err := time.Parse(time.ANSIC, s)
		return t, err == nil
	}
	// The zone's name is checked here: time.Parse would take any.
	day, isGMT := strings.CutSuffix(s, " GMT")
	if !isGMT {
		return time.Time{}, false
	}
	t, err := time.Parse("Monday, 02-Jan-06 15:04:05", day)
	if err != nil {
		return time.Time{}, false
	}
	// "A timestamp that appears to be more than 50 years in the future" is "the
	// most recent year in the past that had the same last two digits".
	now = now.UTC()
	year := now.Year()/100*100 + t.Year()%100 + 100
	for ; year > now.Year()-100; year -= 100 {
		t = time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
		if !t.After(now.AddDate(50, 0, 0)) {
			break
		}
	}
	return t, true
}

// parseFixdate reads the preferred form, "Sun, 06 Nov 1994 08:49:37 GMT".
func parseFixdate(s string) (time.Time, bool) {
	if len(s) != len(http.TimeFormat) || s[3] != ',' || s[4] != ' ' || s[7] != ' ' || s[11] != ' ' ||
		s[16] != ' ' || s[25:] != " GMT" || weekday(s[:3]) != 3 {
		return time.Time{}, false
	}
	day, ok1 := twoDigits(s[5:7])
	century, ok2 := twoDigits(s[12:14])
	year, ok3 := twoDigits(s[14:16])
	if !ok1 || !ok2 || !ok3 {
		return time.Time{}, false
	}
	return instant(century*100+year, monthOf(s[8:11]), day, s[17:25])
}

// instant returns the time of a day in UTC, given its clock as "08:49:37"; a
// leap second is allowed.
func instant(year, month, day int, clock string) (time.Time, bool) {
	hour, ok1 := twoDigits(clock[0:2])
	minute, ok2 := twoDigits(clock[3:5])
	sec, ok3 := twoDigits(clock[6:8])
	if !ok1 || !ok2 || !ok3 || clock[2] != ':' || clock[5] != ':' || hour > 23 || minute > 59 || sec > 60 ||
		month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return time.Time{}, false
	}
	// Days since 1970, counted in years that begin in March.
	y, m := year, month-3
	if m < 0 {
		y, m = y-1, m+12
	}
	days := 365*y + y/4 - y/100 + y/400 + (153*m+2)/5 + day - 1 - 719468
	return time.Unix(int64(days)*86400+int64(hour*3600+minute*60+sec), 0), true
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

func twoDigits(s string) (int, bool) {
	a, b := s[0]-'0', s[1]-'0'
	return int(a)*10 + int(b), a <= 9 && b <= 9
}

// monthOf returns 1 to 12, 0 for what is no month's short name.
func monthOf(s string) int {
	switch s {
	case "Jan":
		return 1
	case "Feb":
		return 2
	case "Mar":
		return 3
	case "Apr":
		return 4
	case "May":
		return 5
	case "Jun":
		return 6
	case "Jul":
		return 7
	case "Aug":
		return 8
	case "Sep":
		return 9
	case "Oct":
		return 10
	case "Nov":
		return 11
	case "Dec":
		return 12
	}
	return 0
}

// weekday returns the length of the weekday's name at the front of s, short or
// in full, 0 where there is none.
func weekday(s string) int {
	n := 0
	for n < len(s) && s[n]|0x20-'a' < 26 {
		n++
	}
	switch s[:n] {
	case "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun",
		"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday":
		return n
	}
	return 0
}

// parseStamp reads RFC 3339, also without seconds.
func parseStamp(s string) (time.Time, bool) {
	if len(s) < len("2006-01-02T15:04Z") || s[4] != '-' || s[7] != '-' || s[10]|0x20 != 't' || s[13] != ':' {
		return time.Time{}, false
	}
	if len(s) == len("2006-01-02T15:04:05Z") && s[19]|0x20 == 'z' {
		century, ok1 := twoDigits(s[0:2])
		year, ok2 := twoDigits(s[2:4])
		month, ok3 := twoDigits(s[5:7])
		day, ok4 := twoDigits(s[8:10])
		if !ok1 || !ok2 || !ok3 || !ok4 {
			return time.Time{}, false
		}
		return instant(century*100+year, month, day, s[11:19])
	}
	layout := time.RFC3339
	if s[16] != ':' {
		layout = "2006-01-02T15:04Z07:00"
	}
	t, err := time.Parse(layout, s)
	return t, err == nil
}
