package middleware_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

func TestStatsCountSendsRefusalsAndWaits(t *testing.T) {
	virtual(t, metertest.Config{}, func(r rig) {
		c, s := r.stack(middleware.Config{Ladder: policy(nil), Bucket: bucket.Config{Headroom: 1, Limits: []bucket.Limit{
			{Unit: bucket.Requests, Amount: 10, Per: time.Second}}}})
		r.Provider.Script(refusal("1"), metertest.Reply(529, "", "Retry-After", "1"))
		for range 98 {
			r.wantServed(c, r.request("GET", nil))
		}
		st := s.Stats()
		if len(st.Keys) != 1 || st.Routes != nil {
			r.Fatalf("%+v", st)
		}
		k := st.Keys[0]
		if k.Key != "http://api.example.com:80" || k.Sends != 100 || k.Served != 98 || k.Failed != 0 ||
			k.Refused[retryafter.RateLimited] != 1 || k.Refused[retryafter.Overloaded] != 1 {
			r.Errorf("%+v", k)
		}
		for name, w := range map[string]float64{"1": k.Wasted1, "5": k.Wasted5, "15": k.Wasted15} {
			if w != 0.02 {
				r.Errorf("wasted over %s minutes: %v", name, w)
			}
		}
		if k.Health != middleware.Red {
			r.Errorf("2 %% refused is %s", k.Health)
		}
		if k.WaitP50 < 100*time.Millisecond || k.WaitP50 > 120*time.Millisecond || k.WaitMax != time.Second {
			r.Errorf("waits: p50 %v, p90 %v, p99 %v, max %v", k.WaitP50, k.WaitP90, k.WaitP99, k.WaitMax)
		}
		if k.Budget.InFlight != 0 || len(k.Budget.Levels) != 1 {
			r.Errorf("%+v", k.Budget)
		}

		if b, err := json.Marshal(st); err != nil || !strings.Contains(string(b), `"refused":{"overloaded":1,"rate_limited":1}`) {
			r.Errorf("as JSON: %v %s", err, b)
		} else if back := (middleware.Stats{}); json.Unmarshal(b, &back) != nil || back.Keys[0].Refused[retryafter.Overloaded] != 1 || back.Keys[0].Budget.Levels[0].Limit.Unit != bucket.Requests {
			r.Errorf("read back: %+v", back)
		}

		time.Sleep(90 * time.Second)
		k = s.Stats().Keys[0]
		if k.Wasted1 != 0 || k.Wasted5 != 0.02 {
			r.Errorf("after 90 s: %v over 1 minute, %v over 5", k.Wasted1, k.Wasted5)
		}
		time.Sleep(5 * time.Minute)
		k = s.Stats().Keys[0]
		if k.Wasted5 != 0 || k.Wasted15 != 0.02 || k.Health != middleware.Green {
			r.Errorf("after 6 minutes: %v over 5, %v over 15, %s", k.Wasted5, k.Wasted15, k.Health)
		}
		time.Sleep(time.Hour)
		if k = s.Stats().Keys[0]; k.Wasted15 != 0 || k.Sends != 100 {
			r.Errorf("after an hour: %v over 15 minutes, %d sends", k.Wasted15, k.Sends)
		}
	})
}

func TestStatsShowQueueHoldAndSlots(t *testing.T) {
	virtual(t, metertest.Config{Latency: 10 * time.Second}, func(r rig) {
		c, s := r.stack(middleware.Config{Bucket: bucket.Config{MaxInFlight: 1}})
		for range 3 {
			go func() { r.wantServed(c, r.request("GET", nil)) }()
		}
		time.Sleep(3 * time.Second)
		b := s.Stats().Keys[0].Budget
		if b.InFlight != 1 || b.Queued != 2 || b.OldestSlot != 3*time.Second {
			r.Errorf("%+v", b)
		}
		s.Limiter().(*bucket.Local).Hold("http://api.example.com:80", time.Now().Add(time.Minute))
		if b := s.Stats().Keys[0].Budget; b.HeldFor != time.Minute {
			r.Errorf("%+v", b)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestKeys(t *testing.T) {
	for url, want := range map[string]string{
		"https://API.Example.com/v1":    "https://api.example.com:443",
		"https://api.example.com:443/x": "https://api.example.com:443",
		"http://api.example.com":        "http://api.example.com:80",
		"HTTP://api.example.com:8080":   "http://api.example.com:8080",
		"https://[2001:DB8::1]/":        "https://[2001:db8::1]:443",
		"https://[2001:db8::1]:8443/":   "https://[2001:db8::1]:8443",
	} {
		virtual(t, metertest.Config{}, func(r rig) {
			req, err := newRequest(r, url)
			if err != nil {
				r.Fatal(err)
			}
			if got := middleware.KeyByOrigin(req); got != want {
				r.Errorf("%s is %s, want %s", url, got, want)
			}
			c, s := r.stack(middleware.Config{})
			r.wantServed(c, req)
			if got := s.Stats().Keys[0].Key; got != want {
				r.Errorf("%s is charged to %s, want %s", url, got, want)
			}
		})
	}
}
