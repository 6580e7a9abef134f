package bench

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// shape is the server's meter as limits, bursts and all.
func (s server) shape() []bucket.Limit {
	return []bucket.Limit{
		{Unit: bucket.Requests, Amount: s.meter.Requests, Per: time.Minute, Burst: s.meter.RequestBurst},
		{Unit: bucket.Tokens, Amount: s.meter.Tokens, Per: time.Minute, Burst: s.meter.TokenBurst},
	}
}

// TestPlan holds what bucket.Plan says of a batch beforehand against what it then takes, at the bucket
// servers of the goodput work. Plan and the Stack are told how the server meters, and use all of it.
func TestPlan(t *testing.T) {
	const within = 0.05
	repeat := *goodputRuns
	if raceDetector || testing.Short() {
		repeat = 1
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-6s %10s %10s %10s %8s %8s  %s\n", "server", "planned", "made", "least", "off", "wasted", "binds")
	for _, s := range sevenServers(600, 400_000, 0) {
		if s.windowed() || s.name == "S" {
			continue
		}
		b := s.work(goodputJobs, goodputWorkers, 1)
		told := client{"told the meter's shape", func(t *testing.T, s server, base http.RoundTripper) doer {
			stack := newOurStack(t, s, func(c *middleware.Config) { c.Bucket.Limits = s.shape() })
			return stack.Transport(base).RoundTrip
		}}
		runs := make([]outcome, repeat)
		for i := range runs {
			runs[i] = play(t, s, b, told, 1, nil)
		}
		made := middle(runs)

		costs := make([]bucket.Cost, len(b.costs))
		for i, n := range b.costs {
			costs[i] = bucket.Cost{Requests: 1, InputTokens: n}
		}
		plan, err := bucket.Plan(s.shape(), bucket.Batch{
			Costs: slices.Values(costs), Workers: b.workers, Latency: s.meter.Latency, Headroom: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		binds := "workers"
		if plan.Binds >= 0 {
			binds = plan.Limits[plan.Binds].Limit.Unit.String()
		}
		off := plan.Takes.Seconds()/made.makespan.Seconds() - 1
		fmt.Fprintf(&table, "%-6s %9.2fs %9.2fs %9.2fs %+7.2f%% %7.2f%%  %s\n",
			s.name, plan.Takes.Seconds(), made.makespan.Seconds(), made.least.Seconds(), 100*off, 100*made.wasted(), binds)
		if math.Abs(off) > within || made.lost > 0 {
			t.Errorf("%s: planned %v, took %v and lost %d", s.name, plan.Takes, made.makespan, made.lost)
		}
	}
	t.Logf("a batch as planned, and as it went\n%s", table.String())
}
