package bucket

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func many(n int, c Cost) []Cost { return slices.Repeat([]Cost{c}, n) }

func TestPlanOfABucket(t *testing.T) {
	f, err := Plan([]Limit{PerMinute(Requests, 600), PerMinute(Tokens, 1_000_000)}, Batch{
		Costs:   slices.Values(many(1000, Cost{Requests: 1, InputTokens: 100})),
		Workers: 50,
		Latency: 250 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	// 600 at once, as far as fifty workers go, and 400 more at ten a second.
	if want := 40*time.Second + 250*time.Millisecond; f.Takes != want {
		t.Errorf("takes %v, want %v", f.Takes, want)
	}
	if f.Binds != 0 || f.Jobs != 1000 || f.Total != (Cost{Requests: 1000, InputTokens: 100_000}) {
		t.Errorf("binds %d, jobs %d, total %v", f.Binds, f.Jobs, f.Total)
	}
	// While 3 s pass, 30 come back: the first that waits is the 631st or so.
	if l := f.Limits[0]; l.First < 600 || l.First > 640 || l.Held != 1000-l.First || f.Limits[1].First != -1 {
		t.Errorf("limits %+v", f.Limits)
	}
	if !slices.IsSorted(f.Tenths[:]) {
		t.Errorf("tenths %v", f.Tenths)
	}
}

func TestPlanBoundByWorkers(t *testing.T) {
	f, err := Plan([]Limit{PerMinute(Requests, 6000)}, Batch{
		Costs: slices.Values(many(100, Cost{Requests: 1})), Workers: 10, Latency: time.Second})
	if err != nil || f.Takes != 10*time.Second || f.Binds != -1 || f.Tenths[0] != time.Second {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestPlanShowsWhatADailyLimitCutsOff(t *testing.T) {
	const day = 24 * time.Hour
	f, err := Plan([]Limit{
		PerMinute(Requests, 60),
		{Unit: Requests, Amount: 1000, Per: day, Shape: Window},
	}, Batch{Costs: slices.Values(many(1500, Cost{Requests: 1}))})
	if err != nil {
		t.Fatal(err)
	}
	if l := f.Limits[1]; f.Binds != 1 || l.First != 1000 || l.FirstAt != day {
		t.Errorf("binds %d, daily %+v", f.Binds, l)
	}
}

func TestPlanOfNothing(t *testing.T) {
	f, err := Plan(nil, Batch{Costs: slices.Values([]Cost(nil))})
	if err != nil || f.Takes != 0 || f.Jobs != 0 || f.Binds != -1 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestPlanSaturates(t *testing.T) {
	f, err := Plan([]Limit{{Unit: Requests, Amount: 1, Per: math.MaxInt64, Shape: Window}},
		Batch{Costs: slices.Values(many(4, Cost{Requests: math.MaxInt64})), Latency: math.MaxInt64})
	if err != nil || f.Takes <= 0 || f.Total.Requests <= 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestPlanRefusesNonsense(t *testing.T) {
	costs := slices.Values(many(1, Cost{Requests: 1}))
	for _, c := range []struct {
		name   string
		limits []Limit
		batch  Batch
		want   string
	}{
		{"no costs", nil, Batch{}, "Costs is nil"},
		{"workers", nil, Batch{Costs: costs, Workers: -1}, "negative Workers"},
		{"latency", nil, Batch{Costs: costs, Latency: -1}, "negative Latency"},
		{"headroom", nil, Batch{Costs: costs, Headroom: 2}, "Headroom"},
		{"limit", []Limit{{Amount: -1, Per: 1}}, Batch{Costs: costs}, "negative Amount"},
		{"cost", nil, Batch{Costs: slices.Values([]Cost{{}, {InputTokens: -3}})}, "job 1"},
	} {
		if _, err := Plan(c.limits, c.batch); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// What is planned is what a Local does.
func TestPlanIsWhatALocalDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		shapes := rapid.SampledFrom([]Shape{TokenBucket, Window})
		limits := make([]Limit, rapid.IntRange(0, 3).Draw(rt, "limits"))
		for i := range limits {
			limits[i] = Limit{
				Unit:   rapid.SampledFrom([]Unit{Requests, Tokens, OutputTokens}).Draw(rt, "unit"),
				Amount: rapid.Int64Range(0, 40).Draw(rt, "amount"),
				Per:    time.Duration(rapid.Int64Range(1, 5).Draw(rt, "seconds")) * time.Second,
				Shape:  shapes.Draw(rt, "shape"),
			}
			if limits[i].Shape == TokenBucket && limits[i].Amount > 0 {
				limits[i].Burst = rapid.Int64Range(0, 20).Draw(rt, "burst")
			}
		}
		costs := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) Cost {
			n := rapid.Int64Range(0, 9)
			return Cost{n.Draw(rt, "requests"), n.Draw(rt, "input"), n.Draw(rt, "output")}
		}), 0, 30).Draw(rt, "costs")
		batch := Batch{
			Costs:    slices.Values(costs),
			Workers:  rapid.IntRange(1, 5).Draw(rt, "workers"),
			Latency:  time.Duration(rapid.Int64Range(0, 3000).Draw(rt, "latency")) * time.Millisecond,
			Headroom: rapid.SampledFrom([]float64{0, 0.5, 0.9, 1}).Draw(rt, "headroom"),
		}
		f, err := Plan(limits, batch)
		if err != nil {
			rt.Fatal(err)
		}
		synctest.Test(t, func(*testing.T) {
			l, err := New(Config{Limits: limits, Headroom: batch.Headroom, MaxWait: -1})
			if err != nil {
				rt.Fatal(err)
			}
			start, next := time.Now(), make(chan Cost)
			var wg sync.WaitGroup
			for range batch.Workers {
				wg.Go(func() {
					for cost := range next {
						g, err := l.Acquire(context.Background(), "", cost)
						if err != nil {
							rt.Error(err)
							return
						}
						time.Sleep(batch.Latency)
						g.Settle(cost)
					}
				})
			}
			for _, cost := range costs {
				next <- cost
				synctest.Wait() // it is in line before the next one
			}
			close(next)
			wg.Wait()
			if took := time.Since(start); took != f.Takes {
				rt.Errorf("planned %v, took %v", f.Takes, took)
			}
		})
	})
}
