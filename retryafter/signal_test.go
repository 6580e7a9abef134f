package retryafter

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWait(t *testing.T) {
	need := func(n int64) func(string) int64 { return func(string) int64 { return n } }
	fixed := func(remaining int64, reset time.Duration) Window {
		return Window{Unit: "requests", Limit: 100, Remaining: remaining, Reset: reset}
	}
	refills := func(remaining int64, reset time.Duration) Window {
		w := fixed(remaining, reset)
		w.Refills = true
		return w
	}
	for _, test := range []struct {
		name string
		s    Signal
		need func(string) int64
		want time.Duration
	}{
		{"the zero Signal leaves it to the client", Signal{}, nil, absent},
		{"a hint comes first", Signal{Class: RateLimited, HasHint: true, RetryAfter: 3, Windows: []Window{fixed(0, time.Hour)}}, nil, 3},
		{"a hint of zero is a hint", Signal{Class: RateLimited, HasHint: true, Windows: []Window{fixed(0, time.Hour)}}, nil, 0},
		{"a hint outranks the documented minimum", Signal{Class: RateLimited, HasHint: true, RetryAfter: 3, Floor: time.Minute}, nil, 3},
		{"a hint that does not allow a retry is still how long to wait", Signal{Class: RateLimited, HasHint: true, RetryAfter: 3}, nil, 3},
		{"a success waits for nothing", Signal{Class: OK, HasHint: true, RetryAfter: 3}, nil, absent},
		{"no wait cures a spent quota", Signal{Class: QuotaExhausted, HasHint: true, RetryAfter: 3}, nil, absent},
		{"an error that may pass waits by its hint", Signal{Class: ServerError, HasHint: true, RetryAfter: 3, Retryable: true}, nil, 3},
		{"an error that may pass does not wait for windows", Signal{Class: ServerError, Retryable: true, Windows: []Window{fixed(0, time.Hour)}}, nil, absent},
		{"an error that will not pass waits for nothing", Signal{Class: Other, HasHint: true, RetryAfter: 3}, nil, absent},
		{"no window is exhausted", Signal{Class: RateLimited, Windows: []Window{fixed(1, time.Hour)}}, nil, absent},
		{"the latest reset among the exhausted", Signal{Class: RateLimited, Windows: []Window{fixed(0, 5), fixed(0, 9), fixed(0, 7), fixed(1, 100)}}, nil, 9},
		{"an exhausted window of a class that is no limit counts too", Signal{Class: Overloaded, Windows: []Window{fixed(0, 5)}}, nil, 5},
		{"a reset that is not stated says nothing", Signal{Class: RateLimited, Windows: []Window{fixed(0, -1)}}, nil, absent},
		{"what remains may be too little for the call", Signal{Class: RateLimited, Windows: []Window{fixed(9, 5)}}, need(10), 5},
		{"or just enough", Signal{Class: RateLimited, Windows: []Window{fixed(10, 5)}}, need(10), absent},
		{"what remains is not stated: on a refused answer the reset serves", Signal{Class: RateLimited, Windows: []Window{fixed(-1, 5)}}, need(10), 5},
		{"a lone reset serves, the latest of several", Signal{Class: RateLimited, Windows: []Window{{"a", -1, -1, 5, 0, false}, {"b", -1, -1, 9, 0, true}, {"c", -1, -1, -1, 0, false}}}, need(10), 9},
		{"one that refills is taken to be empty", Signal{Class: RateLimited, Windows: []Window{refills(-1, time.Minute)}}, need(10), 6 * time.Second},
		{"not stated is not exhausted where another window is", Signal{Class: RateLimited, Windows: []Window{fixed(-1, 50), fixed(0, 5), fixed(-1, 60)}}, need(10), 5},
		{"not stated is exhausted where the others have room", Signal{Class: RateLimited, Windows: []Window{fixed(99, 70), fixed(-1, 50)}}, need(10), 50},
		{"not stated is not exhausted where the service is overloaded", Signal{Class: Overloaded, Windows: []Window{fixed(-1, 5)}}, need(10), absent},
		{"a reset of zero beside what is not stated says nothing", Signal{Class: RateLimited, Windows: []Window{fixed(-1, 0)}}, need(10), absent},
		{"the documented minimum is the least of a lone reset too", Signal{Class: RateLimited, Floor: time.Minute, Windows: []Window{fixed(-1, 5)}}, nil, time.Minute},
		{"a need below one counts as one", Signal{Class: RateLimited, Windows: []Window{fixed(0, 5)}}, need(-3), 5},
		{"one that refills lets one call go early", Signal{Class: RateLimited, Windows: []Window{refills(0, time.Minute)}}, nil, 600 * time.Millisecond},
		{"one that refills lets a larger call go later", Signal{Class: RateLimited, Windows: []Window{refills(20, time.Minute)}}, need(60), 30 * time.Second},
		{"one that refills rounds up", Signal{Class: RateLimited, Windows: []Window{refills(0, 101)}}, nil, 2},
		{"a call larger than the window waits for all of it", Signal{Class: RateLimited, Windows: []Window{refills(20, time.Minute)}}, need(1e9), time.Minute},
		{"a limit of zero divides nothing", Signal{Class: RateLimited, Windows: []Window{{Limit: 0, Remaining: 0, Reset: 5, Refills: true}}}, nil, 5},
		{"a limit that is not stated waits for all of it", Signal{Class: RateLimited, Windows: []Window{{Limit: -1, Remaining: 0, Reset: 5, Refills: true}}}, nil, 5},
		{"without a reset the length of the window serves", Signal{Class: RateLimited, Windows: []Window{{Limit: 60, Remaining: 0, Reset: -1, Per: time.Minute, Refills: true}}}, nil, time.Second},
		{"without either nothing does", Signal{Class: RateLimited, Windows: []Window{{Limit: 60, Remaining: 0, Reset: -1, Refills: true}}}, nil, absent},
		{"the documented minimum serves where nothing is stated", Signal{Class: RateLimited, Floor: time.Minute}, nil, time.Minute},
		{"the documented minimum is the least of a window's wait", Signal{Class: RateLimited, Floor: time.Minute, Windows: []Window{fixed(0, 5)}}, nil, time.Minute},
		{"a longer window's wait outranks it", Signal{Class: RateLimited, Floor: time.Minute, Windows: []Window{fixed(0, time.Hour)}}, nil, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := test.s.Wait(test.need)
			if !ok {
				got = absent
			}
			if got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestWaitAsksForEachWindowByItsUnit(t *testing.T) {
	s := Signal{Class: RateLimited, Windows: []Window{
		{Unit: "requests", Limit: 60, Remaining: 10, Reset: 50 * time.Second, Refills: true},
		{Unit: "tokens", Limit: 1000, Remaining: 0, Reset: time.Minute, Refills: true},
	}}
	got, ok := s.Wait(func(unit string) int64 { return map[string]int64{"requests": 1, "tokens": 500}[unit] })
	if !ok || got != 30*time.Second {
		t.Errorf("%v, %v, want 30 s: half of the tokens", got, ok)
	}
}

func TestScaleIsExactRoundedUpAndSaturates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.Int64Range(0, math.MaxInt64).Draw(t, "d")
		num := rapid.Int64Range(0, math.MaxInt64).Draw(t, "num")
		den := rapid.Int64Range(1, math.MaxInt64).Draw(t, "den")
		want := new(big.Int).Mul(big.NewInt(d), big.NewInt(num))
		want.Add(want, big.NewInt(den-1)).Div(want, big.NewInt(den))
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		if got := scale(time.Duration(d), num, den); int64(got) != want.Int64() {
			t.Fatalf("scale(%d, %d, %d) = %d, want %v", d, num, den, got, want)
		}
	})
}

func TestWaitIsNeverNegativeNorLongerThanTheReset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := Window{
			Limit:     rapid.Int64Range(-1, math.MaxInt64).Draw(t, "limit"),
			Remaining: rapid.Int64Range(-1, math.MaxInt64).Draw(t, "remaining"),
			Reset:     time.Duration(rapid.Int64Range(-1, math.MaxInt64).Draw(t, "reset")),
			Refills:   rapid.Bool().Draw(t, "refills"),
		}
		need := rapid.Int64().Draw(t, "need")
		d, ok := Signal{Class: RateLimited, Windows: []Window{w}}.Wait(func(string) int64 { return need })
		if d < 0 || ok && d > w.Reset {
			t.Fatalf("%+v needs %d: %v", w, need, d)
		}
	})
}

func TestClassesHaveNames(t *testing.T) {
	want := []string{"ok", "rate_limited", "overloaded", "quota_exhausted", "server_error", "other", "other"}
	for c, name := range want {
		if got := Class(c).String(); got != name {
			t.Errorf("Class(%d) = %q, want %q", c, got, name)
		}
	}
}
