package bench

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A server is one of those that the goodput work runs against: how it meters, and
// what its operator publishes. The client is told what is published and nothing of
// the meter's shape.
type server struct {
	name     string
	meter    metertest.Config
	rpm, tpm int64 // published
}

// A batch is the work: its jobs' token costs in the order in which they are picked up.
type batch struct {
	costs   []int64
	workers int
}

const (
	goodputJobs    = 1000
	goodputWorkers = 50
	goodputHorizon = 30 * time.Minute // what is unfinished then has failed
	sameCost       = 100
	largestJob     = 20_000
)

// wires are the ways of the seven servers: 10 ms up; a served call takes 250 ms in
// all, a refused one 20 ms.
var wires = metertest.Config{Up: 10 * time.Millisecond, Latency: 250 * time.Millisecond, RefusedLatency: 20 * time.Millisecond}

// published tpm of the servers whose tokens have no effect: not enforced, and wide.
const idleTPM = 400_000

// sevenServers returns the servers R, T, W, WT, Q, QT and S at the given rates.
func sevenServers(rpm, tpm int64, offset time.Duration) []server {
	requests, tokens := wires, wires
	requests.Requests = rpm
	tokens.Requests, tokens.Tokens = 10*rpm, tpm
	with := func(name string, c metertest.Config, change func(*metertest.Config)) server {
		change(&c)
		s := server{name, c, c.Requests, c.Tokens}
		if s.tpm == 0 {
			s.tpm = idleTPM
		}
		return s
	}
	windows := func(c *metertest.Config) { c.Meter, c.Offset = metertest.FixedWindow, offset }
	return []server{
		with("R", requests, func(*metertest.Config) {}),
		with("T", tokens, func(*metertest.Config) {}),
		with("W", requests, windows),
		with("WT", tokens, windows),
		with("Q", requests, func(c *metertest.Config) { c.RequestBurst = max(rpm/60, 1) }),
		with("QT", tokens, func(c *metertest.Config) { c.RequestBurst, c.TokenBurst = max(rpm/6, 1), largestJob }),
		with("S", requests, func(c *metertest.Config) { c.RequestBurst, c.RefusedCostsRequest = max(rpm/60, 1), true }),
	}
}

func (s server) windowed() bool { return s.meter.Meter == metertest.FixedWindow }

// work returns the batch for s: equal costs where tokens have no effect, else a bounded
// Pareto distribution (alpha 1.1, 500 to 20,000) drawn from seed.
func (s server) work(jobs, workers int, seed uint64) batch {
	b := batch{costs: make([]int64, jobs), workers: workers}
	rng := rand.New(rand.NewPCG(seed, 1))
	const alpha, low, high = 1.1, 500.0, float64(largestJob)
	lowA, highA := math.Pow(low, alpha), math.Pow(high, alpha)
	for i := range b.costs {
		if b.costs[i] = sameCost; s.meter.Tokens > 0 {
			u := rng.Float64()
			b.costs[i] = int64(math.Pow((highA-u*(highA-lowA))/(highA*lowA), -1/alpha))
		}
	}
	return b
}

// least is the least possible makespan. For buckets it is the workers' bound or the time to
// refill what the bucket does not hold; for windows the start of the last one needed plus the
// waves of workers in it, or what a perfect client takes whose workers cannot fill the first one.
func (s server) least(b batch) time.Duration {
	var tokens int64
	for _, n := range b.costs {
		tokens += n
	}
	jobs, c := int64(len(b.costs)), s.meter
	waves := func(jobs int64) time.Duration {
		return time.Duration((jobs+int64(b.workers)-1)/int64(b.workers)) * c.Latency
	}
	if s.windowed() {
		full, last := s.fill(b)
		if full == 0 {
			return waves(jobs)
		}
		return max(waves(jobs), s.poured(b), time.Duration(full)*time.Minute-c.Offset%time.Minute+waves(max(last, 1)))
	}
	if c.Meter == metertest.RollingWindow {
		return s.rolled(b)
	}
	refill := func(total, amount, burst int64) time.Duration {
		if amount == 0 {
			return 0
		}
		if burst == 0 {
			burst = amount
		}
		return time.Duration(float64(total-burst)/float64(amount)*float64(time.Minute)) + c.Latency
	}
	return max(waves(jobs), refill(jobs, c.Requests, c.RequestBurst), refill(tokens, c.Tokens, c.TokenBurst))
}

// fill is how many windows the batch fills, first in first out, and how many jobs are left for the
// last one. What does not fit into the rest of a window waits for the next: where costs differ, a few
// batches need a window more than their sum does.
func (s server) fill(b batch) (full, last int64) {
	var tokens int64
	for _, cost := range b.costs {
		if last == s.meter.Requests || s.meter.Tokens > 0 && tokens+cost > s.meter.Tokens {
			full++
			last, tokens = 0, 0
		}
		last++
		tokens += cost
	}
	return full, last
}

// poured is the makespan of a first-in-first-out client that knows a window server's meter: each call
// arrives as soon as a worker is free and its window has room.
func (s server) poured(b batch) time.Duration {
	free := make([]time.Duration, b.workers) // when each worker is
	c := s.meter
	var left, end, window time.Duration
	var requests, tokens int64
	for _, cost := range b.costs {
		next := soonest(free)
		left = max(left, free[next])
		if now := (left + c.Up + c.Offset) / time.Minute; now > window {
			window, requests, tokens = now, 0, 0
		}
		if requests == c.Requests || c.Tokens > 0 && tokens+cost > c.Tokens {
			window++
			requests, tokens = 0, 0
			left = window*time.Minute - c.Offset - c.Up
		}
		requests++
		tokens += cost
		free[next] = left + c.Latency
		end = max(end, free[next])
	}
	return end
}

