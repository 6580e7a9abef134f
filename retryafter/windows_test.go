package retryafter

import (
	"math"
	"net/http"
	"reflect"
	"testing"
	"time"
)

func TestFieldReport_B1_ResetsAreReadByShapeAndSize(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		reset string
		want  time.Duration
	}{
		{"17ms", 17 * time.Millisecond},
		{"500ms", 500 * time.Millisecond},
		{"6m0s", 6 * time.Minute},
		{"1m30.5s", 90500 * time.Millisecond},
		{"2m59.56s", 179560 * time.Millisecond},
		{"1h2m3s", time.Hour + 2*time.Minute + 3*time.Second},
		{"42", 42 * time.Second},
		{"26.5", 26500 * time.Millisecond},
		{"1767225642", 42 * time.Second},
		{"1767225642.25", 42250 * time.Millisecond},
		{"1767225642000", 42 * time.Second},
		{"1767225642001", 42001 * time.Millisecond},
		{"2026-01-01T00:00:42Z", 42 * time.Second},
		{"2026-01-01T00:00:42.5Z", 42500 * time.Millisecond},
		{"2026-01-01T01:00:42+01:00", 42 * time.Second},
		{"2026-01-01T00:01Z", time.Minute},
		{"Thu, 01 Jan 2026 00:00:42 GMT", 42 * time.Second},
		{"2025-12-31T23:59:59Z", 0},
		{"0s", 0},
		{"0", 0},
		{"99999999999999999999", math.MaxInt64},
		{"99999999h99999999h", math.MaxInt64},
		{"9999999999999999999999m", math.MaxInt64},
		{"999999h999999h999999h999999h999999h", math.MaxInt64},
		{"junk", -1},
		{"-5", -1},
		{"-5s", -1},
		{"1e3", -1},
		{"5 fortnights", -1},
		{"s", -1},
		{"", -1},
		{"2026-13-01T00:00:42Z", -1},
		{"2026-01-01T00:00:4xZ", -1},
	} {
		t.Run(test.reset, func(t *testing.T) {
			for _, h := range []http.Header{
				header("X-RateLimit-Remaining", "1", "X-RateLimit-Reset", test.reset),
				header("X-RateLimit-Remaining-Tokens", "1", "X-RateLimit-Reset-Tokens", test.reset),
			} {
				ws := Reader{}.Windows(nil, "api.example.com", h, now)
				if len(ws) != 1 || ws[0].Reset != test.want {
					t.Errorf("%v: %+v, want reset %v", h, ws, test.want)
				}
			}
		})
	}
}

func TestFormatsThatAProviderDeclaresAreTakenLiterally(t *testing.T) {
	c := &clock{now: noon}
	for _, test := range []struct {
		f    Format
		s    string
		want time.Duration
	}{
		{Seconds, "1796040060", 1796040060 * time.Second},
		{Seconds, "5s", -1},
		{Milliseconds, "1500", 1500 * time.Millisecond},
		{UnixSeconds, "60", 0},
		{UnixSeconds, "1796040060", time.Minute},
		{UnixSeconds, "99999999999999999999", math.MaxInt64},
		{UnixSeconds, "1796040060s", -1},
		{UnixMilliseconds, "1796040000250", 250 * time.Millisecond},
		{UnixMilliseconds, "1796040000250.5", 250500 * time.Microsecond},
		{UnixMilliseconds, "99999999999999999999", math.MaxInt64},
		{Duration, "45 seconds", 45 * time.Second},
		{Duration, "1 minute 30 seconds", 90 * time.Second},
		{Duration, "1.5h", 90 * time.Minute},
		{Duration, "250µs", 250 * time.Microsecond},
		{Duration, "2d", 48 * time.Hour},
		{Duration, "45", -1},
		{Date, "2026-11-30T12:01:00Z", time.Minute},
		{Date, "60", -1},
	} {
		d, ok := test.f.parse(test.s, c)
		if !ok {
			d = -1
		}
		if d != test.want {
			t.Errorf("format %d of %q is %v, want %v", test.f, test.s, d, test.want)
		}
	}
}

