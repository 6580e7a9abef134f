package escalate

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sony/gobreaker/v2"
)

func TestNewRefuses(t *testing.T) {
	p := Route{Name: "p"}
	for name, tc := range map[string]struct {
		c    Config
		want string
	}{
		"nothing":                       {Config{}, "a route needs a Name, a Quota or a URL (primary)"},
		"a backup that is nothing":      {Config{Primary: p, Backups: []Route{{Model: "m"}}}, "a route needs a Name, a Quota or a URL (backup 1)"},
		"two routes on one quota":       {Config{Primary: Route{Name: "a", Quota: "q"}, Backups: []Route{{Name: "b", Quota: "q"}}}, `routes "a" and "b" share the quota "q"`},
		"one name twice":                {Config{Primary: p, Backups: []Route{p}}, "share the quota"},
		"one origin twice":              {Config{Primary: Route{URL: "https://B.example/x"}, Backups: []Route{{URL: "https://b.example:443/y"}}}, "share the quota"},
		"a URL without a scheme":        {Config{Primary: Route{Name: "x", URL: "b.example/v1"}}, `route "x": bad URL`},
		"a URL of another scheme":       {Config{Primary: Route{URL: "ftp://b.example"}}, "neither http nor https"},
		"a URL without a host":          {Config{Primary: Route{URL: "https:///v1"}}, "no host"},
		"a URL with a port alone":       {Config{Primary: Route{URL: "https://:443"}}, "no host"},
		"an opaque URL":                 {Config{Primary: Route{URL: "https:b.example"}}, "no host"},
		"a URL that does not parse":     {Config{Primary: Route{URL: "https://b.example:port?key=secret"}}, "bad URL: invalid port"},
		"a URL with user information":   {Config{Primary: Route{URL: "https://u:p@b.example"}}, "user information belongs in Header"},
		"a URL with a fragment":         {Config{Primary: Route{URL: "https://b.example/#x"}}, "fragment"},
		"a header name that is none":    {Config{Primary: Route{Name: "x", Header: http.Header{"a b": {"1"}}}}, "is not a header name"},
		"an empty header name":          {Config{Primary: Route{Name: "x", Header: http.Header{"": {"1"}}}}, "is not a header name"},
		"a header value with a newline": {Config{Primary: Route{Name: "x", Header: http.Header{"Authorization": {"secret\n"}}}}, "control character"},
		"a header in two spellings":     {Config{Primary: Route{Name: "x", Header: http.Header{"A": {"1"}, "a": {"2"}}}}, "set twice"},
		"Model and a model field":       {Config{Primary: Route{Name: "x", Model: "m", Body: map[string]any{"model": "n"}}}, "both Model and"},
		"a field that is no JSON":       {Config{Primary: Route{Name: "x", Body: map[string]any{"t": math.Inf(1)}}}, `body field "t"`},
		"a negative Interval":           {Config{Primary: p, Settings: Settings{Interval: -1}}, "Interval is negative"},
		"a negative BucketPeriod":       {Config{Primary: p, Settings: Settings{BucketPeriod: -1}}, "BucketPeriod is negative"},
		"a negative Timeout":            {Config{Primary: p, Settings: Settings{Timeout: -1}}, "Timeout is negative"},
		"a negative MaxRest":            {Config{Primary: p, Settings: Settings{MaxRest: -1}}, "MaxRest is negative"},
		"an endless Interval":           {Config{Primary: p, Settings: Settings{Interval: math.MaxInt64, BucketPeriod: math.MaxInt64}}, "century"},
		"too many buckets":              {Config{Primary: p, Settings: Settings{Interval: 24 * time.Hour, BucketPeriod: 1}}, "BucketPeriod 1ns is less"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := New(tc.c)
			if err == nil || r != nil || !strings.HasPrefix(err.Error(), "escalate: ") || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%v gives a secret away", err)
			}
			if again := tc.c.Validate(); again == nil || again.Error() != err.Error() {
				t.Errorf("Validate: %v", again)
			}
		})
	}
}

func TestDefaultsOfARoute(t *testing.T) {
	r, err := New(Config{
		Primary: Route{Name: "p"},
		Backups: []Route{
			{URL: "https://B.example/v1"}, {URL: "http://b.example", Name: "small"}, {Quota: "q"}, {Quota: "r", Name: "n", URL: "https://b.example"},
		},
		RerouteLocal: true,
		Settings:     Settings{Interval: time.Hour, BucketPeriod: time.Hour, Timeout: math.MaxInt64, MaxRest: math.MaxInt64},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := [][2]string{{"p", "p"}, {"https://b.example:443", "https://b.example:443"}, {"small", "http://b.example:80/small"}, {"q", "q"}, {"n", "r"}}
	if r.Routes() != len(want) || !r.RerouteLocal() {
		t.Fatalf("%d routes, RerouteLocal %v", r.Routes(), r.RerouteLocal())
	}
	for i, w := range want {
		if got := [2]string{r.Route(i).Name, r.Quota(i)}; got != w || r.Route(i).Quota != w[1] {
			t.Errorf("route %d is %q, want %q", i, got, w)
		}
	}
	// No overflow: an endless Timeout is an endless rest.
	pass(t, r, 0).Done(Outcome{Verdict: Escalated})
	if ok, rest := r.Admits(0); ok || rest < math.MaxInt64/2 {
		t.Errorf("rest %v", rest)
	}
}

func TestDefaultSettingsAreGobreakers(t *testing.T) {
	r := newRouter(t, Settings{})
	for range 5 {
		pass(t, r, 0).Done(Outcome{Verdict: Failure})
	}
	wantState(t, r, 0, "closed")
	pass(t, r, 0).Done(Outcome{Verdict: Failure})
	wantState(t, r, 0, "open")
	turnedAwayWithin(t, r, gobreaker.ErrOpenState, 59*time.Second, time.Minute)
}

func turnedAwayWithin(t *testing.T, r *Router, cause error, least, most time.Duration) {
	t.Helper()
	_, err := r.Allow(0)
	if ok, rest := r.Admits(0); ok || rest < least || rest > most || err == nil {
		t.Errorf("error %v, rest %v, want %v with %v to %v", err, rest, cause, least, most)
	}
}
