package retryafter

import (
	"net/http"
	"reflect"
	"testing"
	"time"
)

func TestDrafts(t *testing.T) {
	type ws = []Window
	for _, test := range []struct {
		name string
		h    http.Header
		want ws
	}{
		{"00-03 put policies behind the limit",
			header("RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "0", "RateLimit-Reset", "48"),
			ws{{"requests", 100, 0, 48 * time.Second, time.Minute, false}}},
		{"00-03 without policies",
			header("RateLimit-Limit", "100", "RateLimit-Remaining", "1", "RateLimit-Reset", "48"),
			ws{{"requests", 100, 1, 48 * time.Second, 0, false}}},
		{"04-06 have a field for the policies",
			header("RateLimit-Limit", "100", "RateLimit-Policy", "10;w=1, 100;w=3600", "RateLimit-Remaining", "60", "RateLimit-Reset", "58"),
			ws{{"requests", 100, 60, 58 * time.Second, time.Hour, false}}},
		{"04-06 with seconds since 1970, as GitLab sends them",
			header("RateLimit-Limit", "100", "RateLimit-Remaining", "60", "RateLimit-Reset", "1796040030"),
			ws{{"requests", 100, 60, 30 * time.Second, 0, false}}},
		{"07 is one field of pairs",
			header("RateLimit", "limit=100, remaining=50, reset=5", "RateLimit-Policy", "100;w=60"),
			ws{{"requests", 100, 50, 5 * time.Second, time.Minute, false}}},
		{"07 in several lines",
			header("RateLimit", "limit=100", "RateLimit", "remaining=50", "RateLimit", "reset=5"),
			ws{{"requests", 100, 50, 5 * time.Second, 0, false}}},
		{"08-10 join the policy by its name",
			header("RateLimit", `"default";r=50;t=30`, "RateLimit-Policy", `"default";q=100;w=60`),
			ws{{"requests", 100, 50, 30 * time.Second, time.Minute, false}}},
		{"08-10 without a policy state no limit",
			header("RateLimit", `"default";r=50;t=30`), ws{{"requests", -1, 50, 30 * time.Second, 0, false}}},
		{"08-10 need not say when",
			header("RateLimit", `"default";r=50`), ws{{"requests", -1, 50, -1, 0, false}}},
		{"08-10 in several lines",
			header("RateLimit", `"burst";r=99;t=60`, "RateLimit", `"daily";r=12;t=40000`, "RateLimit-Policy", `"burst";q=100;w=60`, "RateLimit-Policy", `"daily";q=1000;w=86400`),
			ws{{"burst", 100, 99, time.Minute, time.Minute, false}, {"requests", 1000, 12, 40000 * time.Second, 24 * time.Hour, false}}},
		{"an unquoted name, as an editor's copy had it",
			header("RateLimit", `default;r=50;t=30`, "RateLimit-Policy", `default;q=100;w=60`),
			ws{{"requests", 100, 50, 30 * time.Second, time.Minute, false}}},
		{"another unit is not taken for requests",
			header("RateLimit", `"peruser";r=300;t=4`, "RateLimit-Policy", `"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:`),
			ws{{"content-bytes", 65535, 300, 4 * time.Second, 10 * time.Second, false}}},
		{"separators within a name are none",
			header("RateLimit", `"a,b;c";r=5;t=1`, "RateLimit-Policy", `"a,b;c";q=10;w=2`),
			ws{{"requests", 10, 5, time.Second, 2 * time.Second, false}}},
		{"a name with escapes",
			header("RateLimit", `"a\"b";r=5`, "RateLimit-Policy", `"a\"b";q=10`),
			ws{{"requests", 10, 5, -1, 0, false}}},
		{"a policy named like a unit does not pose as it",
			header("RateLimit", `"tokens";r=9, "b";r=5`), ws{{"requests", -1, 9, -1, 0, false}, {"requests", -1, 5, -1, 0, false}}},
		{"malformed is ignored: nothing remains to be said", header("RateLimit", `"default";t=30`), nil},
		{"malformed is ignored: a negative remainder", header("RateLimit", `"default";r=-1;t=30`), nil},
		{"malformed is ignored: a wordy reset", header("RateLimit", `"default";r=5;t=soon`), nil},
		{"malformed is ignored: one item of two", header("RateLimit", `"a";r=5, "b";q=5`), nil},
		{"malformed is ignored: words", header("RateLimit", `plenty`), nil},
		{"malformed is ignored: an open quote", header("RateLimit", `"`), nil},
		{"empty items are none", header("RateLimit", `, ,`), nil},
		{"a policy alone is no window", header("RateLimit-Policy", `"default";q=100;w=60`), nil},
		{"the same limit in the older spelling is not stated twice",
			header("RateLimit-Limit", "100", "RateLimit-Remaining", "60", "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "60"),
			ws{{"requests", 100, 60, -1, 0, false}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Reader{}.Windows(nil, "api.example.com", test.h, noon)
			if len(got) == 0 {
				got = nil
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestMoreItemsThanAnybodySendsAreBounded(t *testing.T) {
	line := ""
	for range 100 {
		line += `"a";r=5,`
	}
	if got := (Reader{}).Windows(nil, "api.example.com", header("RateLimit", line), noon); len(got) != maxItems {
		t.Errorf("%d windows", len(got))
	}
}
