package middleware_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// The names of the JSON form are stable: dashboards and scripts read them.
func TestStatsJSONNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stack, err := middleware.New(middleware.Config{Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}}})
		if err != nil {
			t.Fatal(err)
		}
		rt := stack.Transport(metertest.New(metertest.Config{}).Transport())
		req, _ := http.NewRequest("GET", "http://a.test/", nil)
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		text, err := json.Marshal(stack.Stats())
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Keys []map[string]any }
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		names := func(m any) []string {
			var out []string
			for name := range m.(map[string]any) {
				out = append(out, name)
			}
			slices.Sort(out)
			return out
		}
		for what, pair := range map[string][2][]string{
			"key": {names(got.Keys[0]), {"budget", "failed", "health", "history", "key", "refused", "refused_by", "sends", "served", "tokens",
				"wait_max", "wait_p50", "wait_p90", "wait_p99", "wasted_15m", "wasted_1m", "wasted_5m"}},
			"budget": {names(got.Keys[0]["budget"]), {"held_for", "in_flight", "key", "levels", "oldest_slot", "queued", "refusals"}},
			"level": {names(got.Keys[0]["budget"].(map[string]any)["levels"].([]any)[0]),
				{"available", "capacity", "foreign", "limit", "own"}},
			"tokens": {names(got.Keys[0]["tokens"]), {"saved", "settled", "wasted"}},
		} {
			if !slices.Equal(pair[0], pair[1]) {
				t.Errorf("%s has %v, want %v", what, pair[0], pair[1])
			}
		}
	})
}

func TestStatsHistoryAndTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := metertest.New(metertest.Config{})
		stack, err := middleware.New(middleware.Config{
			Pace: middleware.PaceConfig{Cost: func(*http.Request) (bucket.Cost, error) {
				return bucket.Cost{Requests: 1, InputTokens: 10, OutputTokens: 5}, nil
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		rt := stack.Transport(provider.Transport())
		call := func() {
			req, _ := http.NewRequest("GET", "http://a.test/", nil)
			resp, err := rt.RoundTrip(req)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		call()
		time.Sleep(time.Minute)
		provider.Script(metertest.Answer{Status: 429, Header: http.Header{"Retry-After": {"1"}}})
		call()
		k := stack.Stats().Keys[0]
		if len(k.History) != 90 {
			t.Fatalf("a history of %d slots", len(k.History))
		}
		var sum middleware.Slot
		for _, s := range k.History {
			sum.Sent += s.Sent
			sum.Refused += s.Refused
		}
		if sum != (middleware.Slot{Sent: 3, Refused: 1}) || k.History[83].Sent != 1 || k.History[89].Sent == 0 {
			t.Errorf("%+v in all, %+v", sum, k.History[80:])
		}
		if k.Tokens != (middleware.Tokens{Settled: 30, Saved: 15}) {
			t.Errorf("%+v", k.Tokens)
		}
		time.Sleep(20 * time.Minute)
		for _, s := range stack.Stats().Keys[0].History {
			if s != (middleware.Slot{}) {
				t.Errorf("after 20 minutes %+v", s)
			}
		}
	})
}

// The form of a route, whole: durations are nanoseconds, classes are words.
func TestStatsJSONOfRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router, err := escalate.New(escalate.Config{
			Primary: escalate.Route{Name: "large", Quota: "quota of large"},
			Backups: []escalate.Route{{Name: "small", Quota: "small", URL: "http://backup.test"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		stack, err := middleware.New(middleware.Config{Router: router})
		if err != nil {
			t.Fatal(err)
		}
		provider := metertest.New(metertest.Config{})
		provider.Script(metertest.Answer{Status: 429, Header: http.Header{"Retry-After": {"7200"}}})
		req, _ := http.NewRequest("GET", "http://a.test/", nil)
		resp, err := stack.Transport(provider.Transport()).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		got, err := json.Marshal(stack.Stats().Routes)
		if err != nil {
			t.Fatal(err)
		}
		const none = `"counts":{"requests":0,"total_successes":0,"total_failures":0,"total_exclusions":0,"consecutive_successes":0,"consecutive_failures":0}`
		const one = `"counts":{"requests":1,"total_successes":1,"total_failures":0,"total_exclusions":0,"consecutive_successes":1,"consecutive_failures":0}`
		want := `[{"name":"large","quota":"quota of large","state":"open","rest":7200000000000,"kind":"rate_limit","openings":1,"probes":0,"late":0,` + none + `},` +
			`{"name":"small","quota":"small","state":"closed","rest":0,"kind":"rate_limit","openings":0,"probes":0,"late":0,` + one + `}]`
		if string(got) != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}
