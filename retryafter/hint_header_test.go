package retryafter

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// reading is a Source of one Provider, which must be valid.
func reading(t testing.TB, p Provider) *Source {
	t.Helper()
	p.Name, p.Hosts = "p", []string{"p.example"}
	r := Reader{Providers: []Provider{p}}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r.For("p.example")
}

func TestAProviderStatesTheWaitInAHeaderOfItsOwn(t *testing.T) {
	for _, test := range []struct {
		name string
		hint Hint
		h    http.Header
		want time.Duration
	}{
		{"milliseconds", Hint{Header: "x-calm-wait-MS", Format: Milliseconds}, header("X-Calm-Wait-Ms", "7000"), 7 * time.Second},
		{"seconds", Hint{Header: "X-Wait", Format: Seconds}, header("X-Wait", "1.5"), 1500 * time.Millisecond},
		{"a duration", Hint{Header: "X-Backoff", Format: Duration}, header("X-Backoff", "1m30s"), 90 * time.Second},
		{"seconds since 1970", Hint{Header: "X-Wait", Format: UnixSeconds}, header("X-Wait", "1796040060"), time.Minute},
		{"milliseconds since 1970", Hint{Header: "X-Wait", Format: UnixMilliseconds}, header("X-Wait", "1796040000250"), 250 * time.Millisecond},
		{"an HTTP date", Hint{Header: "X-Wait", Format: Date}, header("X-Wait", "Mon, 30 Nov 2026 12:02:00 GMT"), 2 * time.Minute},
		{"RFC 3339", Hint{Header: "X-Wait", Format: Date}, header("X-Wait", "2026-11-30T12:01:00Z"), time.Minute},
		{"a date by the server's clock", Hint{Header: "X-Wait", Format: Date}, header("X-Wait", "2026-11-30T13:01:00Z", "Date", "Mon, 30 Nov 2026 13:00:00 GMT"), time.Minute},
		{"by shape", Hint{Header: "X-Wait"}, header("X-Wait", "90s"), 90 * time.Second},
		{"in a text", Hint{Header: "X-Why", After: []string{"Retry in "}}, header("X-Why", "too fast, retry in 2 seconds, please"), 2 * time.Second},
		{"a date that has passed is zero", Hint{Header: "X-Wait", Format: Date}, header("X-Wait", "2026-11-30T11:00:00Z"), 0},
		{"an enormous number saturates", Hint{Header: "X-Wait", Format: Seconds}, header("X-Wait", "99999999999999999999"), math.MaxInt64},
		{"the longest of several lines", Hint{Header: "X-Wait", Format: Seconds}, header("X-Wait", "3", "X-Wait", "9", "X-Wait", "soon"), 9 * time.Second},
		{"the longest of a list", Hint{Header: "X-Wait", Format: Duration}, header("X-Wait", "3s, 9s, 5s"), 9 * time.Second},
		{"the latest of dates in a list", Hint{Header: "X-Wait", Format: Date}, header("X-Wait", "Mon, 30 Nov 2026 12:00:05 GMT, Mon, 30 Nov 2026 12:00:40 GMT"), 40 * time.Second},
		{"another form is absent", Hint{Header: "X-Wait", Format: Milliseconds}, header("X-Wait", "7s"), absent},
		{"a negative number is absent", Hint{Header: "X-Wait", Format: Seconds}, header("X-Wait", "-7"), absent},
		{"an empty header is absent", Hint{Header: "X-Wait"}, header("X-Wait", ""), absent},
		{"no header states nothing", Hint{Header: "X-Wait"}, header(), absent},
		{"the standard names come first", Hint{Header: "X-Wait", Format: Seconds}, header("X-Wait", "9", "Retry-After", "3"), 3 * time.Second},
		{"unless they cannot be used", Hint{Header: "X-Wait", Format: Seconds}, header("X-Wait", "9", "Retry-After", "soon"), 9 * time.Second},
		{"another form of a standard name", Hint{Header: "Retry-After", Format: Duration}, header("Retry-After", "1m30s"), 90 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := Signal{Class: RateLimited, Retryable: true}
			if test.want != absent {
				want.RetryAfter, want.HasHint = test.want, true
			}
			s := reading(t, Provider{Hints: []Hint{test.hint}, Rules: []Rule{{Status: []int{420}, Class: RateLimited}}})
			if got := s.Classify(420, test.h, nil, noon); !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func TestHintsAreLookedAtInOrder(t *testing.T) {
	s := reading(t, Provider{
		Hints: []Hint{{Path: "wait", Format: Seconds}, {Header: "X-A", Format: Seconds}, {Header: "X-B", Format: Milliseconds}},
		Rules: []Rule{{HintOver: time.Hour, Class: QuotaExhausted}},
	})
	for _, test := range []struct {
		h    http.Header
		want time.Duration
	}{
		{header("X-B", "2000", "X-A", "1"), time.Second},
		{header("X-B", "2000", "X-A", "soon"), 2 * time.Second},
		{header("X-B", "soon"), 7 * time.Second},
	} {
		if sig := s.Classify(429, test.h, []byte(`{"wait":7}`), noon); !sig.HasHint || sig.RetryAfter != test.want {
			t.Errorf("%v: %+v, want %v", test.h, sig, test.want)
		}
	}
	if sig := s.Classify(429, header("X-A", "3601"), nil, noon); sig.Class != QuotaExhausted {
		t.Errorf("a rule does not see the hint: %+v", sig)
	}
}

func TestAHeaderHintLeavesTheBodyAlone(t *testing.T) {
	if reading(t, Provider{Hints: []Hint{{Header: "X-Wait"}}}).ReadsBody(429) {
		t.Error("the body is read for a header")
	}
	if !reading(t, Provider{Hints: []Hint{{Header: "X-Wait"}, {Path: "wait"}}}).ReadsBody(429) {
		t.Error("the body is not read for its hint")
	}
	code := Provider{Header: func(*Signal, http.Header, time.Time) {}}
	if reading(t, code).ReadsBody(429) {
		t.Error("the body is read for the code that sees headers")
	}
}

func TestAnEmptyPhraseEndsAndFindsNothing(t *testing.T) {
	r := Reader{Providers: []Provider{{Name: "p", Hosts: []string{"p.example"}, Hints: []Hint{{Path: "m", After: []string{"", "in "}}}}}}
	if sig := r.Classify("p.example", 429, nil, []byte(`{"m":"come in 5s"}`), noon); sig.RetryAfter != 5*time.Second {
		t.Errorf("%+v", sig)
	}
}

func TestCodeSeesTheHeadersAndThenTheBody(t *testing.T) {
	s := reading(t, Provider{
		Header: func(s *Signal, h http.Header, now time.Time) {
			if at, err := time.Parse(time.Kitchen, h.Get("X-Back-At")); err == nil {
				s.RetryAfter, s.HasHint = time.Duration(at.Hour()-now.UTC().Hour())*time.Hour, true
			}
		},
		Body: func(s *Signal, body any) {
			if m, ok := body.(map[string]any); ok && m["double"] == json.Number("1") {
				s.RetryAfter *= 2
			}
		},
	})
	h := header("X-Back-At", "3:00PM", "Date", "Mon, 30 Nov 2026 13:00:00 GMT")
	want := Signal{Class: RateLimited, Retryable: true, RetryAfter: 2 * time.Hour, HasHint: true}
	if got := s.Classify(429, h, nil, noon); !reflect.DeepEqual(got, want) {
		t.Errorf("without a body: %+v, want %+v", got, want)
	}
	want.RetryAfter *= 2
	if got := s.Classify(429, h, []byte(`{"double":1}`), noon); !reflect.DeepEqual(got, want) {
		t.Errorf("with a body: %+v, want %+v", got, want)
	}
}

func TestALoneResetIsTheWaitOfARefusal(t *testing.T) {
	for name, m := range map[string]Meter{
		"alone":         {Unit: "calm", Reset: "X-Back", Format: Seconds},
		"with a sign":   {Unit: "calm", Present: "X-Busy", Reset: "X-Back", Format: Seconds},
		"with a limit":  {Unit: "calm", Limit: "X-Limit", Reset: "X-Back", Format: Seconds},
		"with a length": {Unit: "calm", Reset: "X-Back", Format: Seconds, Interval: "X-Every"},
	} {
		s := reading(t, Provider{Meters: []Meter{m}})
		h := header("X-Back", "7", "X-Busy", "yes", "X-Limit", "10", "X-Every", "60")
		if d, ok := s.Classify(429, h, nil, noon).Wait(nil); !ok || d != 7*time.Second {
			t.Errorf("%s: %v, %v, want 7 s", name, d, ok)
		}
		if d, ok := s.Classify(503, h, nil, noon).Wait(nil); ok {
			t.Errorf("%s: overload waits %v for a window", name, d)
		}
	}
	s := reading(t, Provider{Meters: []Meter{{Unit: "calm", Present: "X-Busy", Reset: "X-Back"}}})
	if ws := s.Windows(nil, header("X-Back", "7", "X-Busy", "no"), noon); len(ws) > 0 {
		t.Errorf("without its sign: %+v", ws)
	}
}

func TestEitherOfTwoResetsStatesTheWindow(t *testing.T) {
	s := reading(t, Provider{Meters: []Meter{{Unit: "calm", Reset: "X-A"}, {Unit: "calm", Reset: "X-B"}}})
	for _, name := range []string{"X-A", "X-B"} {
		if ws := s.Windows(nil, header(name, "7"), noon); !reflect.DeepEqual(ws, []Window{{"calm", -1, -1, 7 * time.Second, 0, false}}) {
			t.Errorf("%s: %+v", name, ws)
		}
	}
}

// Whatever Validate passes is read: for each thing that a valid Meter declares
// there is an answer that means something else without it.
func TestAValidMeterIsIgnoredInNothing(t *testing.T) {
	fields := []struct {
		name  string
		set   func(*Meter)
		lines []string // name and value of the header
	}{
		{"Limit", func(m *Meter) { m.Limit = "X-Limit" }, []string{"X-Limit", "100"}},
		{"Remaining", func(m *Meter) { m.Remaining = "X-Left" }, []string{"X-Left", "30"}},
		{"Used", func(m *Meter) { m.Used = "X-Used" }, []string{"X-Used", "60"}},
		{"UsedOf", func(m *Meter) { m.UsedOf = "X-Used-Of" }, []string{"X-Used-Of", "other=9/9, key=4/5, 1/2"}},
		{"UsedOfKey", func(m *Meter) { m.UsedOfKey = "key" }, nil},
		{"Reset", func(m *Meter) { m.Reset = "X-Reset" }, []string{"X-Reset", "7"}},
		{"Format", func(m *Meter) { m.Format = Milliseconds }, nil},
		{"Present", func(m *Meter) { m.Present = "X-Here" }, []string{"X-Here", "yes"}},
		{"Interval", func(m *Meter) { m.Interval = "X-Every" }, []string{"X-Every", "10"}},
		{"IntervalUnit", func(m *Meter) { m.IntervalUnit = time.Hour }, nil},
		{"FillRate", func(m *Meter) { m.FillRate = "X-Rate" }, []string{"X-Rate", "3"}},
	}
	declare := func(set int) Meter {
		m := Meter{Unit: "calm"}
		for i, f := range fields {
			if set>>i&1 == 1 {
				f.set(&m)
			}
		}
		return m
	}
	source := func(set int) *Source { return newSource(&Provider{Meters: []Meter{declare(set)}}, nil) }
	var answers []http.Header
	for set := range 1 << len(fields) {
		var lines []string
		for i, f := range fields {
			if set>>i&1 == 1 {
				if f.lines == nil {
					lines = nil
					break
				}
				lines = append(lines, f.lines...)
			}
		}
		if lines != nil {
			answers = append(answers, header(lines...))
		}
	}
	valid := 0
	for set := range 1 << len(fields) {
		if (Reader{Providers: []Provider{{Name: "p", Meters: []Meter{declare(set)}}}}).Validate() != nil {
			continue
		}
		valid++
		whole := source(set)
		for i, f := range fields {
			if set>>i&1 == 0 {
				continue
			}
			less, matters := source(set&^(1<<i)), false
			for _, h := range answers {
				if !reflect.DeepEqual(whole.Windows(nil, h, noon), less.Windows(nil, h, noon)) {
					matters = true
					break
				}
			}
			if !matters {
				t.Errorf("%s never matters in %s", f.name, strings.TrimPrefix(fmt.Sprintf("%+v", declare(set)), "{Unit:calm "))
			}
		}
	}
	if valid < 50 {
		t.Errorf("%d meters are valid: too few to show anything", valid)
	}
	t.Logf("%d valid meters, %d answers", valid, len(answers))
}
