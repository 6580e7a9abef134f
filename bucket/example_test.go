package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

func Example() {
	l, err := bucket.New(bucket.Config{Limits: []bucket.Limit{
		bucket.PerMinute(bucket.Requests, 500),
		bucket.PerMinute(bucket.Tokens, 200_000),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}

	estimate := bucket.Cost{Requests: 1, InputTokens: 800, OutputTokens: 4000}
	g, err := l.Acquire(context.Background(), "api.example.com", estimate)
	if err != nil {
		fmt.Println(err) // nothing was taken
		return
	}
	// Send the call. At the headers of its answer:
	g.Served()
	// At the end of its body, which says what it used:
	g.Settle(bucket.Cost{Requests: 1, InputTokens: 811, OutputTokens: 350})

	s, _ := l.Stats("api.example.com")
	fmt.Println(s.InFlight, "in flight,", s.Queued, "waiting")
	// Output: 0 in flight, 0 waiting
}

func ExampleLocal_TakeAt() {
	l, _ := bucket.New(bucket.Config{Limits: []bucket.Limit{
		bucket.PerMinute(bucket.Requests, 60),
	}})
	start := time.Now()
	take := func(after time.Duration, n int64) {
		if _, wait := l.TakeAt(start.Add(after), "k", bucket.Cost{Requests: n}); wait > 0 {
			fmt.Printf("at %v: %d must wait %v\n", after, n, wait)
		} else {
			fmt.Printf("at %v: took %d\n", after, n)
		}
	}
	take(0, 20)
	take(10*time.Second, 30)
	take(10*time.Second, 30)
	take(20*time.Second, 30)
	take(time.Hour, 61) // more than it ever holds: from full, into debt
	take(time.Hour, 1)
	// Output:
	// at 0s: took 20
	// at 10s: took 30
	// at 10s: 30 must wait 10s
	// at 20s: took 30
	// at 1h0m0s: took 61
	// at 1h0m0s: 1 must wait 2s
}

func ExampleLimit_WorstWindow() {
	tokenBucket := bucket.PerMinute(bucket.Requests, 600)
	small := bucket.Limit{Unit: bucket.Requests, Amount: 600, Per: time.Minute, Burst: 10}
	window := bucket.Limit{Unit: bucket.Requests, Amount: 600, Per: time.Minute, Shape: bucket.Window}

	fmt.Println("a second:", tokenBucket.WorstWindow(time.Second), small.WorstWindow(time.Second), window.WorstWindow(time.Second))
	fmt.Println("a minute:", tokenBucket.WorstWindow(time.Minute), small.WorstWindow(time.Minute), window.WorstWindow(time.Minute))
	// Output:
	// a second: 610 20 600
	// a minute: 1200 610 600
}

func ExampleWaitError() {
	l, _ := bucket.New(bucket.Config{Limits: []bucket.Limit{
		bucket.PerMinute(bucket.Requests, 3),
	}})
	for range 3 {
		l.Acquire(context.Background(), "k", bucket.Cost{Requests: 1})
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	start := time.Now()
	_, err := l.Acquire(ctx, "k", bucket.Cost{Requests: 1})

	var late *bucket.WaitError
	fmt.Println("too late:", errors.As(err, &late), "a deadline:", errors.Is(err, context.DeadlineExceeded))
	fmt.Println("at once:", time.Since(start) < 5*time.Second, "wait:", late.Wait.Round(time.Second), "for", late.Unit)
	// Output:
	// too late: true a deadline: true
	// at once: true wait: 20s for requests
}

func ExampleGrant_Refused() {
	l, _ := bucket.New(bucket.Config{})
	start := time.Now()
	const key = "api.example.com"

	g, _ := l.Acquire(context.Background(), key, bucket.Cost{Requests: 1})
	g.Refused(10 * time.Second) // 429, Retry-After: 10

	_, wait := l.TakeAt(time.Now(), key, bucket.Cost{Requests: 1})
	fmt.Println("held:", wait.Round(time.Second))

	// After the hold one call leaves; the next ones wait until it is served.
	after := start.Add(11 * time.Second)
	first, wait := l.TakeAt(after, key, bucket.Cost{Requests: 1})
	fmt.Println("first:", wait == 0)
	_, wait = l.TakeAt(after, key, bucket.Cost{Requests: 1})
	fmt.Println("second:", wait == 0)
	first.Served()
	_, wait = l.TakeAt(after, key, bucket.Cost{Requests: 1})
	fmt.Println("second, once the first is served:", wait == 0)
	// Output:
	// held: 10s
	// first: true
	// second: false
	// second, once the first is served: true
}

func ExampleGrant_Report() {
	l, _ := bucket.New(bucket.Config{Limits: []bucket.Limit{
		bucket.PerMinute(bucket.Tokens, 100_000),
	}})
	start := time.Now()
	first, _ := l.TakeAt(start, "k", bucket.Cost{InputTokens: 1000})
	l.TakeAt(start, "k", bucket.Cost{InputTokens: 2000})

	// The answer to the first call says that 40,000 are left: somebody else draws on the quota.
	// The server cannot know of the second call yet.
	first.Report(bucket.Meter{Unit: bucket.Tokens, Limit: 100_000, Remaining: 40_000})

	s, _ := l.Stats("k")
	fmt.Printf("%.0f thousand\n", s.Levels[0].Available/1000)
	// Output: 38 thousand
}

func ExampleWithPlace() {
	l, _ := bucket.New(bucket.Config{MaxInFlight: 1})
	ctx := context.Background()
	g, _ := l.Acquire(ctx, "k", bucket.Cost{Requests: 1})
	// Others come and wait. The call is refused, and stands first in line when it comes again.
	g.Refused(0)
	again, _ := l.Acquire(bucket.WithPlace(ctx, g.Place()), "k", bucket.Cost{Requests: 1})
	fmt.Println(again.Place() == g.Place())
	// Output: true
}

// How long will ten thousand summaries take, and what holds them up?
func ExamplePlan() {
	jobs := slices.Repeat([]bucket.Cost{{Requests: 1, InputTokens: 1500, OutputTokens: 500}}, 10_000)
	f, err := bucket.Plan([]bucket.Limit{
		bucket.PerMinute(bucket.Requests, 3_000),
		bucket.PerMinute(bucket.Tokens, 1_000_000),
	}, bucket.Batch{Costs: slices.Values(jobs), Workers: 100, Latency: 2 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("takes", f.Takes.Round(time.Second))
	fmt.Println("half done after", f.Tenths[4].Round(time.Second))
	fmt.Println("binds:", f.Limits[f.Binds].Limit.Unit)
	// Output:
	// takes 19m2s
	// half done after 9m2s
	// binds: tokens
}
