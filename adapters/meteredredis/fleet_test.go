package meteredredis

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

var fleetSpan = flag.Duration("fleet", 2*time.Second, "how long the tests of a whole fleet take")

// Eight processes' worth of limiters, of 64 goroutines each, on one key: never over the limit in any window, and
// little of it unused.
func TestFleetIsExact(t *testing.T) {
	c := connect(t)
	d := &decisions{name: nameOf(t.Name(), "k")}
	d.hear(c, 0)
	const rate, burst = 2000, 50
	config := Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: rate, Per: time.Second, Burst: burst}}}
	a := new(admissions)
	stop := make(chan struct{})
	var waits []func()
	start := time.Now()
	for range 8 {
		waits = append(waits, load(t, limiter(t, c, config), "k", 64, a, stop))
	}
	time.Sleep(*fleetSpan)
	close(stop)
	took := time.Since(start)
	for _, wait := range waits {
		wait()
	}
	n := a.count()
	d.within(t, burst, rate, 0, n)
	t.Logf("%d admitted in %v: %.1f %% of %d a second and a burst of %d", n, took, 100*float64(n)/(rate*took.Seconds()+burst), rate, burst)
}

// The store is killed in the middle of a fleet that uses four fifths of its limit: no call fails, and what the
// outage adds to their waits is told.
func TestFleetLosesItsStore(t *testing.T) {
	s := startServer(t)
	const processes, every, rate, burst = 8, 10 * time.Millisecond, 1000, 100 // 800 a second
	a := new(admissions)
	var mu sync.Mutex
	type wait struct{ at, took time.Duration }
	var waits []wait
	var wg sync.WaitGroup
	start := time.Now()
	var fleet []member
	for range processes {
		e := new(events)
		c := client(t, &redis.Options{Addr: s.addr, DialerRetries: 1}) // a crash is known at once
		l := limiter(t, c, Config{Observer: e, Processes: processes,
			Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: rate, Per: time.Second, Burst: burst}}})
		fleet = append(fleet, member{l, e, rate * (1 - margin) / processes})
		wg.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for time.Since(start) < 3**fleetSpan {
				<-tick.C
				wg.Go(func() {
					began := time.Now()
					g, err := l.Acquire(context.Background(), "k", one())
					if err != nil {
						t.Errorf("a call failed: %v", err)
						return
					}
					a.add(admission{from: began, to: time.Now(), cost: 1})
					g.Served()
					g.Settle(one())
					mu.Lock()
					waits = append(waits, wait{began.Sub(start), time.Since(began)})
					mu.Unlock()
				})
			}
		})
	}
	time.Sleep(*fleetSpan)
	s.kill()
	away := time.Now()
	time.Sleep(*fleetSpan)
	for _, m := range fleet {
		eventually(t, "it is away", func() bool { return m.told.count(middleware.StoreDown) == 1 })
	}
	beyond := assumed(fleet, rate, away)
	s.start()
	back := time.Since(start)
	for _, m := range fleet {
		eventually(t, "it is back", func() bool { return m.told.count(middleware.StoreUp) == 1 })
	}
	beyond += late(t, s.client(t), fleet)
	wg.Wait()
	a.within(t, burst, rate, beyond)
	for _, part := range []struct {
		name     string
		from, to time.Duration
	}{
		{"with the store", *fleetSpan / 4, *fleetSpan},
		{"without it", *fleetSpan, back},
		{"from 2 s after its return", back + 2*time.Second, 3 * *fleetSpan},
		{"from its return", back, 3 * *fleetSpan},
	} {
		var took []time.Duration
		for _, w := range waits {
			if w.at >= part.from && w.at < part.to {
				took = append(took, w.took)
			}
		}
		if slices.Sort(took); len(took) > 0 {
			t.Logf("%s: %d calls, p50 %v, p99 %v, most %v", part.name, len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
		}
	}
}
