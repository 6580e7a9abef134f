package bucket_test

import (
	"context"
	"math/big"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

// pers are spans that divide well, badly and not at all.
var pers = []time.Duration{time.Second, time.Minute, 7 * time.Second, 333 * time.Millisecond, 24 * time.Hour, 1001}

func drawTokenBucket(rt *rapid.T, unit bucket.Unit) bucket.Limit {
	return bucket.Limit{
		Unit:   unit,
		Amount: rapid.Int64Range(1, 120).Draw(rt, "amount"),
		Per:    rapid.SampledFrom(pers).Draw(rt, "per"),
		Burst:  rapid.SampledFrom([]int64{0, 0, 1, 3, 10, 150}).Draw(rt, "burst"),
	}
}

func capacityOf(l bucket.Limit) int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Amount
}

func newLocal(t interface{ Fatal(...any) }, cfg bucket.Config) *bucket.Local {
	local, err := bucket.New(cfg)
	if err != nil {
		t.Fatal("New:", err)
	}
	return local
}

// admission is a line of the log that the worst-window properties are counted on.
type admission struct {
	at   time.Duration
	cost int64
}

// gap draws the time between two attempts: none, a nanosecond, about one token's time, or a long idle.
func gap(rt *rapid.T, l bucket.Limit) time.Duration {
	token := max(l.Per/time.Duration(l.Amount), 1)
	return rapid.SampledFrom([]time.Duration{
		0, 0, 1, token - 1, token, token + 1, 3*token + 1, l.Per / 2, l.Per - 1, l.Per, l.Per + 1, 100 * l.Per,
	}).Draw(rt, "gap")
}

// The brute force: over every pair of admissions, what lies between them, both included, is at most
// Burst + rate * distance; every attempt is taken exactly when the exact level covers it, and the wait that
// a refused attempt is told is exact to the nanosecond.
//
// Proved able to fail: refill for dt+1 in cell.refill; drop the clamp at the brim; round the wait down in
// cell.reach, or one up.
func TestContract01_EveryWindowAdmitsAtMostBurstPlusRate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := drawTokenBucket(rt, bucket.Requests)
		local := newLocal(rt, bucket.Config{Limits: []bucket.Limit{limit}})
		model := newRefMeter(limit, big.NewRat(1, 1))
		base := time.Now()
		var log []admission
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(rt, "attempts") {
			now += gap(rt, limit)
			cost := rapid.Int64Range(1, capacityOf(limit)).Draw(rt, "cost")
			_, wait := local.TakeAt(base.Add(now), theKey, bucket.Cost{Requests: cost})
			if fits := model.fits(cost, now); fits != (wait == 0) {
				rt.Fatalf("%+v: at %v a take of %d: wait %v, but the level is %v", limit, now, cost, wait, model.levelAt(now).FloatString(9))
			}
			if wait == 0 {
				model.charge(cost, now)
				log = append(log, admission{now, cost})
				continue
			}
			if !model.fits(cost, now+wait) || model.fits(cost, now+wait-1) {
				rt.Fatalf("%+v: at %v a take of %d is told to wait %v, not the earliest instant", limit, now, cost, wait)
			}
		}
		checkWindows(rt, limit, log)
	})
}

// checkWindows counts every window that starts and ends at an admission.
func checkWindows(rt *rapid.T, limit bucket.Limit, log []admission) {
	rt.Helper()
	for i := range log {
		sum := int64(0)
		for j := i; j < len(log); j++ {
			sum += log[j].cost
			w := log[j].at - log[i].at
			most := big.NewRat(limit.Amount, int64(limit.Per))
			most.Mul(most, rat(int64(w)))
			most.Add(most, rat(capacityOf(limit)))
			if rat(sum).Cmp(most) > 0 {
				rt.Fatalf("%+v: %d admitted in a window of %v, at most %s may be", limit, sum, w, most.FloatString(3))
			}
			if stated := limit.WorstWindow(w); sum > stated {
				rt.Fatalf("%+v: %d admitted in a window of %v, WorstWindow states %d", limit, sum, w, stated)
			}
		}
	}
}

// A greedy client reaches what WorstWindow states, so it is no looser than it must be. (Not with a capacity
// of one: while a client that can act on whole nanoseconds only rounds up, the brim cuts the fraction off.)
//
// Proved able to fail: let WorstWindow return one more, or one less.
func TestContract01_WorstWindowIsReachedByAGreedyClient(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := drawTokenBucket(rt, bucket.Requests)
		if capacityOf(limit) == 1 {
			limit.Burst = 2
		}
		d := time.Duration(rapid.Int64Range(0, int64(3*limit.Per)).Draw(rt, "window"))
		local := newLocal(rt, bucket.Config{Limits: []bucket.Limit{limit}})
		base := time.Now()
		taken, now := int64(0), time.Duration(0)
		stated := limit.WorstWindow(d)
		for now <= d && taken <= stated {
			_, wait := local.TakeAt(base.Add(now), theKey, bucket.Cost{Requests: 1})
			if wait == 0 {
				taken++
			}
			now += wait
		}
		if taken != stated {
			rt.Fatalf("%+v: a greedy client takes %d within %v, WorstWindow states %d", limit, taken, d, stated)
		}
	})
}

