package meteredredis

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// An admission is a call that was let go at some instant between two, which is all that its caller can know: a
// goroutine of a loaded machine may run late on either side of it.
type admission struct {
	from, to time.Time
	cost     int64
	back     int64     // what came back of what was charged, after it had left
	heard    time.Time // when it had come back at the latest; zero if that is not known
}

// admissions are those of a test, over all its limiters.
type admissions struct {
	mu  sync.Mutex
	all []admission
}

func (a *admissions) add(c admission) {
	a.mu.Lock()
	a.all = append(a.all, c)
	a.mu.Unlock()
}

func (a *admissions) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

// within holds the admissions against a bucket: those that lie wholly in a span of time are no more than burst, what
// the rate gives in it, what came back in it of calls before, and beyond. How late a goroutine runs does not
// matter; what is beyond the limit by fewer calls than are made at once may not show.
func (a *admissions) within(t testing.TB, burst int, rate, beyond float64) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) == 0 {
		return
	}
	type span struct{ from, to, cost, back, heard float64 }
	start := a.all[0].from
	var all []span
	for _, c := range a.all {
		at := func(then time.Time) float64 { return then.Sub(start).Seconds() }
		s := span{at(c.from), at(c.to), float64(c.cost), float64(c.back), math.Inf(1)}
		if !c.heard.IsZero() {
			s.heard = at(c.heard)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y span) int { return cmp.Compare(x.to, y.to) })
	worst := 0.0
	for _, first := range all {
		from, over := first.from, -float64(burst)
		for _, c := range all {
			if c.from < from && from < c.heard {
				over -= c.back
			}
			if c.from >= from {
				over += c.cost
				worst = max(worst, over-rate*(c.to-from))
			}
		}
	}
	if worst > beyond+1 {
		t.Errorf("%d admissions go %.1f beyond the limit, allowed is %.1f", len(all), worst, beyond)
	}
}

// load takes from key on so many goroutines until stop is closed, and returns a function that waits for them.
func load(t testing.TB, l *Limiter, key string, goroutines int, a *admissions, stop <-chan struct{}) func() {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-stop; cancel() }()
	for range goroutines {
		wg.Go(func() {
			for {
				from := time.Now()
				g, err := l.Acquire(ctx, key, one())
				if ctx.Err() != nil {
					g.Cancel()
					return
				}
				if err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				a.add(admission{from: from, to: time.Now(), cost: 1})
				g.Served()
				g.Settle(one())
			}
		})
	}
	return wg.Wait
}

// A decision is what a store said to one process, at an instant of its own clock.
type decision struct {
	who, at, epoch, granted int64
}

// decisions are those on one budget, in order: exact, however late anybody hears of them.
type decisions struct {
	name string
	mu   sync.Mutex
	all  []decision
}

// hear notes what is said on a client.
func (d *decisions) hear(c *redis.Client, who int64) {
	c.AddHook(hookFunc(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			err := next(ctx, cmd)
			if c, ok := cmd.(once); ok && err == nil && len(c.Val()) > 5 && c.Args()[3] == d.name {
				d.mu.Lock()
				d.all = append(d.all, decision{who: who, at: c.Val()[5], epoch: c.Val()[4], granted: c.Val()[0]})
				d.mu.Unlock()
			}
			return err
		}
	}))
}

// within holds the decisions against a bucket, of which so many calls left: what else was let go has come back,
// of those whose context had ended, and could be let go again.
func (d *decisions) within(t testing.TB, burst int, rate, beyond float64, left int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortStableFunc(d.all, func(x, y decision) int { return cmp.Compare(x.at, y.at) })
	level, last, worst, granted := float64(burst), int64(0), 0.0, 0
	for _, c := range d.all {
		level = min(level+rate*float64(c.at-last)/1e6, float64(burst)) - float64(c.granted)
		last = c.at
		worst = min(worst, level)
		granted += int(c.granted)
	}
	if left > granted {
		t.Errorf("%d calls left, of %d that the store let go", left, granted)
	}
	if beyond += float64(granted - left); -worst > beyond+1e-3 {
		t.Errorf("%d admissions go %.3f beyond the limit, allowed is %.1f", granted, -worst, beyond)
	}
}

// unheard is what those who were the first to declare a lost budget had not heard of: what others took since the store
// had spoken to them last.
func (d *decisions) unheard() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortStableFunc(d.all, func(x, y decision) int { return cmp.Compare(x.at, y.at) })
	for i := 1; i < len(d.all); i++ {
		if d.all[i].epoch == d.all[i-1].epoch {
			continue
		}
		for k := i - 1; k >= 0 && d.all[k].who != d.all[i].who; k-- {
			n += int(d.all[k].granted)
		}
	}
	return n
}
