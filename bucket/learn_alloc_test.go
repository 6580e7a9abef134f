package bucket_test

import (
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Whoever need not wait allocates nothing, also where the limit was learned and is reported on.
//
// Proved able to fail: make a new meter for each report.
func TestALearnedLimitAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, m := range map[string]bucket.Meter{
		"bucket": {Unit: bucket.Requests, Limit: 1 << 40, Remaining: 1 << 39, Reset: time.Second, Refills: true},
		"window": {Unit: bucket.Requests, Limit: 1 << 40, Remaining: 1 << 39, Reset: time.Hour, Per: 2 * time.Hour},
	} {
		local := newLocal(t, adaptive())
		once := func() {
			g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
			if err != nil {
				t.Fatal(err)
			}
			g.Report(m)
			g.Served()
			g.Settle(bucket.Cost{Requests: 1})
		}
		once()
		if n := testing.AllocsPerRun(1000, once); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
