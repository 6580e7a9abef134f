package retryafter

import (
	"math"
	"net/http"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// header builds a header from name and value pairs; a name may come again.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

const absent = time.Duration(-1)

func TestParse(t *testing.T) {
	const forever = time.Duration(math.MaxInt64)
	for _, test := range []struct {
		name string
		h    http.Header
		want time.Duration
	}{
		{"no header states nothing", header(), absent},
		{"seconds", header("Retry-After", "120"), 2 * time.Minute},
		{"zero is a wait", header("Retry-After", "0"), 0},
		{"decimals are exact", header("Retry-After", "0.1"), 100 * time.Millisecond},
		{"many decimals round up to the nanosecond", header("Retry-After", "1.0000000001"), time.Second + 1},
		{"a nanosecond's worth of decimals is exact", header("Retry-After", "34.074824224"), 34074824224},
		{"more decimals than anybody needs still round up", header("Retry-After", "0.0000000000000000000000000001"), 1},
		{"zero decimals add nothing", header("Retry-After", "2.000000000000000000000000000"), 2 * time.Second},
		{"blanks and tabs around are tolerated", header("Retry-After", " \t7 "), 7 * time.Second},
		{"leading zeros are tolerated", header("Retry-After", "0007"), 7 * time.Second},

		{"milliseconds come first", header("Retry-After", "45", "Retry-After-Ms", "44310"), 44310 * time.Millisecond},
		{"milliseconds may have decimals", header("Retry-After-Ms", "0.5"), 500 * time.Microsecond},
		{"Microsoft's milliseconds come second", header("Retry-After", "45", "X-Ms-Retry-After-Ms", "1500"), 1500 * time.Millisecond},
		{"the standard name for milliseconds outranks Microsoft's", header("X-Ms-Retry-After-Ms", "9000", "Retry-After-Ms", "1"), time.Millisecond},
		{"junk milliseconds leave it to the seconds", header("Retry-After-Ms", "abc", "Retry-After", "3"), 3 * time.Second},
		{"a name decides even if a later one is longer", header("Retry-After-Ms", "1", "Retry-After", "3"), time.Millisecond},

		{"of several lines the longest wins", header("Retry-After", "3", "Retry-After", "9", "Retry-After", "5"), 9 * time.Second},
		{"of a joined line the longest wins", header("Retry-After", "3, 9 ,5"), 9 * time.Second},
		{"junk beside a usable value is ignored", header("Retry-After", "soon, 4", "Retry-After", "-9"), 4 * time.Second},
		{"empty members are ignored", header("Retry-After", ",,4,"), 4 * time.Second},
		{"a date's comma is no separator", header("Retry-After", "Mon, 30 Nov 2026 12:00:40 GMT"), 40 * time.Second},
		{"a date and a number may be joined", header("Retry-After", "3, Mon, 30 Nov 2026 12:00:40 GMT, 9"), 40 * time.Second},
		{"two dates may be joined", header("Retry-After", "Mon, 30 Nov 2026 12:00:40 GMT,Monday, 30-Nov-26 12:01:00 GMT"), time.Minute},
		{"a weekday alone says nothing", header("Retry-After", "Mon,"), absent},
		{"a weekday before a number says nothing", header("Retry-After", "Mon, 5"), absent},

		{"IMF-fixdate", header("Retry-After", "Mon, 30 Nov 2026 12:02:00 GMT"), 2 * time.Minute},
		{"RFC 850", header("Retry-After", "Monday, 30-Nov-26 12:02:00 GMT"), 2 * time.Minute},
		{"asctime", header("Retry-After", "Mon Nov 30 12:02:00 2026"), 2 * time.Minute},
		{"asctime pads the day with a blank", header("Retry-After", "Sun Nov  6 08:49:37 1994"), 0},
		{"a leap second is a second", header("Retry-After", "Mon, 30 Nov 2026 12:00:60 GMT"), time.Minute},
		{"blanks around a date are tolerated", header("Retry-After", "  Mon, 30 Nov 2026 12:02:00 GMT "), 2 * time.Minute},
		{"a date that has passed is zero", header("Retry-After", "Mon, 30 Nov 2026 11:59:00 GMT"), 0},
		{"two digits far ahead are the past century", header("Retry-After", "Sunday, 06-Nov-94 08:49:37 GMT"), 0},
		{"two digits within fifty years are ahead", header("Retry-After", "Friday, 30-Nov-74 12:00:00 GMT"),
			time.Date(2074, 11, 30, 12, 0, 0, 0, time.UTC).Sub(noon)},
		{"a day that the month does not have is junk", header("Retry-After", "Tue, 31 Nov 2026 12:00:00 GMT"), absent},
		{"another zone than GMT is junk", header("Retry-After", "Monday, 30-Nov-26 12:02:00 PST"), absent},
		{"a date in ISO form is no HTTP date", header("Retry-After", "2026-11-30T12:02:00Z"), absent},

		{"the answer's own clock is believed", header("Retry-After", "Mon, 30 Nov 2026 13:00:40 GMT", "Date", "Mon, 30 Nov 2026 13:00:00 GMT"), 40 * time.Second},
		{"not that of a stored answer", header("Retry-After", "Mon, 30 Nov 2026 12:00:40 GMT", "Date", "Mon, 30 Nov 2026 11:00:00 GMT", "Age", "3600"), 40 * time.Second},
		{"nor a broken one", header("Retry-After", "Mon, 30 Nov 2026 12:00:40 GMT", "Date", "yesterday"), 40 * time.Second},
		{"seconds do not depend on the Date", header("Retry-After", "5", "Date", "Mon, 30 Nov 2026 11:00:00 GMT"), 5 * time.Second},

		{"negative is absent", header("Retry-After", "-5"), absent},
		{"signed is absent", header("Retry-After", "+5"), absent},
		{"hex is absent", header("Retry-After", "0x10"), absent},
		{"an exponent is absent", header("Retry-After", "1e3"), absent},
		{"NaN is absent", header("Retry-After", "NaN"), absent},
		{"Inf is absent", header("Retry-After", "Inf"), absent},
		{"words are absent", header("Retry-After", "soon"), absent},
		{"a unit is absent", header("Retry-After", "5s"), absent},
		{"a number in quotes is absent", header("Retry-After", `"5"`), absent},
		{"an underscore is absent", header("Retry-After", "1_000"), absent},
		{"a point without digits is absent", header("Retry-After", "5.", "Retry-After", ".5", "Retry-After", "."), absent},
		{"two points are absent", header("Retry-After", "1.2.3"), absent},
		{"digits of other scripts are absent", header("Retry-After", "٥"), absent},
		{"empty is absent", header("Retry-After", ""), absent},

		{"the largest whole second that fits is exact", header("Retry-After", "9223372036"), 9223372036 * time.Second},
		{"one more saturates", header("Retry-After", "9223372037"), forever},
		{"a fraction over the edge saturates", header("Retry-After", "9223372036.9"), forever},
		{"int64 seconds saturate", header("Retry-After", "9223372036854775807"), forever},
		{"more digits than 64 bits saturate", header("Retry-After", "99999999999999999999"), forever},
		{"a whole line of nines saturates", header("Retry-After", "999999999999999999999999999999999999999999999999.9"), forever},
		{"enormous milliseconds saturate", header("Retry-After-Ms", "9223372036854775807"), forever},
		{"a date millennia ahead saturates", header("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"), forever},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, ok := Parse(test.h, noon)
			if !ok {
				d = absent
			}
			if d != test.want {
				t.Errorf("Parse(%v) = %v, want %v", test.h, d, test.want)
			}
		})
	}
}

