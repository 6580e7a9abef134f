package main

import (
	"math"
	"math/rand/v2"
)

// A job is one call of the batch: a POST that costs tokens.
type job struct {
	id     int
	tokens int64
}

// The costs of jobs have a heavy tail, as prompts do: most are small, and a few
// that are forty times larger take a good part of the whole budget.
const (
	smallestJob = 500
	largestJob  = 20_000
	tailIndex   = 1.1
)

// newBatch returns n jobs whose tokens follow a bounded Pareto distribution. The
// same seed gives the same batch.
func newBatch(n int, seed uint64) []job {
	draw := rand.New(rand.NewPCG(seed, 0))
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = job{id: i, tokens: boundedPareto(draw.Float64())}
	}
	return jobs
}

// boundedPareto is the quantile function of the distribution, u in [0, 1).
func boundedPareto(u float64) int64 {
	l, h := math.Pow(smallestJob, tailIndex), math.Pow(largestJob, tailIndex)
	x := math.Pow((h-u*(h-l))/(h*l), -1/tailIndex)
	return min(max(int64(x), smallestJob), largestJob)
}

// sum is what all jobs cost together.
func sum(jobs []job) int64 {
	total := int64(0)
	for _, j := range jobs {
		total += j.tokens
	}
	return total
}
