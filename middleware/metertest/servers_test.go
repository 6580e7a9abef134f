package metertest

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// paretoCosts are the costs of the heavy-tailed jobs.
func paretoCosts(n int) []int64 {
	rng := rand.New(rand.NewPCG(1, 1))
	const alpha, low, high = 1.1, 500.0, 20_000.0
	costs := make([]int64, n)
	for i := range costs {
		u := rng.Float64()
		costs[i] = int64(math.Pow(-(u*math.Pow(high, alpha)-u*math.Pow(low, alpha)-math.Pow(high, alpha))/(math.Pow(high, alpha)*math.Pow(low, alpha)), -1/alpha))
	}
	return costs
}

// The seven servers, and what a client that comes back every second makes of
// them: known figures, from another simulation.
func TestSevenServersTreatTheNaiveClientAsKnown(t *testing.T) {
	wires := Config{Up: 10 * time.Millisecond, Latency: 250 * time.Millisecond, RefusedLatency: 20 * time.Millisecond}
	with := func(f func(c *Config)) Config { c := wires; f(&c); return c }
	for _, s := range []struct {
		name             string
		config           Config
		pareto           bool
		makespan, wasted float64 // over the least, share
	}{
		{"R", with(func(c *Config) { c.Requests = 600 }), false, 1.01, 0.62},
		{"T", with(func(c *Config) { c.Requests, c.Tokens = 6000, 400_000 }), true, 1.00, 0.88},
		{"W", with(func(c *Config) { c.Requests, c.Meter, c.Offset = 600, FixedWindow, 25*time.Second }), false, 1.02, 0.62},
		{"WT", with(func(c *Config) {
			c.Requests, c.Tokens, c.Meter, c.Offset = 6000, 400_000, FixedWindow, 25*time.Second
		}), true, 1.00, 0.91},
		{"Q", with(func(c *Config) { c.Requests, c.RequestBurst = 600, 10 }), false, 1.00, 0.82},
		{"QT", with(func(c *Config) {
			c.Requests, c.RequestBurst, c.Tokens, c.TokenBurst = 6000, 100, 400_000, 20_000
		}), true, 1.00, 0.91},
		{"S", with(func(c *Config) { c.Requests, c.RequestBurst, c.RefusedCostsRequest = 600, 10, true }), false, 1.40, 0.87},
	} {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const jobs, workers = 1000, 50
				costs := make([]int64, jobs)
				for i := range costs {
					costs[i] = 100
				}
				if s.pareto {
					costs = paretoCosts(jobs)
				}
				p := New(s.config)
				rt := p.Transport()
				start := time.Now()
				queue := make(chan int64, jobs)
				for _, c := range costs {
					queue <- c
				}
				close(queue)
				var wg sync.WaitGroup
				for range workers {
					wg.Go(func() {
						for cost := range queue {
							for {
								req, _ := http.NewRequest("POST", "https://api.example.com/", strings.NewReader("{}"))
								req.Header.Set(TokensHeader, strconv.FormatInt(cost, 10))
								resp, err := rt.RoundTrip(req)
								if err != nil {
									t.Error(err)
									return
								}
								resp.Body.Close()
								if resp.StatusCode == 200 {
									break
								}
								time.Sleep(time.Second)
							}
						}
					})
				}
				wg.Wait()
				took := time.Since(start)
				least := least(s.config, costs, workers)
				wasted := float64(p.Refused()) / float64(p.Hits())
				t.Logf("makespan %v, %.3f of the least (%v), wasted %.3f", took, took.Seconds()/least.Seconds(), least, wasted)
				if p.Served() != jobs {
					t.Errorf("served %d, want %d", p.Served(), jobs)
				}
				if r := took.Seconds() / least.Seconds(); math.Abs(r-s.makespan) > 0.06 || r < 0.999 {
					t.Errorf("makespan %.3f of the least, known %.2f", r, s.makespan)
				}
				if math.Abs(wasted-s.wasted) > 0.04 {
					t.Errorf("wasted %.3f, known %.2f", wasted, s.wasted)
				}
			})
		})
	}
}

// least is the least makespan: the workers' bound, the refill's, or the last
// window's start plus its waves.
func least(c Config, costs []int64, workers int) time.Duration {
	tokens := int64(0)
	for _, n := range costs {
		tokens += n
	}
	bound := time.Duration((len(costs)+workers-1)/workers) * c.Latency
	if c.Meter == FixedWindow {
		windows := func(total, limit int64) int64 {
			if limit == 0 {
				return 0
			}
			return (total - 1) / limit
		}
		k := max(windows(int64(len(costs)), c.Requests), windows(tokens, c.Tokens))
		last := int64(len(costs)) - k*c.Requests
		if c.Tokens > 0 { // by tokens: some share of the jobs is left
			last = int64(float64(len(costs)) * float64(tokens-k*c.Tokens) / float64(tokens))
		}
		waves := (last + int64(workers) - 1) / int64(workers)
		return time.Duration(k)*time.Minute - c.Offset + time.Duration(waves)*c.Latency
	}
	refill := func(total, limit, burst int64) time.Duration {
		if limit == 0 {
			return 0
		}
		if burst == 0 {
			burst = limit
		}
		return time.Duration(float64(total-burst)/float64(limit)*float64(time.Minute)) + c.Latency
	}
	return max(bound, refill(int64(len(costs)), c.Requests, c.RequestBurst), refill(tokens, c.Tokens, c.TokenBurst))
}