// The same count on the log of a whole queue: what left overdue or oversize is counted apart, and a window
// may hold more only by what was given back inside it.
//
// Proved able to fail: let cell.refund fill above the brim; refill for dt+1.
func TestContract01_AQueueAdmitsNoMoreThanTheBucket(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := bucket.Limit{Unit: bucket.Requests, Amount: rapid.Int64Range(1, 30).Draw(rt, "amount"), Per: 10 * time.Second,
			Burst: rapid.Int64Range(0, 40).Draw(rt, "burst")}
		cfg := bucket.Config{Limits: []bucket.Limit{limit}, MaxWait: 4 * time.Second}
		top := capacityOf(limit)
		steps, _, end := drawSchedule(rt, cfg, mix{
			steps: 40, end: time.Minute,
			pace:  []time.Duration{0, 0, 0, 10 * time.Millisecond, time.Second, 10 * time.Second},
			verbs: []verb{arrive, arrive, arrive, arrive, giveUp, served, settle, unsent},
			costs: func(rt *rapid.T) bucket.Cost {
				return bucket.Cost{Requests: rapid.Int64Range(1, top+top/4).Draw(rt, "cost")}
			},
			truth: func(rt *rapid.T, c bucket.Cost) bucket.Cost {
				return bucket.Cost{Requests: rapid.Int64Range(0, 2*c.Requests).Draw(rt, "truth")}
			},
		})
		p := play(t, cfg, steps, end)
		var regular, given []admission
		ended := map[int]bool{}
		cost := map[int]int64{}
		for _, s := range steps {
			f := p.fates[s.call]
			switch s.verb {
			case arrive:
				cost[s.call] = s.cost.Requests
				if f.what == "granted" && s.cost.Requests <= top {
					regular = append(regular, admission{f.at, s.cost.Requests})
				}
			case settle, unsent:
				if back := cost[s.call] - s.cost.Requests; back > 0 && !ended[s.call] {
					given = append(given, admission{s.at, back})
				}
				ended[s.call] = true
			}
		}
		var faults []string
		for _, a := range regular {
			for _, b := range regular {
				if b.at < a.at {
					continue
				}
				sum, back := int64(0), int64(0)
				for _, x := range regular {
					if a.at <= x.at && x.at <= b.at {
						sum += x.cost
					}
				}
				for _, x := range given {
					if a.at <= x.at && x.at <= b.at {
						back += x.cost
					}
				}
				most := new(big.Rat).Mul(big.NewRat(limit.Amount, int64(limit.Per)), rat(int64(b.at-a.at)))
				most.Add(most, rat(top+back))
				if rat(sum).Cmp(most) > 0 {
					faults = append(faults, "admitted "+rat(sum).RatString()+" between "+a.at.String()+" and "+b.at.String()+", at most "+most.FloatString(3))
				}
			}
		}
		tell(rt, cfg, steps, faults)
	})
}

// rpm 60, full; 20 at 0 s leaves 40; at 10 s 50, take 30 leaves 20; at 30 s 40.
//
// Proved able to fail: start the cell empty, or one token over the brim.
func TestContract01_WorkedExampleOfRPM60(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
		take := func(n int64) {
			t.Helper()
			if _, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: n}); err != nil {
				t.Fatal(err)
			}
		}
		level := func(want float64) {
			t.Helper()
			s, ok := local.Stats(theKey)
			if !ok || len(s.Levels) != 1 || !closeTo([]float64{s.Levels[0].Available}, []float64{want}) {
				t.Fatalf("stats %+v (%v), want a level of %v", s, ok, want)
			}
		}
		take(20)
		level(40)
		time.Sleep(10 * time.Second)
		level(50)
		take(30)
		level(20)
		time.Sleep(20 * time.Second)
		level(40)
		if time.Sleep(time.Hour); true { // idle time earns nothing past the brim
			take(60)
			level(0)
		}
	})
}

// The known trap: a bucket that anchors its last refill at the moment it became full banks all idle time,
// and rpm 60 after one idle hour lets 3,660 through in one instant.
//
// Proved able to fail: leave c.at where it was when the level reaches the brim.
func TestContract01_AnIdleHourEarnsNothing(t *testing.T) {
	for name, first := range map[string]int64{"untouched": 0, "emptied and refilled": 60, "barely touched": 1} {
		t.Run(name, func(t *testing.T) {
			local := newLocal(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
			now := time.Now()
			if first > 0 {
				local.TakeAt(now, theKey, bucket.Cost{Requests: first})
			}
			now = now.Add(time.Hour)
			taken := 0
			for range 5000 {
				if _, wait := local.TakeAt(now, theKey, bucket.Cost{Requests: 1}); wait == 0 {
					taken++
				}
			}
			if taken != 60 {
				t.Fatalf("%d taken in one instant, want 60", taken)
			}
		})
	}
}

// Nothing runs while nobody waits: no goroutine is left by grants, settlements, holds and waiters that left.
//
// Proved able to fail: start a goroutine for each key that is made.
func TestContract01_NothingRunsWhileNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
		before := runtime.NumGoroutine()
		for range 60 {
			g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
			if err != nil {
				t.Fatal(err)
			}
			g.Settle(bucket.Cost{Requests: 1})
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := local.Acquire(ctx, theKey, bucket.Cost{Requests: 1}); err == nil {
				t.Error("admitted from an empty bucket")
			}
		}()
		synctest.Wait()
		if n := runtime.NumGoroutine(); n != before+1 {
			t.Errorf("%d goroutines while one waits, want the waiter's own only (%d)", n, before+1)
		}
		cancel()
		<-done
		synctest.Wait()
		if n := runtime.NumGoroutine(); n != before {
			t.Errorf("%d goroutines while nobody waits, %d before", n, before)
		}
	})
}
