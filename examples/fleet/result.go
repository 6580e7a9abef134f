package main

import (
	"slices"
	"time"
)

// served is how many calls the providers admitted.
func (r result) served() int {
	n := 0
	for _, ledger := range r.ledgers {
		for _, e := range ledger {
			if e.Admitted {
				n++
			}
		}
	}
	return n
}

// refused is how many calls the providers turned away.
func (r result) refused() int {
	n := -r.served()
	for _, ledger := range r.ledgers {
		n += len(ledger)
	}
	return n
}

// wasted is the share of all calls that were refused.
func (r result) wasted() float64 {
	refused := r.refused()
	if refused == 0 {
		return 0
	}
	return float64(refused) / float64(refused+r.served())
}

// lost is how many jobs never got their answer, and why the first of them did not.
func (r result) lost() (n int, why error) {
	for _, o := range r.outcomes {
		if o.err == nil {
			continue
		}
		if n++; why == nil {
			why = o.err
		}
	}
	return n, why
}

// makespan is the time from the first job's start to the last one's end.
func (r result) makespan() time.Duration { return r.ended.Sub(r.began) }

// latency is the time within which a share p of the served jobs had their answer,
// from the moment a worker took them up: the nearest rank. 0 if none was served.
func (r result) latency(p float64) time.Duration {
	var took []time.Duration
	for _, o := range r.outcomes {
		if o.err == nil {
			took = append(took, o.took)
		}
	}
	return nearestRank(took, p)
}

// nearestRank is the least of values that is no less than a share p of them.
func nearestRank(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	rank := int(p*float64(len(values)) + 1 - 1e-9)
	return values[min(max(rank, 1), len(values))-1]
}
