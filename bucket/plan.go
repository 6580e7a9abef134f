package bucket

import (
	"errors"
	"fmt"
	"iter"
	"time"
)

// Batch is work to be planned: jobs that are sent in order, each as soon as the limits and a free
// worker allow.
type Batch struct {
	// Costs are the estimates, in the order of the jobs.
	Costs iter.Seq[Cost]

	// Workers is how many jobs run at a time; 0 means no bound.
	Workers int

	// Latency is how long one job takes from its departure to its end.
	Latency time.Duration

	// Headroom scales the limits as Config.Headroom does; 0 means 1. A stack built by
	// middleware.New uses 0.9 unless told otherwise.
	Headroom float64
}

// Forecast says how a batch will go.
type Forecast struct {
	Jobs   int
	Total  Cost              // of all jobs, saturating
	Takes  time.Duration     // from the start to the end of the last job; saturates
	Tenths [10]time.Duration // when each tenth of the jobs is done; the last is Takes

	// Binds is the index in Limits of the limit for which the batch waits the longest: the one to
	// raise. -1 if it waits for none: the workers and their latency decide.
	Binds int

	// Limits has one for each limit that was given, in order.
	Limits []LimitForecast
}

// LimitForecast is what one limit does to a batch.
type LimitForecast struct {
	Limit   Limit
	Waits   time.Duration // how long the next job waits for it, longer than for any other
	Held    int           // how many jobs do; those behind them wait too, in line
	First   int           // index of the first of them; -1 if there is none
	FirstAt time.Duration // when that one leaves: until then the limit cuts off all from it on
}

// Plan answers before a batch starts: how long it will take, which limit binds, and when each tenth
// will be done. It plays the batch through full buckets of these limits, exactly as a Local would
// admit it from rest, and takes estimates for true costs: nobody else on the key, no refusals. A limit
// of a day shows in its LimitForecast: First is the first job that has to wait for tomorrow.
//
// It fails on invalid limits, a negative cost, and a Batch whose numbers make no sense. It is pure, and
// takes well under a microsecond for each job and limit.
func Plan(limits []Limit, batch Batch) (Forecast, error) {
	if err := (Config{Limits: limits, Headroom: batch.Headroom}).Validate(); err != nil {
		return Forecast{}, err
	}
	switch {
	case batch.Costs == nil:
		return Forecast{}, errors.New("bucket: plan: Batch.Costs is nil")
	case batch.Workers < 0:
		return Forecast{}, fmt.Errorf("bucket: plan: negative Workers %d", batch.Workers)
	case batch.Latency < 0:
		return Forecast{}, fmt.Errorf("bucket: plan: negative Latency %v", batch.Latency)
	}
	p := plan{batch: batch, of: make([]LimitForecast, len(limits))}
	headroom := Config{Headroom: batch.Headroom}.headroom()
	for i, l := range limits {
		p.of[i] = LimitForecast{Limit: l, First: -1}
		if l.Amount > 0 {
			m := newMeter(l, headroom)
			m.slot = uint8(i)
			p.meters = append(p.meters, m)
		}
	}
	return p.play()
}

// A plan is a batch being played through.
type plan struct {
	batch  Batch
	meters []meter
	of     []LimitForecast
	ends   []int64 // when each job ends; with one latency for all they end as they left
}

func (p *plan) play() (Forecast, error) {
	f := Forecast{Binds: -1, Limits: p.of}
	now := int64(0)
	for cost := range p.batch.Costs {
		if err := cost.validate(); err != nil {
			return Forecast{}, fmt.Errorf("bucket: plan: job %d: %w", len(p.ends), err)
		}
		cost = cost.clamped()
		f.Total = Cost{
			satAdd(f.Total.Requests, cost.Requests),
			satAdd(f.Total.InputTokens, cost.InputTokens),
			satAdd(f.Total.OutputTokens, cost.OutputTokens),
		}
		now = p.admit(p.free(now), cost)
		p.ends = append(p.ends, later(now, int64(p.batch.Latency)))
	}
	f.Jobs = len(p.ends)
	for i := range f.Tenths {
		if n := (f.Jobs*(i+1) + 9) / 10; n > 0 {
			f.Tenths[i] = time.Duration(p.ends[n-1])
		}
	}
	f.Takes = f.Tenths[9]
	for i := range p.of {
		if p.of[i].Waits > 0 && (f.Binds < 0 || p.of[i].Waits > p.of[f.Binds].Waits) {
			f.Binds = i
		}
	}
	return f, nil
}

// free is when a worker takes up the next job, now at the earliest.
func (p *plan) free(now int64) int64 {
	if i := len(p.ends) - p.batch.Workers; p.batch.Workers > 0 && i >= 0 {
		return max(now, p.ends[i])
	}
	return now
}

// admit charges the next job when all limits have room for it, and returns when that is.
func (p *plan) admit(now int64, cost Cost) int64 {
	leaves, by := now, -1
	for i := range p.meters {
		m := &p.meters[i]
		m.catchUp(now)
		if at := m.ready(now, m.share(cost)); at > leaves {
			leaves, by = at, i
		}
	}
	for i := range p.meters {
		m := &p.meters[i]
		m.catchUp(leaves)
		m.charge(leaves, m.share(cost))
	}
	if by >= 0 {
		of := &p.of[p.meters[by].slot]
		if of.Held == 0 {
			of.First, of.FirstAt = len(p.ends), time.Duration(leaves)
		}
		of.Held++
		of.Waits = time.Duration(later(int64(of.Waits), leaves-now))
	}
	return leaves
}