// rolled is what poured is, for rolling windows: each call arrives as soon as a worker is free and
// enough of what was taken has come back, a Per later.
func (s server) rolled(b batch) time.Duration {
	free := make([]time.Duration, b.workers) // when each worker is
	c := s.meter
	per := c.Per
	if per == 0 {
		per = time.Minute
	}
	var left, end time.Duration
	var requests, tokens int64
	taken := make([]time.Duration, len(b.costs))
	oldest := 0
	for i, cost := range b.costs {
		next := soonest(free)
		left = max(left, free[next])
		for oldest < i && (taken[oldest]+per <= left || requests == c.Requests || c.Tokens > 0 && tokens+cost > c.Tokens) {
			left = max(left, taken[oldest]+per)
			requests--
			tokens -= b.costs[oldest]
			oldest++
		}
		taken[i] = left
		requests++
		tokens += cost
		free[next] = left + c.Latency
		end = max(end, free[next])
	}
	return end
}

// oracle returns the latency of every job, from its pick-up to its 200, for a first-in-first-out
// client that knows a bucket server's meter and is never refused.
func (s server) oracle(b batch) []time.Duration {
	free := make([]float64, b.workers) // when each worker is
	c := s.meter
	requests := newOracleLevel(c.Requests, c.RequestBurst)
	tokens := newOracleLevel(c.Tokens, c.TokenBurst)
	latencies := make([]time.Duration, len(b.costs))
	var left float64
	for i, cost := range b.costs {
		next := soonest(free)
		picked := free[next]
		left = max(left, picked)
		left = max(requests.ready(left, 1), tokens.ready(left, float64(cost)))
		requests.take(left, 1)
		tokens.take(left, float64(cost))
		free[next] = left + c.Latency.Seconds()
		latencies[i] = time.Duration((free[next] - picked) * float64(time.Second))
	}
	return latencies
}

// oracleLevel is a server's bucket as the oracle sees it, in seconds and whole units.
type oracleLevel struct{ rate, burst, level, at float64 }

func newOracleLevel(amount, burst int64) *oracleLevel {
	if amount == 0 {
		return &oracleLevel{rate: 1, burst: math.Inf(1), level: math.Inf(1)}
	}
	if burst == 0 {
		burst = amount
	}
	return &oracleLevel{rate: float64(amount) / 60, burst: float64(burst), level: float64(burst)}
}

func (l *oracleLevel) ready(at, cost float64) float64 {
	level := min(l.burst, l.level+(at-l.at)*l.rate)
	return at + max(0, cost-level)/l.rate
}

func (l *oracleLevel) take(at, cost float64) {
	l.level = min(l.burst, l.level+(at-l.at)*l.rate) - cost
	l.at = at
}

func soonest[T float64 | time.Duration](at []T) int {
	least := 0
	for i := range at {
		if at[i] < at[least] {
			least = i
		}
	}
	return least
}

// finish is when a perfect client has served the batch, if capacity(t) is how much of the batch's
// share of a meter has been there by then.
func finish(total float64, capacity func(t time.Duration) float64) time.Duration {
	const step = 10 * time.Millisecond
	at := time.Duration(0)
	for capacity(at) < total && at < goodputHorizon {
		at += step
	}
	return at
}

// meters calls f for each meter in force.
func (s server) meters(b batch, f func(total, amount, burst float64)) {
	var tokens int64
	for _, n := range b.costs {
		tokens += n
	}
	for _, m := range [...]struct{ total, amount, burst int64 }{
		{int64(len(b.costs)), s.meter.Requests, s.meter.RequestBurst},
		{tokens, s.meter.Tokens, s.meter.TokenBurst},
	} {
		if m.amount > 0 {
			if m.burst == 0 {
				m.burst = m.amount
			}
			f(float64(m.total), float64(m.amount), float64(m.burst))
		}
	}
}

// leastHalved is the least makespan when the limits are halved at an instant.
func (s server) leastHalved(b batch, at time.Duration) time.Duration {
	least := s.least(b)
	s.meters(b, func(total, amount, burst float64) {
		var end time.Duration
		if s.windowed() {
			end = finish(total, func(t time.Duration) float64 {
				// The window that is on at the change has been used up before.
				return amount + amount/2*float64((t+s.meter.Offset)/time.Minute)
			})
		} else {
			end = finish(total, func(t time.Duration) float64 {
				return burst + amount/60*min(t, at).Seconds() + amount/120*max(t-at, 0).Seconds()
			})
		}
		least = max(least, end+s.meter.Latency)
	})
	return least
}

// leastShared is the least makespan beside a neighbour who takes half of what is refilled. Of a
// window he gets only what a quick client leaves.
func (s server) leastShared(b batch) time.Duration {
	least := s.least(b)
	if s.windowed() {
		return least
	}
	s.meters(b, func(total, amount, burst float64) {
		end := finish(total, func(t time.Duration) float64 { return burst + amount/120*t.Seconds() })
		least = max(least, end+s.meter.Latency)
	})
	return least
}
