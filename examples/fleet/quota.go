package main

import (
	"fmt"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A quota is what a provider allows: so many requests and tokens per time, and so
// many of them at once.
type quota struct {
	requests, tokens             int64
	per                          time.Duration
	requestsAtOnce, tokensAtOnce int64
}

// The provider is some hundred milliseconds away and refuses fast, as real ones do.
const (
	up             = 10 * time.Millisecond  // until it decides
	servedLatency  = 250 * time.Millisecond // until a served answer is back
	refusedLatency = 20 * time.Millisecond  // until a refusal is
)

// time is per as it is read in a text.
func (q quota) time() string { return fmt.Sprintf("%g s", q.per.Seconds()) }

// provider returns one that meters by q and starts full.
func (q quota) provider(name string) *metertest.Provider {
	return metertest.New(metertest.Config{
		Name:           name,
		Requests:       q.requests,
		Tokens:         q.tokens,
		Per:            q.per,
		RequestBurst:   q.requestsAtOnce,
		TokenBurst:     q.tokensAtOnce,
		Up:             up,
		Latency:        servedLatency,
		RefusedLatency: refusedLatency,
	})
}

// limits are q as a client states them.
func (q quota) limits() []bucket.Limit {
	return []bucket.Limit{
		{Unit: bucket.Requests, Amount: q.requests, Per: q.per, Burst: q.requestsAtOnce},
		{Unit: bucket.Tokens, Amount: q.tokens, Per: q.per, Burst: q.tokensAtOnce},
	}
}

// leastMakespan is the least time in which anybody could get jobs served under q
// by so many workers, knowing everything: no batch ends before its workers have
// made their round trips, nor before the provider, full at the start, has refilled
// the rest, and the last answer has come back.
func leastMakespan(q quota, jobs []job, workers int) time.Duration {
	waves := (len(jobs) + workers - 1) / workers
	return max(
		time.Duration(waves)*servedLatency,
		refill(int64(len(jobs)), q.requestsAtOnce, q.requests, q.per)+servedLatency,
		refill(sum(jobs), q.tokensAtOnce, q.tokens, q.per)+servedLatency,
	)
}

// refill is how long a full bucket that holds atOnce needs until it has given
// total, at amount per time.
func refill(total, atOnce, amount int64, per time.Duration) time.Duration {
	return time.Duration(float64(max(total-atOnce, 0)) / float64(amount) * float64(per))
}
