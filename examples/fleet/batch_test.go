package main

import (
	"slices"
	"testing"
)

func TestASeedStandsForOneBatch(t *testing.T) {
	if !slices.Equal(newBatch(100, 7), newBatch(100, 7)) {
		t.Error("the same seed gave two batches")
	}
	if slices.Equal(newBatch(100, 7), newBatch(100, 8)) {
		t.Error("two seeds gave the same batch")
	}
	if !slices.Equal(newBatch(100, 7), newBatch(200, 7)[:100]) {
		t.Error("a longer batch does not begin as a shorter one")
	}
}

// The mean of a bounded Pareto distribution is known; and its tail is heavy: here
// the largest tenth of the jobs takes about half of the tokens.
func TestJobsAreBoundedAndHeavyTailed(t *testing.T) {
	jobs := newBatch(20_000, 1)
	for i, j := range jobs {
		if j.id != i || j.tokens < smallestJob || j.tokens > largestJob {
			t.Fatalf("job %d is %+v", i, j)
		}
	}
	if mean := float64(sum(jobs)) / float64(len(jobs)); mean < 1660 || mean > 1790 {
		t.Errorf("the mean is %.0f tokens, want about 1,725", mean)
	}
	slices.SortFunc(jobs, func(a, b job) int { return int(b.tokens - a.tokens) })
	if share := float64(sum(jobs[:len(jobs)/10])) / float64(sum(jobs)); share < 0.4 || share > 0.6 {
		t.Errorf("the largest tenth takes %.2f of all", share)
	}
}

func TestTheQuantilesRunFromTheSmallestToTheLargest(t *testing.T) {
	if got := boundedPareto(0); got != smallestJob {
		t.Errorf("quantile 0 is %d", got)
	}
	if got := boundedPareto(1); got != largestJob {
		t.Errorf("quantile 1 is %d", got)
	}
	for u := 0.0; u < 0.99; u += 0.01 {
		if boundedPareto(u) > boundedPareto(u+0.01) {
			t.Errorf("quantile %.2f is above the next", u)
		}
	}
}
