package bucket

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// forecast is what departs said of one call in line, and what became of it.
type forecast struct {
	cost         Cost
	said, left   int64
	since        int64
	probe, heavy bool
}

// play lets calls arrive on one key, one after another, with every probe served at once, and
// compares what departs says on arrival with what happens.
func play(t *testing.T, c Config, settled int64, hold time.Duration, arrivals []time.Duration, costs []Cost) (all []*forecast) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		g, _ := l.Acquire(t.Context(), "k", Cost{})
		g.Served()
		g.Settle(Cost{InputTokens: settled})
		if hold > 0 {
			l.Hold("k", time.Now().Add(hold))
		}
		for i, cost := range costs {
			time.Sleep(arrivals[i])
			synctest.Wait()
			a, _ := l.open("k")
			now := a.tick(l.now())
			f := &forecast{cost: cost, left: -1, since: a.hold.unheld(now)}
			for _, e := range a.line.heap {
				f.heavy = f.heavy || a.heavy(e.w.cost)
			}
			f.said, _ = a.departs(now, cost, Place{at: never}, f.since)
			a.mu.Unlock()
			all = append(all, f)
			go func() {
				g, err := l.Acquire(t.Context(), "k", cost)
				if err != nil {
					return
				}
				f.left, f.probe = l.now(), g.Overdue()
				g.Served()
			}()
			synctest.Wait()
		}
		time.Sleep(200 * time.Hour)
		synctest.Wait()
	})
	return all
}

func TestDepartsNeverSaysTooLate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var c Config
		for range rapid.IntRange(1, 3).Draw(rt, "limits") {
			l := Limit{
				Unit:   Tokens,
				Amount: rapid.Int64Range(1, 30).Draw(rt, "amount"),
				Per:    time.Duration(rapid.IntRange(1, 90).Draw(rt, "per")) * time.Second,
				Shape:  Shape(rapid.IntRange(0, 1).Draw(rt, "shape")),
			}
			if l.Shape == TokenBucket {
				l.Burst = rapid.Int64Range(0, 30).Draw(rt, "burst")
			}
			c.Limits = append(c.Limits, l)
		}
		c.MaxWait = rapid.SampledFrom([]time.Duration{-1, 0, 5 * time.Second}).Draw(rt, "max wait")
		settled := rapid.Int64Range(0, 60).Draw(rt, "settled")
		hold := time.Duration(rapid.IntRange(0, 40).Draw(rt, "hold")) * time.Second
		n := rapid.IntRange(1, 15).Draw(rt, "n")
		arrivals := make([]time.Duration, n)
		costs := make([]Cost, n)
		for i := range n {
			arrivals[i] = time.Duration(rapid.IntRange(0, 9).Draw(rt, "gap")) * time.Second
			costs[i] = Cost{InputTokens: rapid.Int64Range(0, 40).Draw(rt, "cost")}
		}
		all := play(t, c, settled, hold, arrivals, costs)
		for i, f := range all {
			if f.left < 0 {
				rt.Fatalf("call %d never left", i)
			}
			if f.said > f.left {
				rt.Fatalf("call %d left at %v, before the bound of %v (probe %v)", i, time.Duration(f.left), time.Duration(f.said), f.probe)
			}
		}
		if len(c.Limits) > 1 || hold > 0 {
			return // a ramp takes its own time
		}
		l := c.Limits[0]
		fits := 0
		for i, f := range all {
			if f.cost.InputTokens > l.capacity() {
				return
			}
			fits++
			if f.said < f.left && !f.heavy && !f.probe && f.said > 0 && settled <= l.capacity() && l.Shape == TokenBucket {
				rt.Fatalf("call %d left at %v; the bound of %v is not exact", i, time.Duration(f.left), time.Duration(f.said))
			}
		}
	})
}

// Lines that leave on debt, kept from failures of the property above: what is late for those who
// leave on a level is not late for a probe, nor for those behind one.
func TestDepartsKnowsOfProbes(t *testing.T) {
	for name, tt := range map[string]struct {
		limits []Limit
		costs  []int64
	}{
		"an oversize call leaves debt to a light one": {
			limits: []Limit{{Unit: Tokens, Amount: 1, Per: time.Second, Shape: Window}, {Unit: Tokens, Amount: 1, Per: time.Second, Burst: 2}},
			costs:  []int64{1, 31, 2, 0, 1},
		},
		"a window fills twice over": {
			limits: []Limit{{Unit: Tokens, Amount: 1, Per: 5 * time.Second}, {Unit: Tokens, Amount: 3, Per: 90 * time.Second, Shape: Window}},
			costs:  []int64{4, 1, 22},
		},
	} {
		t.Run(name, func(t *testing.T) {
			costs := make([]Cost, len(tt.costs))
			for i, n := range tt.costs {
				costs[i].InputTokens = n
			}
			probes := 0
			for i, f := range play(t, Config{Limits: tt.limits}, 0, 0, make([]time.Duration, len(costs)), costs) {
				if f.said > f.left {
					t.Errorf("call %d left at %v, before the bound of %v", i, time.Duration(f.left), time.Duration(f.said))
				}
				if f.probe {
					probes++
				}
			}
			if probes == 0 {
				t.Error("nobody left on debt")
			}
		})
	}
}

func TestDoomedCallsAreRefusedAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name     string
		limits   []Limit
		hold     time.Duration
		ahead    []Cost
		own      Cost
		within   time.Duration // the wait that is just not too long
		unit     Unit
		maxWait  time.Duration
		overdues bool
	}{
		{name: "first in line", limits: []Limit{PerMinute(Requests, 6)}, own: Cost{Requests: 1}, within: 10 * time.Second},
		{name: "behind others", limits: []Limit{PerMinute(Tokens, 60)}, ahead: []Cost{{InputTokens: 5}, {OutputTokens: 3}},
			own: Cost{InputTokens: 1, OutputTokens: 1}, within: 10 * time.Second, unit: Tokens},
		{name: "the tighter limit binds", limits: []Limit{PerMinute(Requests, 60), PerMinute(OutputTokens, 10)},
			own: Cost{Requests: 2, OutputTokens: 3}, within: 18 * time.Second, unit: OutputTokens},
		{name: "a hold binds", limits: []Limit{PerMinute(Tokens, 60)}, hold: 5 * time.Second, own: Cost{InputTokens: 1}, within: 5 * time.Second},
		{name: "overdue before its level", limits: []Limit{PerMinute(Requests, 1)}, own: Cost{Requests: 1}, within: 30 * time.Second, overdues: true},
		{name: "never overdue", limits: []Limit{PerMinute(Requests, 1)}, own: Cost{Requests: 1}, within: time.Minute, maxWait: -1},
		{name: "a line that moves is not overdue", limits: []Limit{PerMinute(Requests, 3)}, ahead: []Cost{{Requests: 1}, {Requests: 1}},
			own: Cost{Requests: 1}, within: time.Minute},
		{name: "window", limits: []Limit{{Unit: Requests, Amount: 5, Per: 10 * time.Second, Shape: Window}}, ahead: []Cost{{Requests: 3}},
			own: Cost{Requests: 2}, within: 10 * time.Second},
		{name: "second round of a window", limits: []Limit{{Unit: Requests, Amount: 5, Per: 10 * time.Second, Shape: Window}}, ahead: []Cost{{Requests: 3}},
			own: Cost{Requests: 3}, within: 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, slack := range []time.Duration{-1, 0} {
				synctest.Test(t, func(t *testing.T) {
					l, err := New(Config{Limits: tt.limits, MaxWait: tt.maxWait})
					if err != nil {
						t.Fatal(err)
					}
					for _, limit := range tt.limits { // empty it
						cost := Cost{}
						switch limit.Unit {
						case Requests:
							cost.Requests = limit.Amount
						default:
							cost.OutputTokens = limit.Amount
						}
						l.TakeAt(time.Now(), "k", cost)
					}
					if tt.hold > 0 {
						l.Hold("k", time.Now().Add(tt.hold))
					}
					ctx, cancel := context.WithCancel(t.Context())
					for _, cost := range tt.ahead {
						go func() {
							if g, err := l.Acquire(ctx, "k", cost); err == nil {
								g.Served()
							}
						}()
						synctest.Wait()
					}
					start := time.Now()
					limited, stop := context.WithDeadline(ctx, start.Add(tt.within+slack))
					defer stop()
					before, _ := l.Stats("k")
					_, err = l.Acquire(limited, "k", tt.own)
					var wait *WaitError
					switch {
					case slack < 0:
						if !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) || wait.Key != "k" {
							t.Fatalf("err = %v", err)
						}
						if time.Since(start) != 0 {
							t.Errorf("refused after %v", time.Since(start))
						}
						if wait.Unit != tt.unit || wait.Wait != tt.within {
							t.Errorf("%v of %v, want %v of %v", wait.Wait, wait.Unit, tt.within, tt.unit)
						}
						if after, _ := l.Stats("k"); !slices.Equal(after.Levels, before.Levels) || after.Queued != before.Queued {
							t.Errorf("something was taken: %+v, before %+v", after, before)
						}
					case time.Since(start) != tt.within: // granted or not: both are due at the same instant
						t.Errorf("left after %v, want %v (%v)", time.Since(start), tt.within, err)
					}
					cancel()
					synctest.Wait()
				})
			}
		})
	}
}

func TestDoomedWaiterLeavesWhenItIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{Limits: []Limit{PerMinute(Requests, 6)}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		l.TakeAt(start, "k", Cost{Requests: 6})
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		type result struct {
			at  time.Duration
			err error
		}
		got := make(chan result, 1)
		go func() {
			_, err := l.Acquire(ctx, "k", Cost{Requests: 1})
			got <- result{time.Since(start), err}
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		l.Hold("k", start.Add(20*time.Second))
		synctest.Wait()
		r := <-got
		var wait *WaitError
		if !errors.As(r.err, &wait) || r.at != time.Second || wait.Wait != 19*time.Second {
			t.Errorf("%v after %v", r.err, r.at)
		}
		if s, _ := l.Stats("k"); s.Queued != 0 {
			t.Errorf("%+v", s)
		}
	})
}