func TestCounts(t *testing.T) {
	for _, test := range []struct {
		s    string
		want int64
	}{
		{"0", 0}, {"60", 60}, {" 60 ", 60}, {"598.0", 598}, {"0.7", 0}, {"007", 7},
		{"30,000", 30000}, {"1,234,567", 1234567}, {"1,234.5", 1234},
		{"999999999999999999", 999999999999999999},
		{"9223372036854775807", math.MaxInt64}, {"9223372036854775808", math.MaxInt64},
		{"99999999999999999999999999", math.MaxInt64}, {"99,999,999,999,999,999,999,999,999", math.MaxInt64},
		{"-1", -1}, {"+1", -1}, {"1e3", -1}, {"0x10", -1}, {"NaN", -1}, {"", -1}, {" ", -1}, {"many", -1},
		{"1,23", -1}, {",123", -1}, {"1,,234", -1}, {"1234,567", -1}, {"12,345,67", -1}, {"1.", -1}, {"1.2.3", -1}, {"1_000", -1},
	} {
		n, ok := parseCount(test.s)
		if !ok {
			n = -1
		}
		if n != test.want {
			t.Errorf("parseCount(%q) = %d, want %d", test.s, n, test.want)
		}
	}
}

func TestWindows(t *testing.T) {
	type ws = []Window
	for _, test := range []struct {
		name, host string
		h          http.Header
		want       ws
	}{
		{"no limit header states no window", "api.example.com", plainHeader(), nil},
		{"a limit without what remains says nothing", "api.example.com", header("X-RateLimit-Limit", "5"), nil},
		{"a stored answer states nothing that still holds", "api.example.com",
			header("X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "4", "Age", "7"), nil},
		{"an answer stored just now does", "api.example.com",
			header("X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "4", "Age", "0"), ws{{"requests", 5, 4, -1, 0, false}}},
		{"what cannot be read is not stated", "api.example.com",
			header("X-RateLimit-Limit", "many", "X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "soon"), ws{{"requests", -1, 4, -1, 0, false}}},
		{"minus one is not stated either", "api.example.com",
			header("X-RateLimit-Limit", "-1", "X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "0"), nil},
		{"of several lines the least holds, and the latest reset", "api.example.com",
			header("X-RateLimit-Limit", "100", "X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "9", "X-RateLimit-Remaining", "3",
				"X-RateLimit-Reset", "5", "X-RateLimit-Reset", "60"), ws{{"requests", 50, 3, time.Minute, 0, false}}},
		{"of a joined line the least holds", "api.example.com",
			header("X-RateLimit-Remaining", "9, 3, 5"), ws{{"requests", -1, 3, -1, 0, false}}},
		{"commas between thousands are tolerated", "api.example.com",
			header("X-RateLimit-Limit", "30,000", "X-RateLimit-Remaining", "29,999"), ws{{"requests", 30000, 29999, -1, 0, false}}},
		{"what is used stands in for the limit", "oauth.reddit.com",
			header("X-RateLimit-Remaining", "598.0", "X-RateLimit-Used", "2", "X-RateLimit-Reset", "317"), ws{{"requests", 600, 598, 317 * time.Second, 0, false}}},
		{"what is used saturates", "oauth.reddit.com",
			header("X-RateLimit-Remaining", "9223372036854775807", "X-RateLimit-Used", "2"), ws{{"requests", math.MaxInt64, math.MaxInt64, -1, 0, false}}},
		{"more used than there is leaves nothing", "example.myshopify.com",
			header("X-Shopify-Shop-Api-Call-Limit", "45/40"), ws{{"requests", 40, 0, -1, 0, true}}},
		{"the server's own clock is believed", "api.github.com",
			header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1796043660", "Date", "Mon, 30 Nov 2026 13:00:00 GMT"), ws{{"requests", -1, 0, time.Minute, 0, false}}},
		{"a proxy's Anthropic headers are known by their shape", "proxy.example.com",
			header("anthropic-ratelimit-requests-remaining", "5", "anthropic-ratelimit-tokens-limit", "10", "anthropic-ratelimit-tokens-remaining", "4", "anthropic-ratelimit-tokens-reset", "2026-11-30T12:00:30Z"),
			ws{{"requests", -1, 5, -1, time.Minute, true}, {"tokens", 10, 4, 30 * time.Second, time.Minute, true}}},
		{"the project's tokens bind where they are fewer", "api.openai.com",
			header("x-ratelimit-limit-tokens", "200", "x-ratelimit-remaining-tokens", "150", "x-ratelimit-reset-tokens", "1s",
				"x-ratelimit-limit-project-tokens", "100", "x-ratelimit-remaining-project-tokens", "50", "x-ratelimit-reset-project-tokens", "2s"),
			ws{{"organization_tokens", 200, 150, time.Second, 0, true}, {"tokens", 100, 50, 2 * time.Second, 0, true}}},
		{"with as much left the later reset binds", "api.x.com",
			header("x-rate-limit-limit", "900", "x-rate-limit-remaining", "0", "x-rate-limit-reset", "1796040060",
				"x-app-limit-24hour-limit", "100", "x-app-limit-24hour-remaining", "0", "x-app-limit-24hour-reset", "1796083200"),
			ws{{"requests_15min", 900, 0, time.Minute, 15 * time.Minute, false}, {"requests", 100, 0, 12 * time.Hour, 24 * time.Hour, false}}},
		{"an interval in milliseconds is the window's length", "api.hubapi.com",
			header("X-HubSpot-RateLimit-Max", "100", "X-HubSpot-RateLimit-Remaining", "98", "X-HubSpot-RateLimit-Interval-Milliseconds", "10000"),
			ws{{"requests", 100, 98, -1, 10 * time.Second, false}}},
		{"the older spelling fills in the date", "gitlab.com",
			header("RateLimit-Limit", "60", "RateLimit-Remaining", "0", "RateLimit-ResetTime", "Mon, 30 Nov 2026 12:00:30 GMT"),
			ws{{"requests", 60, 0, 30 * time.Second, time.Minute, false}}},
		{"a header that is only present", "api.fireworks.ai", header("x-ratelimit-over-limit", "yes"), ws{{"over_limit", -1, -1, -1, 0, false}}},
		{"a header that says no", "api.fireworks.ai", header("x-ratelimit-over-limit", "no"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Reader{}.Windows(nil, test.host, test.h, noon)
			if len(got)+len(test.want) > 0 && !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestAFillRateGivesTheTimeToFullAgain(t *testing.T) {
	r := Reader{Hosts: map[string]string{"jira.example.com": "atlassian-dc"}}
	h := header("X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "75", "X-RateLimit-Interval-Seconds", "60", "X-RateLimit-FillRate", "10")
	want := []Window{{"requests", 100, 75, -1, 10 * time.Minute, true}}
	if got := r.Windows(nil, "jira.example.com", h, noon); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWindowsAppendsToWhatIsThere(t *testing.T) {
	room := [8]Window{{Unit: "before"}}
	got := Reader{}.Windows(room[:1], "api.openai.com", openAIHeader(), noon)
	if len(got) != 3 || got[0].Unit != "before" || &got[0] != &room[0] {
		t.Errorf("%+v", got)
	}
}

func TestFamiliesReadWhatTheKeyHasShown(t *testing.T) {
	for _, host := range []string{"api.openai.com", "api.example.com"} {
		s := Reader{}.For(host)
		if f := s.Families(plainHeader()); f != 0 {
			t.Errorf("%s: families %b of an answer without limits", host, f)
		}
		h := openAIHeader()
		f := s.Families(h)
		if got, want := s.WindowsOf(f, nil, h, noon), s.Windows(nil, h, noon); !reflect.DeepEqual(got, want) || len(got) != 2 {
			t.Errorf("%s: %+v, want %+v", host, got, want)
		}
		if got := s.WindowsOf(0, nil, h, noon); len(got) != 0 {
			t.Errorf("%s: the empty set gave %+v", host, got)
		}
	}
}

func TestASuccessIsReadWithoutAllocation(t *testing.T) {
	for name, test := range map[string]struct {
		host string
		h    http.Header
	}{
		"no limit header, unknown host": {"api.example.com", plainHeader()},
		"OpenAI's six":                  {"api.openai.com", openAIHeader()},
		"OpenAI's six, unknown host":    {"api.example.com", openAIHeader()},
		"Azure, with a port":            {"Example.openai.azure.com:443", openAIHeader()},
		"Anthropic's twelve":            {"api.anthropic.com", anthropicHeader()},
		"GitHub":                        {"api.github.com", header("X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1796040750", "Date", "Mon, 30 Nov 2026 12:00:00 GMT")},
		"a draft with two policies":     {"api.example.com", header("RateLimit", `"burst";r=99;t=60,"daily";r=12;t=40000`, "RateLimit-Policy", `"burst";q=100;w=60,"daily";q=1000;w=86400`)},
		"an older draft":                {"api.example.com", header("RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "0", "RateLimit-Reset", "48")},
	} {
		var room [8]Window
		want := 0
		if name == "Azure, with a port" {
			want = 1 // a host with capitals and a port is made plain
		}
		if n := testing.AllocsPerRun(100, func() { Reader{}.Windows(room[:0], test.host, test.h, noon) }); int(n) > want {
			t.Errorf("%s: %v allocations, want %d", name, n, want)
		}
	}
}
