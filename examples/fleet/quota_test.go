package main

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

func TestLeastMakespan(t *testing.T) {
	q := quota{requests: 10, tokens: 1000, per: time.Second, requestsAtOnce: 20, tokensAtOnce: 5000}
	equal := func(n int, tokens int64) []job {
		jobs := make([]job, n)
		for i := range jobs {
			jobs[i].tokens = tokens
		}
		return jobs
	}
	for _, c := range []struct {
		name    string
		jobs    []job
		workers int
		want    time.Duration
	}{
		{"one round trip, if all fits at once", equal(20, 10), 20, servedLatency},
		{"a round trip for each wave of workers", equal(20, 10), 3, 7 * servedLatency},
		{"the requests that must refill", equal(50, 10), 50, 3*time.Second + servedLatency},
		{"the tokens that must refill", equal(20, 500), 20, 5*time.Second + servedLatency},
		{"the slower of the two", equal(100, 140), 100, 9*time.Second + servedLatency},
		{"the workers, if they are slower than both", equal(50, 10), 1, 50 * servedLatency},
	} {
		if got := leastMakespan(q, c.jobs, c.workers); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A client that knows everything, each call leaving at the instant when the
// provider can just admit it, is done in the least makespan and refused nothing; a
// client that leaves a little sooner is refused.
func TestNobodyIsFasterThanTheLeastMakespan(t *testing.T) {
	jobs := newBatch(400, 3)
	least := leastMakespan(raceQuota, jobs, len(jobs))
	for _, c := range []struct {
		name  string
		early time.Duration
		fails bool
	}{
		{"on time", -time.Microsecond, false},
		{"a millisecond early", time.Millisecond, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := raceQuota.provider("api")
			rt := p.Transport()
			began := time.Now()
			done := make(chan time.Time, len(jobs))
			for i, j := range jobs {
				due := max(
					refill(int64(i+1), raceQuota.requestsAtOnce, raceQuota.requests, raceQuota.per),
					refill(sum(jobs[:i+1]), raceQuota.tokensAtOnce, raceQuota.tokens, raceQuota.per),
				)
				if due > 0 { // the first are at once in any case: the provider's clock is theirs
					due -= c.early
				}
				go func() {
					time.Sleep(due)
					send(t.Context(), &http.Client{Transport: rt}, "http://api.test", j)
					done <- time.Now()
				}()
			}
			var ended time.Time
			for range jobs {
				ended = <-done
			}
			if refused := p.Refused() > 0; refused != c.fails {
				t.Errorf("%s: %d refused", c.name, p.Refused())
			}
			if took := ended.Sub(began); !c.fails && (took < least || took > least+time.Millisecond) {
				t.Errorf("%s: done in %v, the least is %v", c.name, took, least)
			}
		})
	}
}

// What the client is told is what the provider enforces.
func TestTheClientIsToldTheProvidersLimits(t *testing.T) {
	for _, q := range []quota{raceQuota, failoverQuota} {
		for _, l := range q.limits() {
			if err := l.Validate(); err != nil {
				t.Errorf("%+v: %v", l, err)
			}
		}
		if err := (metertest.Config{Requests: q.requests, Tokens: q.tokens, Per: q.per, RequestBurst: q.requestsAtOnce, TokenBurst: q.tokensAtOnce}).Validate(); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
		if q.limits()[0].WorstWindow(q.per) != q.requests+q.requestsAtOnce || q.limits()[1].WorstWindow(q.per) != q.tokens+q.tokensAtOnce {
			t.Errorf("%+v states %+v", q, q.limits())
		}
	}
}