func TestFieldReport_A1_EnormousSecondsNeverTurnNegative(t *testing.T) {
	for _, n := range []string{"9223372036", "9223372037", "9223372036854775807", "99999999999999999999", "1767225600"} {
		h := header("Retry-After", n)
		sig := Classify("api.example.com", 429, h, nil, noon)
		if sig.RetryAfter <= 0 || !sig.HasHint {
			t.Fatalf("%s: %v, %v", n, sig.RetryAfter, sig.HasHint)
		}
		p := DefaultPolicy()
		p.MaxDelay = 30 * time.Second
		if action, wait := p.Step(Refusal{Signal: sig, Total: 1, OnRoute: 1}); action != Wait || wait != 30*time.Second {
			t.Errorf("%s: Clamp: %v %v, want one wait of 30 s", n, action, wait)
		}
		p.OverCap = Stop
		if action, wait := p.Step(Refusal{Signal: sig, Total: 1, OnRoute: 1}); action != Return || wait != sig.RetryAfter {
			t.Errorf("%s: Stop: %v %v, want the answer back with its full delay", n, action, wait)
		}
	}
}

func TestFieldReport_A2_NegativeIsMalformedAndAPastDateIsNow(t *testing.T) {
	p := DefaultPolicy()
	past := Classify("api.example.com", 429, header("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"), nil, noon)
	if action, wait := p.Step(Refusal{Signal: past, Total: 1, OnRoute: 1}); action != Wait || wait != 0 {
		t.Errorf("past date: %v %v, want a wait of 0 before jitter", action, wait)
	}
	negative := Classify("api.example.com", 429, header("Retry-After", "-5"), nil, noon)
	if action, wait := p.Step(Refusal{Signal: negative, Total: 1, OnRoute: 1}); action != Wait || wait != p.DefaultDelay {
		t.Errorf("negative: %v %v, want the default rung", action, wait)
	}
}

func TestFieldReport_A3_AllThreeDateFormsRoundUp(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 4e8, time.UTC)
	for _, date := range []string{
		"Thu, 01 Jan 2026 00:00:07 GMT",
		"Thursday, 01-Jan-26 00:00:07 GMT",
		"Thu Jan  1 00:00:07 2026",
	} {
		d, ok := Parse(header("Retry-After", date), now)
		if !ok || d < 6600*time.Millisecond || d >= 8*time.Second {
			t.Errorf("%s: %v, %v", date, d, ok)
		}
	}
}

func TestFieldReport_A6_TheCapIncludesItself(t *testing.T) {
	stop := DefaultPolicy()
	stop.OverCap = Stop
	for _, test := range []struct {
		name, seconds string
		policy        Policy
		route         bool
		action        Action
		wait          time.Duration
	}{
		{"60 is waited out", "60", stop, false, Wait, 60 * time.Second},
		{"60 is waited out though a route exists", "60", stop, true, Wait, 60 * time.Second},
		{"61 under Stop comes back with its full delay", "61", stop, false, Return, 61 * time.Second},
		{"61 under Clamp waits 60", "61", DefaultPolicy(), false, Wait, 60 * time.Second},
		{"61 reroutes at once where a route exists", "61", DefaultPolicy(), true, Escalate, 61 * time.Second},
		{"zero is a valid delay", "0", DefaultPolicy(), false, Wait, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			sig := Classify("api.example.com", 429, header("Retry-After", test.seconds), nil, noon)
			action, wait := test.policy.Step(Refusal{Signal: sig, Total: 1, OnRoute: 1, Route: test.route})
			if action != test.action || wait != test.wait {
				t.Errorf("%v %v, want %v %v", action, wait, test.action, test.wait)
			}
		})
	}
}
