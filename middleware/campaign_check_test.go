package middleware_test

import (
	"runtime"
	"strings"
	"time"
)

// check is what must hold when all callers are gone.
func (c *campaign) check(goroutinesBefore int) {
	if runtime.NumGoroutine() > goroutinesBefore { // which also counts the runtime's own, at times
		buf := make([]byte, 256<<10)
		var ours []string
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if first, _, _ := strings.Cut(g, "\n"); strings.Contains(first, "synctest bubble") && !strings.Contains(g, "testing/synctest.") {
				ours = append(ours, g)
			}
		}
		if len(ours) > 0 {
			c.complain("%d goroutines are left:\n%s", len(ours), strings.Join(ours, "\n"))
		}
	}
	if c.open != 0 {
		c.complain("%d answers are open", c.open)
	}
	for _, key := range c.local.Keys() {
		if s, ok := c.local.Stats(key); ok && (s.InFlight != 0 || s.Queued != 0) {
			c.complain("%s: %d slots taken, %d in line", key, s.InFlight, s.Queued)
		}
	}
	if c.router != nil {
		for _, s := range c.router.Snapshot() {
			if n := s.Counts; s.Probes != 0 || s.State == "closed" && n.Requests != n.TotalSuccesses+n.TotalFailures+n.TotalExclusions {
				c.complain("a permit is out: %+v", s)
			}
		}
	}
	c.checkSends()
	c.checkHolds()
	c.checkBrim()
}

// checkSends: no turn sends more than its budgets allow, nor again what may have
// been acted on.
func (c *campaign) checkSends() {
	type turn struct {
		call int
		path string
	}
	count := map[turn]int{}
	last := map[turn]*sent{}
	redirects := 0
	for _, s := range c.sends {
		t := turn{call: s.call}
		if c.host == "net/http" { // each hop is a call of its own
			t.path = s.path
		} else if s.status >= 300 && s.status < 400 {
			redirects++
		}
		count[t]++
		hop := turn{s.call, s.path}
		if before := last[hop]; before != nil && !before.idempotent && !c.schedule.faults.AllMethods && before.actedOn(c.host) {
			c.complain("call %d, a %s, was sent again at %v though it may have been acted on: %+v", s.call, s.method, s.at, *before)
		}
		last[hop] = s
	}
	for t, n := range count {
		most := c.budget()
		if c.host != "net/http" {
			most += c.hostRetries + redirects
		}
		if n > most {
			c.complain("call %d was sent %d times, the budgets allow %d", t.call, n, most)
		}
	}
}

// actedOn reports whether a server may have carried s out, so that only a caller
// who has said so may have it sent again.
func (s *sent) actedOn(host string) bool {
	switch s.status {
	case 0:
		return !s.unsent && (!s.hasBody || s.read > 0)
	case 200, 204, 404:
		return true
	case 500, 502, 504, 408:
		return host != "retryablehttp" // where it is CheckRetry's business
	}
	return false
}

// checkHolds: after a refusal that says for how long, nobody sends before that.
func (c *campaign) checkHolds() {
	policy := c.policy
	if !c.ladder {
		policy.RespectRetryAfter, policy.MaxDelay = true, time.Minute
	}
	if !policy.RespectRetryAfter || c.panics == "Provider" || c.steps || !c.ladder && !c.pace {
		return
	}
	together := c.pace && c.limiterKind != "holds nothing"
	if !together && !c.ladder {
		return
	}
	for _, r := range c.sends {
		if r.hint == 0 || r.status == 0 {
			continue
		}
		from, until := r.answered, r.answered+min(r.hint, policy.MaxDelay)
		if r.slow { // what the body says is looked at first
			from += 501 * time.Millisecond
		}
		for _, s := range c.sends {
			same := s.call == r.call && s.path == r.path && c.host == "net/http"
			if s.host == r.host && (together || same) && s.at > from && s.at < until {
				c.complain("call %d was sent at %v, while %s is held from %v to %v by call %d", s.call, s.at, s.host, from, until, r.call)
			}
		}
	}
}

// checkBrim: (debt + capacity) / rate after the last call, every bucket is at
// the brim. Nothing stirs meanwhile.
func (c *campaign) checkBrim() {
	var quiet time.Duration
	for _, key := range c.local.Keys() {
		s, _ := c.local.Stats(key)
		for _, l := range s.Levels {
			rate := float64(l.Limit.Amount) / l.Limit.Per.Seconds()
			q := l.Limit.Per + time.Duration(min(2*(l.Capacity-l.Available)/rate, 1e9)*float64(time.Second))
			quiet = max(quiet, q)
		}
	}
	made := goroutinesMade()
	time.Sleep(quiet + time.Hour)
	if n := goroutinesMade() - made; n != 0 {
		c.complain("%d timers or goroutines stir while nobody calls", n)
	}
	for _, key := range c.local.Keys() {
		s, _ := c.local.Stats(key)
		for _, l := range s.Levels {
			if l.Available < l.Capacity-1e-6 || l.Available > l.Capacity+1e-6 {
				c.complain("%s: %v of %v after %v of quiet: %+v", key, l.Available, l.Capacity, quiet, l)
			}
		}
	}
}
