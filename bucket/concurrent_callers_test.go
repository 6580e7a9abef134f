package bucket_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Callers on every goroutine at once, doing everything that can be done, in no drawn order: the contracts
// that can be counted without an order hold all the same, and nothing is left behind. Under the race
// detector this is the test of the locks.
//
// Proved able to fail: settle without the lock; count one slot more; use a record again under the same id.
func TestConcurrentCallersKeepTheCountableContracts(t *testing.T) {
	const slots, burst, callers, calls = 5, 40, 40, 30
	keys := []string{"a", "b", "c"}
	limit := bucket.Limit{Unit: bucket.Requests, Amount: 100, Per: 10 * time.Second, Burst: burst}
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxWait: -1, MaxInFlight: slots, Limits: []bucket.Limit{limit}})
		start := time.Now()
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			logs = map[string][]admission{}
			open = map[string]*atomic.Int64{}
		)
		for _, k := range keys {
			open[k] = new(atomic.Int64)
		}
		for caller := range callers {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(caller), 1))
				key := keys[caller%len(keys)]
				var place context.Context = t.Context()
				for range calls {
					ctx, cancel := context.WithTimeout(place, time.Duration(random.IntN(30_000))*time.Millisecond)
					cost := bucket.Cost{Requests: 1 + random.Int64N(3)}
					g, err := local.Acquire(ctx, key, cost)
					cancel()
					place = t.Context()
					if err != nil {
						continue
					}
					if n := open[key].Add(1); n > slots {
						t.Errorf("%d grants open on %s", n, key)
					}
					mu.Lock()
					logs[key] = append(logs[key], admission{time.Since(start), cost.Requests})
					mu.Unlock()
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
					open[key].Add(-1)
					switch random.IntN(8) {
					case 0:
						g.Refused(time.Duration(random.IntN(1000)) * time.Millisecond)
						place = bucket.WithPlace(t.Context(), g.Place())
					case 1: // never ended here, but by a copy elsewhere, twice
						done := make(chan struct{})
						go func() { g.Settle(cost); g.Settle(bucket.Cost{}); close(done) }()
						g.Settle(cost)
						<-done
					default:
						g.Served()
						g.Settle(cost)
						g.Cancel()
					}
				}
			})
		}
		wg.Go(func() { // an onlooker
			for range 200 {
				time.Sleep(100 * time.Millisecond)
				for _, k := range local.Keys() {
					s, ok := local.Stats(k)
					if ok && (s.InFlight > slots || len(s.Levels) == 1 && s.Levels[0].Available > burst) {
						t.Errorf("seen %+v", s)
					}
				}
			}
		})
		wg.Wait()
		synctest.Wait()
		for _, k := range keys {
			if s, ok := local.Stats(k); ok && (s.Queued != 0 || s.InFlight != 0) {
				t.Errorf("left behind: %+v", s)
			}
			log := logs[k]
			if len(log) == 0 {
				t.Errorf("nobody was admitted on %s", k)
			}
			for i, a := range log {
				sum := int64(0)
				for _, b := range log[i:] {
					sum += b.cost
					if w := b.at - a.at; sum > limit.WorstWindow(w) {
						t.Fatalf("%d admitted on %s within %v, at most %d may be", sum, k, w, limit.WorstWindow(w))
					}
				}
			}
		}
	})
}

// No allocation when a grant is immediate.
//
// Proved able to fail: keep no record for the next call.
func TestAnImmediateGrantAllocatesNothing(t *testing.T) {
	local := newLocal(t, bucket.Config{Limits: []bucket.Limit{
		bucket.PerMinute(bucket.Requests, 1<<40), bucket.PerMinute(bucket.Tokens, 1<<50)}})
	ctx, cost := context.Background(), bucket.Cost{Requests: 1, InputTokens: 100, OutputTokens: 20}
	if n := testing.AllocsPerRun(1000, func() {
		g, err := local.Acquire(ctx, theKey, cost)
		if err != nil {
			t.Fatal(err)
		}
		g.Served()
		g.Settle(cost)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
