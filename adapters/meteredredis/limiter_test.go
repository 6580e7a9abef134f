package meteredredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

func TestHundredGoroutinesCostOneCall(t *testing.T) {
	c := connect(t)
	sent := new(calls)
	c.AddHook(sent)
	l := limiter(t, c, Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1e9), bucket.PerMinute(bucket.Tokens, 1e12)}})
	take(t, l, "k").Settle(one())
	before := sent.n.Load()
	var wg sync.WaitGroup
	const rounds, goroutines = 50, 100
	for range goroutines {
		wg.Go(func() {
			for range rounds {
				g := take(t, l, "k")
				g.Served()
				g.Settle(bucket.Cost{Requests: 1, InputTokens: 5})
			}
		})
	}
	wg.Wait()
	if n := sent.n.Load() - before; n > rounds*goroutines/10 {
		t.Errorf("%d calls of the store for %d takes", n, rounds*goroutines)
	}
}

// Contract 4: first in, first out within a process, and a call that comes again keeps its place. One call is out
// at a time, so that the order in which they are noted is the one in which they left.
func TestOrderWithinAProcess(t *testing.T) {
	l := limiter(t, connect(t), Config{MaxInFlight: 1, Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 200, Per: time.Second, Burst: 1}}})
	first := take(t, l, "k")
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	wait := func(ctx context.Context, i int) {
		s, _ := l.Stats("k")
		before := s.Queued
		wg.Go(func() {
			g, err := l.Acquire(ctx, "k", one())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			g.Settle(one())
		})
		eventually(t, "it waits", func() bool { s, _ := l.Stats("k"); return s.Queued > before })
	}
	for i := range 20 {
		wait(context.Background(), i)
	}
	wait(bucket.WithPlace(context.Background(), first.Place()), -1)
	first.Settle(one())
	wg.Wait()
	if !slices.IsSorted(order) || len(order) != 21 {
		t.Errorf("left in the order %v", order)
	}
}

// Contract 6.
func TestNoDoomedWaiting(t *testing.T) {
	l := limiter(t, connect(t), Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}, MaxWait: -1, MaxQueue: 2})
	g, err := l.Acquire(context.Background(), "k", bucket.Cost{Requests: 60})
	if err != nil {
		t.Fatal(err)
	}
	g.Settle(bucket.Cost{Requests: 60})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	start := time.Now()
	_, err = l.Acquire(ctx, "k", bucket.Cost{Requests: 30})
	var wait *bucket.WaitError
	if !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) || wait.Wait < 25*time.Second || wait.Wait > 30*time.Second || wait.Unit != bucket.Requests {
		t.Errorf("%v, %+v", err, wait)
	}
	if time.Since(start) > 10*time.Second {
		t.Error("it waited for its refusal")
	}
	if s, _ := l.Stats("k"); s.Queued != 0 || s.Levels[0].Available < 0 {
		t.Errorf("it has left something behind: %+v", s)
	}
	// A full queue, and a cancelled wait that takes nothing.
	waiting, stop := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, err := l.Acquire(waiting, "k", bucket.Cost{Requests: 60})
			if !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
				t.Errorf("cancelled: %v", err)
			}
		})
	}
	eventually(t, "two wait", func() bool { s, _ := l.Stats("k"); return s.Queued == 2 })
	if _, err := l.Acquire(context.Background(), "k", one()); !errors.Is(err, bucket.ErrQueueFull) {
		t.Errorf("a third: %v", err)
	}
	stop(errWhy)
	wg.Wait()
	if s, _ := l.Stats("k"); s.Queued != 0 || s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
	if _, err := l.Acquire(context.Background(), "k", bucket.Cost{Requests: -1}); err == nil {
		t.Error("a negative cost is no error")
	}
}

var errWhy = errors.New("because")

func TestOversizeAndSlots(t *testing.T) {
	c := connect(t)
	l := limiter(t, c, Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}, Oversize: bucket.OversizeRefuse, MaxInFlight: 2})
	var big *bucket.OversizeError
	if _, err := l.Acquire(context.Background(), "k", bucket.Cost{InputTokens: 1500}); !errors.As(err, &big) || big.Capacity != 1000 || big.Cost != 1500 {
		t.Errorf("%v", err)
	}
	a, b := take(t, l, "k"), take(t, l, "k")
	got := make(chan bucket.Grant)
	go func() { got <- take(t, l, "k") }()
	eventually(t, "the third waits", func() bool { s, _ := l.Stats("k"); return s.Queued == 1 && s.InFlight == 2 })
	a.Settle(one())
	(<-got).Settle(one())
	b.Settle(one())
	b.Settle(one()) // stale
	if s, _ := l.Stats("k"); s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
	debt := limiter(t, c, Config{Prefix: t.Name() + "debt", Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}, MaxWait: -1})
	g, err := debt.Acquire(context.Background(), "k", bucket.Cost{InputTokens: 1500})
	if err != nil {
		t.Fatal(err)
	}
	g.Settle(bucket.Cost{InputTokens: 1500})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var wait *bucket.WaitError
	if _, err := debt.Acquire(ctx, "k", bucket.Cost{InputTokens: 1}); !errors.As(err, &wait) || wait.Wait < 25*time.Second || wait.Wait > 31*time.Second {
		t.Errorf("after a debt of 500 of 1000 a minute: %v", err)
	}
}

