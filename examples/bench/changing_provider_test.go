package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A provider that lowers its limits under load, and raises them an hour later.
const (
	loweredAt     = time.Minute
	raisedAt      = loweredAt + time.Hour
	watchedUntil  = raisedAt + 10*time.Minute
	fullAgain     = time.Minute     // of service at 95 % of the published rate is recovery
	recoveryBound = 5 * time.Minute // within which it has begun
)

// changed is what such a run came to.
type changed struct {
	lost, hits, refused int
	low                 float64       // served while lowered, of what the lowered limits let through
	recovery            time.Duration // from the raise to the first minute at 95 %; -1 for none
	after               float64       // served from recoveryBound after the raise on, of the published rate
}

// lowerAndRaise has the workers make call after call while the limits of s fall to a part and return.
func lowerAndRaise(t *testing.T, s server, c client, part int64) changed {
	t.Helper()
	var o changed
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p := metertest.New(s.meter)
		start := time.Now()
		do := c.make(t, s, p.Transport())
		var all sync.WaitGroup
		lost := make([]int, goodputWorkers)
		for worker := range goodputWorkers {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(worker), 4))
				for ctx.Err() == nil {
					if !job(ctx, do, s.costOf(rng)) && ctx.Err() == nil {
						lost[worker]++
					}
				}
			})
		}
		time.Sleep(loweredAt)
		p.SetLimits(s.meter.Requests/part, s.meter.Tokens/part)
		time.Sleep(raisedAt - loweredAt)
		p.SetLimits(s.meter.Requests, s.meter.Tokens)
		time.Sleep(watchedUntil - raisedAt)
		cancel()
		all.Wait()
		for _, n := range lost {
			o.lost += n
		}
		o.hits, o.refused = p.Hits(), p.Refused()

		// The meter that binds: tokens where they are metered, else requests.
		rate := s.meter.Requests
		unit := func(metertest.Entry) int64 { return 1 }
		if s.meter.Tokens > 0 {
			rate, unit = s.meter.Tokens, func(e metertest.Entry) int64 { return e.Tokens }
		}
		perSecond := make([]int64, watchedUntil/time.Second+60)
		for _, e := range p.Ledger() {
			if e.Admitted {
				perSecond[e.At.Sub(start)/time.Second] += unit(e)
			}
		}
		between := func(from, to time.Duration) (n int64) {
			for _, served := range perSecond[from/time.Second : to/time.Second] {
				n += served
			}
			return n
		}
		// The first five minutes low are for what is left of the burst.
		from := loweredAt + 5*time.Minute
		o.low = float64(between(from, raisedAt)) / (float64(rate/part) * (raisedAt - from).Minutes())
		from = raisedAt + recoveryBound
		o.after = float64(between(from, watchedUntil)) / (float64(rate) * (watchedUntil - from).Minutes())
		o.recovery = -1
		for at := raisedAt; at+fullAgain <= watchedUntil; at += time.Second {
			if between(at, at+fullAgain)*100 >= rate*95 {
				o.recovery = at - raisedAt
				break
			}
		}
	})
	return o
}

// costOf draws the cost of one job.
func (s server) costOf(rng *rand.Rand) int64 {
	return s.work(1, 1, rng.Uint64()).costs[0]
}

// TestVariantsWithLoweredAndRaisedLimits lowers the limits to a half and to a fifth, and raises them an
// hour later.
func TestVariantsWithLoweredAndRaisedLimits(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-6s| lowered to | used while low | 95 %% again after | kept up  | wasted  | lost", "server")
	for _, s := range sevenServers(600, idleTPM, 25*time.Second) {
		for _, part := range []int64{2, 5} {
			if (raceDetector || testing.Short()) && part == 2 {
				continue
			}
			o := lowerAndRaise(t, s, us, part)
			wasted := float64(o.refused) / float64(max(o.hits, 1))
			fmt.Fprintf(&b, "\n%-6s| 1/%d        | %12.1f %% | %16v | %6.1f %% | %5.2f %% | %d", s.name, part, 100*o.low, o.recovery, 100*o.after, 100*wasted, o.lost)
			slow := o.lost > 0 || o.recovery < 0 || o.recovery > recoveryBound || o.after < 0.95
			if slow || wasted > 0.03 {
				missed(t, slow || wasted > 0.045, "%s, lowered to 1/%d: 95 %% again after %v, then %.1f %%, %.2f %% wasted, %d lost; the target is %v, 95 %%, 3 %% and 0",
					s.name, part, o.recovery, 100*o.after, 100*wasted, o.lost, recoveryBound)
			}
		}
	}
	t.Log("\n" + b.String())
}
