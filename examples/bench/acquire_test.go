package bench

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// What a call takes. The limits are so wide that nothing ever waits.
const (
	manyRequests = 1e12 // per minute
	manyTokens   = 1e15

	origin = "https://api.example.com:443"
)

var callCost = bucket.Cost{Requests: 1, InputTokens: 250, OutputTokens: 500}

func twoLimits() bucket.Config {
	return bucket.Config{Limits: []bucket.Limit{
		bucket.PerMinute(bucket.Requests, manyRequests),
		bucket.PerMinute(bucket.Tokens, manyTokens),
	}}
}

func newLocal(tb testing.TB, c bucket.Config) *bucket.Local {
	tb.Helper()
	l, err := bucket.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// takeAndSettle is the least that a call asks of its bucket.
func takeAndSettle(tb testing.TB, l *bucket.Local, key string) func(n int) {
	ctx := context.Background()
	return func(n int) {
		for range n {
			g, err := l.Acquire(ctx, key, callCost)
			if err != nil || g.Waited() != 0 {
				tb.Errorf("Acquire waited %v, error %v", g.Waited(), err)
				return
			}
			g.Settle(callCost)
		}
	}
}

// takeReportAndSettle is what it asks when the answer says what is left.
func takeReportAndSettle(tb testing.TB, l *bucket.Local, key string) func(n int) {
	ctx := context.Background()
	return func(n int) {
		for range n {
			g, err := l.Acquire(ctx, key, callCost)
			if err != nil || g.Waited() != 0 {
				tb.Errorf("Acquire waited %v, error %v", g.Waited(), err)
				return
			}
			meters := [...]bucket.Meter{
				{Unit: bucket.Requests, Limit: manyRequests, Remaining: manyRequests - 1, Reset: 1, Refills: true},
				{Unit: bucket.Tokens, Limit: manyTokens, Remaining: manyTokens - 750, Reset: 1, Refills: true},
			}
			g.Report(meters[:]...)
			g.Served()
			g.Settle(callCost)
		}
	}
}

// BenchmarkAcquire is what an immediate grant costs, beside a pair of limiters of
// x/time/rate.
//
// x/peer is over Allow on both. x/clock is over AllowN on both with the clock read
// once, which is quicker, and which few write.
func BenchmarkAcquire(b *testing.B) {
	const block = 8192
	compare := func(b *testing.B, run func(n int), wrap func(func(n int)) func(n int)) {
		pair, oneClock := newPair(), newPair()
		ours := side{"ours", wrap(run)}
		ns := inTurns(b, block, ours,
			side{"peer", wrap(pair.allow)},
			side{"one clock", wrap(oneClock.allowAtOneInstant)})
		b.ReportMetric(ns[0], "ns/op")
		b.ReportMetric(ns[1], "peer-ns")
		b.ReportMetric(ns[0]/ns[1], "x/peer")
		b.ReportMetric(ns[0]/ns[2], "x/clock")
		reportAllocated(b, side{"ours", run})
	}
	b.Run("Settle/serial", func(b *testing.B) {
		compare(b, takeAndSettle(b, newLocal(b, twoLimits()), origin), serial)
	})
	b.Run("Settle/contended", func(b *testing.B) {
		compare(b, takeAndSettle(b, newLocal(b, twoLimits()), origin), contended)
	})
	b.Run("Report/serial", func(b *testing.B) {
		compare(b, takeReportAndSettle(b, newLocal(b, twoLimits()), origin), serial)
	})
	b.Run("Report/contended", func(b *testing.B) {
		compare(b, takeReportAndSettle(b, newLocal(b, twoLimits()), origin), contended)
	})
}

func serial(run func(n int)) func(n int) { return run }

// contended spreads the operations over a goroutine for each processor, as
// RunParallel does, all on one key. The goroutines begin and end with the block,
// so that one side never contends with the other.
func contended(run func(n int)) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		p := runtime.GOMAXPROCS(0)
		for i := range p {
			share := n / p
			if i < n%p {
				share++
			}
			wg.Go(func() { run(share) })
		}
		wg.Wait()
	}
}

// An immediate grant allocates nothing, whatever is said about it.
func TestImmediateGrantAllocatesNothing(t *testing.T) {
	for name, run := range map[string]func(n int){
		"Acquire, Settle":                 takeAndSettle(t, newLocal(t, twoLimits()), origin),
		"Acquire, Report, Served, Settle": takeReportAndSettle(t, newLocal(t, twoLimits()), origin),
	} {
		if n := testing.AllocsPerRun(1000, func() { run(1) }); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}
