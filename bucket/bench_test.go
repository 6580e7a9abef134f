package bucket_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// ample never binds: what is measured is the bookkeeping, not the wait.
func ample(tb testing.TB) *bucket.Local {
	tb.Helper()
	l, err := bucket.New(bucket.Config{Limits: []bucket.Limit{
		bucket.PerMinute(bucket.Requests, 1_000_000_000_000),
		bucket.PerMinute(bucket.Tokens, 1_000_000_000_000),
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

var one = bucket.Cost{Requests: 1, InputTokens: 70, OutputTokens: 30}

func BenchmarkAcquireSettle(b *testing.B) {
	ctx := context.Background()
	b.Run("serial", func(b *testing.B) {
		l := ample(b)
		b.ReportAllocs()
		for b.Loop() {
			g, err := l.Acquire(ctx, "https://api.example.com:443", one)
			if err != nil {
				b.Fatal(err)
			}
			g.Settle(one)
		}
	})
	b.Run("serial/refund", func(b *testing.B) {
		l := ample(b)
		used := bucket.Cost{Requests: 1, InputTokens: 70, OutputTokens: 10}
		b.ReportAllocs()
		for b.Loop() {
			g, err := l.Acquire(ctx, "https://api.example.com:443", one)
			if err != nil {
				b.Fatal(err)
			}
			g.Settle(used)
		}
	})
	b.Run("parallel/1key", func(b *testing.B) {
		l := ample(b)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				g, err := l.Acquire(ctx, "https://api.example.com:443", one)
				if err != nil {
					b.Error(err)
				}
				g.Settle(one)
			}
		})
	})
	b.Run("parallel/1000keys", func(b *testing.B) {
		l := ample(b)
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = "https://" + strconv.Itoa(i) + ".example.com:443"
		}
		var start atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := int(start.Add(7919)); pb.Next(); i++ {
				g, err := l.Acquire(ctx, keys[i%len(keys)], one)
				if err != nil {
					b.Error(err)
				}
				g.Settle(one)
			}
		})
	})
}

func BenchmarkReport(b *testing.B) {
	for _, open := range []int{0, 50, 1000} {
		b.Run(fmt.Sprintf("%dopen", open), func(b *testing.B) {
			ctx := context.Background()
			l := ample(b)
			older := make([]bucket.Grant, open)
			for i := range older {
				older[i], _ = l.Acquire(ctx, "k", one)
			}
			b.ReportAllocs()
			for b.Loop() {
				g, err := l.Acquire(ctx, "k", one)
				if err != nil {
					b.Fatal(err)
				}
				g.Report(
					bucket.Meter{Unit: bucket.Requests, Limit: -1, Remaining: 900_000_000},
					bucket.Meter{Unit: bucket.Tokens, Limit: -1, Remaining: 900_000_000},
				)
				g.Served()
				g.Settle(one)
			}
		})
	}
}

func BenchmarkNewKey(b *testing.B) {
	ctx := context.Background()
	l := ample(b)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		g, err := l.Acquire(ctx, strconv.Itoa(i), one)
		if err != nil {
			b.Fatal(err)
		}
		g.Settle(one)
	}
}

// BenchmarkCrowd has 100,000 goroutines wait on one key, then lets them all go at once: what a
// waiter weighs besides its goroutine, and what it takes to let one out.
func BenchmarkCrowd(b *testing.B) {
	const crowd = 100_000
	var bytes, nanos float64
	for b.Loop() {
		l, err := bucket.New(bucket.Config{Limits: []bucket.Limit{
			bucket.PerMinute(bucket.Requests, 1),
			bucket.PerMinute(bucket.Tokens, 1_000_000_000),
		}, MaxWait: -1})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		first, _ := l.Acquire(ctx, "k", one)

		var wg sync.WaitGroup
		start := make(chan struct{})
		for range crowd {
			wg.Go(func() {
				<-start
				g, err := l.Acquire(ctx, "k", one)
				if err != nil {
					b.Error(err)
				}
				g.Settle(one)
			})
		}
		before := weigh()
		close(start)
		for queued := 0; queued < crowd; runtime.Gosched() {
			s, _ := l.Stats("k")
			queued = s.Queued
		}
		bytes += float64(weigh()-before) / crowd

		begin := time.Now()
		if err := l.SetLimits("k", bucket.PerMinute(bucket.Requests, 1_000_000)); err != nil {
			b.Fatal(err)
		}
		first.Cancel()
		if err := l.SetLimits("k"); err != nil {
			b.Fatal(err)
		}
		wg.Wait()
		nanos += float64(time.Since(begin)) / crowd
		cancel()
	}
	b.ReportMetric(bytes/float64(b.N), "heapB/waiter")
	b.ReportMetric(nanos/float64(b.N), "ns/waiter")
	b.ReportMetric(0, "ns/op")
}

func weigh() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkPlan(b *testing.B) {
	limits := []bucket.Limit{bucket.PerMinute(bucket.Requests, 600), bucket.PerMinute(bucket.Tokens, 1_000_000)}
	jobs := slices.Repeat([]bucket.Cost{{Requests: 1, InputTokens: 1500}}, 100_000)
	for b.Loop() {
		if _, err := bucket.Plan(limits, bucket.Batch{Costs: slices.Values(jobs), Workers: 50, Latency: time.Second}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(jobs)), "ns/job")
}