// A settlement reaches the store also when nothing else is to be said.
func TestSettlementsArrive(t *testing.T) {
	c := connect(t)
	config := Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 600)}}
	l, other := limiter(t, c, config), limiter(t, c, config)
	g, err := l.Acquire(context.Background(), "k", bucket.Cost{InputTokens: 600})
	if err != nil {
		t.Fatal(err)
	}
	g.Settle(bucket.Cost{InputTokens: 100})
	level := func() float64 {
		take(t, other, "k").Cancel()
		s, _ := other.Stats("k")
		return s.Levels[0].Available
	}
	eventually(t, "500 come back", func() bool { return level() >= 500 })
	g, err = l.Acquire(context.Background(), "k", bucket.Cost{InputTokens: 100})
	if err != nil {
		t.Fatal(err)
	}
	g.Settle(bucket.Cost{InputTokens: 1000})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	eventually(t, "900 more are owed", func() bool {
		_, err := other.Acquire(ctx, "k", bucket.Cost{InputTokens: 200})
		return errors.Is(err, context.DeadlineExceeded)
	})
}

// A 429 anywhere is known everywhere, and one process probes at its end.
func TestARefusalIsKnownEverywhere(t *testing.T) {
	c := connect(t)
	config := Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 10000, Per: time.Second, Burst: 10}}}
	ls := []*Limiter{limiter(t, c, config), limiter(t, c, config), limiter(t, c, config)}
	for _, l := range ls {
		take(t, l, "k").Settle(one())
	}
	const hold = 500 * time.Millisecond
	refused := time.Now()
	take(t, ls[0], "k").Refused(hold)
	eventually(t, "the store knows", func() bool {
		return c.HLen(context.Background(), ls[0].peek("k").name).Val() > 0 && ls[0].HeldFor("k") > 0
	})
	eventually(t, "the others know", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		g, err := ls[1].Acquire(ctx, "k", one())
		g.Cancel()
		return err != nil
	})
	var mu sync.Mutex
	var at []time.Time
	flying, most := 0, 0
	var wg sync.WaitGroup
	for _, l := range ls {
		for range 10 {
			wg.Go(func() {
				g := take(t, l, "k")
				mu.Lock()
				at = append(at, time.Now())
				flying++
				if len(at) <= 1 {
					most = max(most, flying)
				}
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
				mu.Lock()
				flying--
				mu.Unlock()
				g.Served()
				g.Settle(one())
			})
		}
	}
	wg.Wait()
	slices.SortFunc(at, time.Time.Compare)
	if early := at[0].Sub(refused); early < hold {
		t.Errorf("somebody left %v after the refusal, %v before the hold ends", early, hold-early)
	}
	if second := at[1].Sub(at[0]); second < 15*time.Millisecond {
		t.Errorf("the second left %v after the first, which had no answer yet", second)
	}
}

func TestStatsAndHolds(t *testing.T) {
	l := limiter(t, connect(t), Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
	if _, ok := l.Stats("k"); ok || l.HeldFor("k") != 0 {
		t.Error("a key that was never used is known")
	}
	g := take(t, l, "k")
	s, ok := l.Stats("k")
	if !ok || s.InFlight != 1 || len(s.Levels) != 1 || s.Levels[0].Capacity != 60 || s.Levels[0].Available > 59.5 || s.OldestSlot <= 0 {
		t.Errorf("%+v", s)
	}
	g.Settle(one())
	l.Hold("k", time.Now().Add(time.Hour))
	l.Hold("k", time.Now().Add(time.Minute))
	if held := l.HeldFor("k"); held < 59*time.Minute || held > time.Hour {
		t.Errorf("held for %v", held)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	eventually(t, "nobody is admitted", func() bool {
		_, err := l.Acquire(ctx, "k", one())
		var wait *bucket.WaitError
		return errors.As(err, &wait) && wait.Wait > 50*time.Minute
	})
}

func TestReportsCorrectTheLevel(t *testing.T) {
	c := connect(t)
	config := Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 100), bucket.PerMinute(bucket.Tokens, 1000)}}
	l := limiter(t, c, config)
	g := take(t, l, "k")
	g.Report(bucket.Meter{Unit: bucket.Requests, Limit: 100, Remaining: 5}, bucket.Meter{Unit: bucket.Tokens, Limit: 1000, Remaining: 0},
		bucket.Meter{Unit: bucket.InputTokens, Limit: 1, Remaining: 1})
	g.Served()
	g.Settle(one())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	eventually(t, "no tokens are left", func() bool {
		_, err := l.Acquire(ctx, "k", bucket.Cost{Requests: 1, InputTokens: 500})
		var wait *bucket.WaitError
		return errors.As(err, &wait) && wait.Unit == bucket.Tokens
	})
}

func TestKeysAreForgotten(t *testing.T) {
	l := limiter(t, connect(t), Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 100)}, MaxKeys: 10})
	held := take(t, l, "held")
	for i := range 200 {
		take(t, l, fmt.Sprint(i)).Settle(one())
	}
	time.Sleep(2 * linger)
	for i := range 20 {
		take(t, l, fmt.Sprint("later ", i)).Settle(one())
	}
	if n := len(l.all()); n > 40 {
		t.Errorf("%d keys are remembered, of at most 10 that are idle", n)
	}
	if l.peek("held") == nil {
		t.Error("a key with a call in flight was forgotten")
	}
	held.Settle(one())
}

func TestCloseEndsWaits(t *testing.T) {
	l := limiter(t, connect(t), Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}, MaxWait: -1})
	g := take(t, l, "k")
	failed := make(chan error)
	go func() { _, err := l.Acquire(context.Background(), "k", one()); failed <- err }()
	eventually(t, "it waits", func() bool { s, _ := l.Stats("k"); return s.Queued == 1 })
	l.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := l.Acquire(context.Background(), "k", one()); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	g.Settle(one())
	g.Refused(time.Second)
	l.Close()
}
