package bench

import (
	"net/http"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// TestVariantsOfWhatIsSaid runs the work against servers that say more or less than a Retry-After, and
// with clients that know less than the limits and the costs.
func TestVariantsOfWhatIsSaid(t *testing.T) {
	told := func(change func(*metertest.Config)) func(*server) {
		return func(s *server) { change(&s.meter) }
	}
	with := func(change func(server, *middleware.Config)) client {
		return client{"meteredhttp", func(t *testing.T, s server, base http.RoundTripper) doer {
			return newOurStack(t, s, func(c *middleware.Config) { change(s, c) }).Transport(base).RoundTrip
		}}
	}
	estimates := func(share func(tokens int64) int64) client {
		return with(func(_ server, c *middleware.Config) {
			c.Pace.Cost = func(r *http.Request) (bucket.Cost, error) {
				return bucket.Cost{Requests: 1, InputTokens: share(statedTokens(r))}, nil
			}
		})
	}
	rows := grid{servers: sevenServers(600, idleTPM, 0)}
	for _, v := range []struct {
		name   string
		client client
		change func(*server)
	}{
		{"headers as OpenAI's", us, told(func(c *metertest.Config) { c.Dialect = metertest.OpenAI })},
		{"headers as Anthropic's", us, told(func(c *metertest.Config) { c.Dialect = metertest.Anthropic })},
		{"no Retry-After at all", us, told(func(c *metertest.Config) { c.RetryAfter = metertest.NoHint })},
		{"Retry-After: 0, whatever the wait is", us, told(func(c *metertest.Config) { c.RetryAfter = metertest.Zero })},
		{"rolling windows", us, rolling},
		{"estimates 30 % too high", estimates(func(n int64) int64 { return n * 13 / 10 }), told(func(*metertest.Config) {})},
		{"estimates 30 % too low", estimates(func(n int64) int64 { return n * 7 / 10 }), told(func(*metertest.Config) {})},
		{"tokens not known", estimates(func(int64) int64 { return 0 }), told(func(*metertest.Config) {})},
		{"no limits told", with(func(_ server, c *middleware.Config) { c.Bucket.Limits = nil }), told(func(*metertest.Config) {})},
		{"no limits told, headers as OpenAI's", with(func(_ server, c *middleware.Config) { c.Bucket.Limits = nil }),
			told(func(c *metertest.Config) { c.Dialect = metertest.OpenAI })},
		{"limits told twice too high", us, func(s *server) { s.rpm, s.tpm = 2*s.rpm, 2*s.tpm }},
		{"adaptive off", with(func(_ server, c *middleware.Config) { c.Bucket.Adaptive = bucket.AdaptiveOff }), told(func(*metertest.Config) {})},
	} {
		row := make([]outcome, len(rows.servers))
		for i, s := range sevenServers(600, idleTPM, 25*time.Second) {
			v.change(&s)
			row[i] = play(t, s, s.work(goodputJobs, goodputWorkers, 1), v.client, 1, nil)
			o := &row[i]
			if o.lost > 0 {
				t.Errorf("%s, %s: %d lost", v.name, s.name, o.lost)
			}
			if allowed := s.allowed(o.least); s.meter.Dialect != metertest.Bare && (o.makespan > allowed || o.wasted() > 0.003) {
				missed(t, o.makespan > allowed+o.least/20 || o.wasted() > 0.006, "%s, %s: %v, allowed %v; %.2f %% wasted", v.name, s.name, o.makespan, allowed, 100*o.wasted())
			}
		}
		rows.add(v.name, row)
	}
	t.Log("\n" + rows.String())
}

// rolling makes a server's meters rolling windows: of a minute, or where its bucket is smaller, of the
// time in which that fills.
func rolling(s *server) {
	c := &s.meter
	c.Meter, c.Offset = metertest.RollingWindow, 0
	if c.RequestBurst > 0 {
		c.Per = time.Minute * time.Duration(c.RequestBurst) / time.Duration(c.Requests)
		if c.Tokens > 0 {
			c.Per = time.Minute * time.Duration(c.TokenBurst) / time.Duration(c.Tokens)
		}
		c.Requests = c.Requests * int64(c.Per) / int64(time.Minute)
		c.Tokens = c.Tokens * int64(c.Per) / int64(time.Minute)
	}
}

func TestTheLeastMakespanAtRollingWindows(t *testing.T) {
	for i, want := range map[int]time.Duration{
		0: 62 * time.Second,                      // 600 in 12 waves, and a minute after each of the first 8 another one
		4: 99*time.Second + 250*time.Millisecond, // ten each second
	} {
		s := sevenServers(600, idleTPM, 0)[i]
		rolling(&s)
		if got := s.least(s.work(goodputJobs, goodputWorkers, 1)); got != want {
			t.Errorf("%s: %v, want %v", s.name, got, want)
		}
	}
}
