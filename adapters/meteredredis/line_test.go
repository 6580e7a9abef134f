package meteredredis

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// waitingFor starts a call of cost, waits until the store has told it to wait, and returns how it is
// cancelled and what became of it.
func waitingFor(t testing.TB, l *Limiter, key string, cost bucket.Cost) (context.CancelFunc, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() {
		g, err := l.Acquire(ctx, key, cost)
		g.Cancel()
		done <- err
	}()
	eventually(t, "it is told to wait", func() bool {
		b := l.peek(key)
		if b == nil {
			return false
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.line) > 0 && b.blocked.After(time.Now())
	})
	return cancel, done
}

// soon fails if f takes anything like the minutes that what it waits for would take by itself.
func soon(t testing.TB, what string, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-ctx.Done():
		t.Errorf("%s: not within 20 s", what)
	}
}

// Contract 4: a cancelled head leaves no trace: whom it kept back leaves at once, in its process and in the others.
func TestACancelledHeadLeavesNoTrace(t *testing.T) {
	c := connect(t)
	config := Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 10), {Unit: bucket.Tokens, Amount: 100, Per: time.Hour}}, MaxWait: -1}
	l, other := limiter(t, c, config), limiter(t, c, config)
	g, err := l.Acquire(context.Background(), "k", bucket.Cost{Requests: 1, InputTokens: 50})
	if err != nil {
		t.Fatal(err)
	}
	g.Settle(bucket.Cost{Requests: 1, InputTokens: 50})
	big, small := bucket.Cost{Requests: 1, InputTokens: 100}, bucket.Cost{Requests: 1, InputTokens: 10}

	// In its process.
	cancel, gone := waitingFor(t, l, "k", big)
	behind := make(chan error, 1)
	go func() {
		g, err := l.Acquire(context.Background(), "k", small)
		g.Cancel()
		behind <- err
	}()
	eventually(t, "two wait", func() bool { s, _ := l.Stats("k"); return s.Queued == 2 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	soon(t, "the one behind it", func() error { return <-behind })

	// In another.
	cancel, gone = waitingFor(t, l, "k", big)
	cancel()
	<-gone
	soon(t, "another process's call, after the older head has gone", func() error {
		g, err := acquireWithin(other, "k", 15*time.Second, small)
		g.Cancel()
		return err
	})
}

func acquireWithin(l *Limiter, key string, d time.Duration, cost bucket.Cost) (bucket.Grant, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return l.Acquire(ctx, key, cost)
}

// Contract 6 goes for windows too: what fits into one again only after the deadline is refused at once.
func TestNoDoomedWaitingForAWindow(t *testing.T) {
	l := limiter(t, connect(t), Config{MaxWait: -1,
		Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 10, Per: time.Hour, Shape: bucket.Window}}})
	g, err := l.Acquire(context.Background(), "k", bucket.Cost{Requests: 8})
	if err != nil {
		t.Fatal(err)
	}
	g.Settle(bucket.Cost{Requests: 8})
	soon(t, "the refusal", func() error {
		_, err := acquireWithin(l, "k", time.Minute, bucket.Cost{Requests: 5})
		var wait *bucket.WaitError
		if !errors.As(err, &wait) || wait.Unit != bucket.Requests || wait.Wait < 59*time.Minute || wait.Wait > time.Hour+time.Minute {
			return fmt.Errorf("not refused as it should: %v", err)
		}
		return nil
	})
	soon(t, "what fits", func() error {
		g, err := acquireWithin(l, "k", time.Minute, bucket.Cost{Requests: 2})
		g.Cancel()
		return err
	})
}

// Contract 4 between processes: what one gives back, another's head does not sleep through.
func TestWhatAnotherProcessGivesBack(t *testing.T) {
	c := connect(t)
	config := Config{Limits: []bucket.Limit{{Unit: bucket.Tokens, Amount: 100, Per: time.Hour}}, MaxWait: -1}
	l, other := limiter(t, c, config), limiter(t, c, config)
	g, err := l.Acquire(context.Background(), "k", bucket.Cost{InputTokens: 100})
	if err != nil {
		t.Fatal(err)
	}
	_, waits := waitingFor(t, other, "k", bucket.Cost{InputTokens: 50})
	g.Settle(bucket.Cost{InputTokens: 10})
	soon(t, "the other process's head", func() error { return <-waits })
}

// Who has waited for longer than MaxWait may leave now, and not some time ago.
//
// Proved able to fail: let departs return when the patience ended.
func TestNobodyDepartsInThePast(t *testing.T) {
	limits := limitsOf([]bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}, 1)
	b := newBudget(&Limiter{config: Config{MaxWait: time.Second}}, "k", limits)
	now := time.Now()
	w := &waiter{arrived: now.Add(-time.Minute), shares: []int64{1}}
	if at, _ := b.departs(w, []float64{1000}, now); !at.Equal(now) {
		t.Errorf("departs at %v, now is %v", at, now)
	}
}
