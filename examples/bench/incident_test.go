package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// The incident: a fleet of agents starts at once on one key.
const (
	incidentAgents = 512
	incidentRPM    = 9_000
	incidentTPM    = 1_500_000
	incidentTime   = 6 * time.Minute
	incidentStart  = time.Second // within which all agents start
)

// incidentServer publishes the incident's limits. A served call takes 3 s, a refused one 60 ms, each
// give or take a half.
func incidentServer(name string, change func(*metertest.Config)) server {
	c := metertest.Config{
		Requests: incidentRPM, Tokens: incidentTPM,
		Up: 20 * time.Millisecond, Latency: 3 * time.Second, RefusedLatency: 60 * time.Millisecond, Jitter: 0.5,
	}
	change(&c)
	return server{name, c, c.Requests, c.Tokens}
}

// agentCosts draws the token costs of one agent's calls: a bounded Pareto distribution, alpha 1.1, from
// 2,000 to 20,000 tokens, of which the mean is 4,900. Without limits the fleet would use some 50 million
// tokens a minute.
func agentCosts(agent uint64) func() int64 {
	rng := rand.New(rand.NewPCG(agent, 3))
	const alpha, low, high = 1.1, 2000.0, float64(largestJob)
	lowA, highA := math.Pow(low, alpha), math.Pow(high, alpha)
	return func() int64 {
		u := rng.Float64()
		return int64(math.Pow((highA-u*(highA-lowA))/(highA*lowA), -1/alpha))
	}
}

// incidentOutcome is what six minutes came to.
type incidentOutcome struct {
	lost, idle    int // agents that died of an error; those that live and were never served
	hits, refused int
	tokens        int64 // served
	fewest, most  int   // calls served to one agent
}

// incident has every agent make call after call until the time is up, or until one fails: it dies of
// that, as the agents of the incident did. What is on its way when the time is up is neither.
func incident(t *testing.T, s server, c client) incidentOutcome {
	t.Helper()
	var o incidentOutcome
	synctest.Test(t, func(t *testing.T) {
		// No deadline: nobody is to know when the time is up, and give up before.
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(incidentTime, cancel).Stop()
		defer cancel()
		p := metertest.New(s.meter)
		do := c.make(t, s, p.Transport())
		served := make([]int, incidentAgents)
		died := make([]bool, incidentAgents)
		var all sync.WaitGroup
		for agent := range incidentAgents {
			all.Go(func() {
				next := agentCosts(uint64(agent))
				if sleep(ctx, time.Duration(agent)*incidentStart/incidentAgents) != nil {
					return
				}
				for ctx.Err() == nil {
					if job(ctx, do, next()) {
						served[agent]++
					} else if ctx.Err() == nil {
						died[agent] = true
						return
					}
				}
			})
		}
		all.Wait()
		o.fewest = math.MaxInt
		for agent, n := range served {
			if died[agent] {
				o.lost++
			} else if n == 0 {
				o.idle++
			}
			o.fewest, o.most = min(o.fewest, n), max(o.most, n)
		}
		o.hits, o.refused, o.tokens = p.Hits(), p.Refused(), p.Tokens()
	})
	return o
}

// incidentBudget is what a perfect client gets in the time: the tokens that come in and one burst, or
// those of every window that is touched.
func (s server) incidentBudget() int64 {
	switch {
	case s.windowed():
		return incidentTPM * (int64((incidentTime+s.meter.Offset)/time.Minute) + 1)
	case s.meter.TokenBurst > 0:
		return incidentTPM*int64(incidentTime/time.Minute) + s.meter.TokenBurst
	}
	return incidentTPM*int64(incidentTime/time.Minute) + incidentTPM
}

// oneByOne lets one call out at a time, first in first out.
func oneByOne(_ *testing.T, _ server, base http.RoundTripper) doer {
	turn := make(chan struct{}, 1)
	retry := again(base, stated)
	return func(r *http.Request) (*http.Response, error) {
		select {
		case turn <- struct{}{}:
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
		defer func() { <-turn }()
		return retry(r)
	}
}

// plainly is a Stack with Headroom 1 and the published limits, and every other default, the ladder's
// budget of retries among them.
func plainly(t *testing.T, s server, base http.RoundTripper) doer {
	return newOurStack(t, s, func(c *middleware.Config) { c.Ladder = retryafter.Policy{} }).Transport(base).RoundTrip
}

func TestIncident(t *testing.T) {
	clients := []client{
		{"openai-go as it comes, 2 retries", openaiWith(2)},
		{"go-retryablehttp as it comes, 4 retries", retryable(4)},
		{"one call at a time", oneByOne},
		{"a shared Retry-After gate, no pacing", sharedGate},
		{"two x/time limiters, 100 %, minute bursts", twoLimiters(1, time.Minute)},
		{us.name + ", Headroom 1", plainly},
	}
	if raceDetector || testing.Short() {
		clients = clients[len(clients)-1:] // the others are there to be compared with
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d agents, %d tpm, %d rpm, all within %v, for %v", incidentAgents, incidentTPM, incidentRPM, incidentStart, incidentTime)
	for _, s := range []server{
		incidentServer("a bucket of a minute", func(*metertest.Config) {}),
		incidentServer("a bucket of a second", func(c *metertest.Config) {
			c.RequestBurst, c.TokenBurst = incidentRPM/60, incidentTPM/60
		}),
		incidentServer("fixed windows, 25 s into one", func(c *metertest.Config) {
			c.Meter, c.Offset = metertest.FixedWindow, 25*time.Second
		}),
	} {
		fmt.Fprintf(&b, "\n\n%-42s| lost | never served | used    | wasted  | calls served to an agent", s.name)
		for _, c := range clients {
			o := incident(t, s, c)
			used := float64(o.tokens) / float64(s.incidentBudget())
			wasted := float64(o.refused) / float64(max(o.hits, 1))
			fmt.Fprintf(&b, "\n%-42s| %4d | %12d | %5.1f %% | %5.2f %% | %d to %d", c.name, o.lost, o.idle, 100*used, 100*wasted, o.fewest, o.most)
			if c.name == clients[len(clients)-1].name && (o.lost > 0 || used < 0.95 || wasted >= 0.005) {
				t.Errorf("%s: %d agents lost, %.1f %% used, %.2f %% wasted; the target is 0, 95 %% and 0.5 %%", s.name, o.lost, 100*used, 100*wasted)
			}
		}
	}
	t.Log("\n" + b.String())
}
