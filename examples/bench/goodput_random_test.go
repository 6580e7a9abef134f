package bench

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

var (
	randomServers = flag.Int("goodput.servers", 120, "how many random servers TestRandomServers runs; the whole gate is 1,000")
	randomFrom    = flag.Uint64("goodput.from", 0, "the first random server's number")
)

// randomServer draws a server: 60 to 5,800 requests a minute, a bucket of 1/64 minute to a minute or
// windows at any offset, half of them with tokens that bind about as much, 10 to 200 workers, round
// trips of 50 ms to 2 s.
func randomServer(n uint64) (server, batch) {
	rng := rand.New(rand.NewPCG(n, 2))
	between := func(low, high float64) float64 { return low * math.Pow(high/low, rng.Float64()) }
	rtt := time.Duration(between(50, 2000) * float64(time.Millisecond))
	c := metertest.Config{Up: rtt / 25, Latency: rtt, RefusedLatency: rtt * 2 / 25}
	c.Requests = int64(between(60, 5800))
	burst := between(1.0/64, 1)
	s := server{}
	if rng.IntN(2) == 0 {
		s.name += "tokens "
		c.Tokens = max(int64(between(0.6, 1.5)*1750*float64(c.Requests)), largestJob)
		c.TokenBurst = max(int64(burst*float64(c.Tokens)), largestJob)
	}
	if rng.IntN(3) == 0 {
		c.Meter, c.Offset = metertest.FixedWindow, time.Duration(rng.Int64N(int64(time.Minute)))
		s.name += fmt.Sprintf("window at %v", c.Offset.Round(time.Millisecond))
	} else {
		c.RequestBurst = max(int64(burst*float64(c.Requests)), 1)
		c.RefusedCostsRequest = rng.IntN(4) == 0
		s.name += fmt.Sprintf("bucket of %d", c.RequestBurst)
		if c.RefusedCostsRequest {
			s.name += ", refusals cost"
		}
	}
	s.meter, s.rpm, s.tpm = c, c.Requests, c.Tokens
	if s.tpm == 0 {
		s.tpm = 10_000 * c.Requests
	}
	b := s.work(goodputJobs, int(between(10, 200)), n)
	s.name = fmt.Sprintf("server %d: rpm %d, tpm %d, %s, %d workers, %v", n, s.rpm, c.Tokens, s.name, b.workers, rtt)
	return s, b
}

// TestRandomServers is the gate that a fixed list of servers does not replace.
func TestRandomServers(t *testing.T) {
	late, wasteful, worst, lost := 0, 0, 0.0, 0
	for n := range uint64(*randomServers) {
		s, b := randomServer(*randomFrom + n)
		o := play(t, s, b, us, 1, nil)
		slow := o.makespan > o.least+o.least/20+1500*time.Millisecond
		if slow {
			late++
		}
		if o.wasted() > 0.01 {
			wasteful++
		}
		if slow || o.wasted() > 0.01 {
			t.Logf("%s: %.3f of %v, %.2f %% wasted", s.name, o.over(), o.least.Round(time.Millisecond), 100*o.wasted())
		}
		worst = max(worst, o.wasted())
		lost += o.lost
	}
	share := func(n int) float64 { return 100 - 100*float64(n)/float64(*randomServers) }
	t.Logf("%d servers: %.1f %% within 1.05 least + 1.5 s, %.1f %% wasted at most 1 %%, the most %.2f %%, %d jobs lost",
		*randomServers, share(late), share(wasteful), 100*worst, lost)
	if share(late) < 95 || share(wasteful) < 95 || worst > 0.1 || lost > 0 {
		missed(t, share(late) < 90 || share(wasteful) < 90 || worst > 0.15 || lost > 0, "the gate: 95 %%, 95 %%, 10 %%, none")
	}
}
