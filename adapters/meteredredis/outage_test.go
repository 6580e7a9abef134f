package meteredredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// A refusal is a hold for this process at once, whichever of store and fallback let the call go, and for the
// others as soon as the store knows.
func TestRefusalsAcrossAnOutage(t *testing.T) {
	s := startServer(t)
	told := new(events)
	l := limiter(t, s.client(t), Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 6000)}, Observer: told})
	before := take(t, l, "k")
	other := take(t, l, "other")
	s.kill()
	eventually(t, "the store is away", func() bool { take(t, l, "k").Settle(one()); return l.down.Load() != nil })
	heldFor := func(key string) error {
		_, err := acquireWithin(l, key, 10*time.Second, one())
		var wait *bucket.WaitError
		if !errors.As(err, &wait) || wait.Wait < 50*time.Minute {
			return fmt.Errorf("key %s is not held: %v", key, err)
		}
		return nil
	}
	before.Refused(time.Hour) // let go by the store, refused while it is away
	soon(t, "the fallback", func() error { return heldFor("k") })
	during := take(t, l, "other")
	s.start()
	eventually(t, "the store is back", func() bool { return told.count(middleware.StoreUp) == 1 })
	during.Refused(time.Hour) // let go by the fallback, refused when the store is back
	soon(t, "the store", func() error { return heldFor("other") })
	fresh := limiter(t, s.client(t), Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 6000)}})
	for _, key := range []string{"k", "other"} {
		eventually(t, "another process is held too", func() bool {
			g, err := acquireWithin(fresh, key, 10*time.Second, one())
			g.Cancel()
			return errors.Is(err, context.DeadlineExceeded)
		})
	}
	other.Settle(one())
}

// A debt without bounds is no reason to leave the store.
func TestHugeDebts(t *testing.T) {
	told := new(events)
	l := limiter(t, connect(t), Config{MaxWait: -1, Observer: told, Limits: []bucket.Limit{{Unit: bucket.Tokens, Amount: 1, Per: time.Hour}}})
	for _, key := range []string{"acquired", "settled"} {
		cost := bucket.Cost{InputTokens: 1}
		if key == "acquired" {
			cost.InputTokens = 1<<63 - 1
		}
		g, err := l.Acquire(context.Background(), key, cost)
		if err != nil {
			t.Fatal(err)
		}
		g.Settle(bucket.Cost{InputTokens: 1<<63 - 1, OutputTokens: 1<<63 - 1})
		eventually(t, "it is owed", func() bool {
			_, err := acquireWithin(l, key, time.Minute, bucket.Cost{InputTokens: 1})
			return errors.Is(err, context.DeadlineExceeded)
		})
		cancel, gone := waitingFor(t, l, key, bucket.Cost{InputTokens: 1})
		cancel()
		<-gone
	}
	if o := l.down.Load(); o != nil || told.count(middleware.StoreDown) > 0 {
		t.Errorf("%+v", o)
	}
}

// More keys at once than there are connections, or goroutines that may hang.
func TestManyKeysAtOnce(t *testing.T) {
	told := new(events)
	l := limiter(t, connect(t), Config{Observer: told, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
	var wg sync.WaitGroup
	for i := range 3000 {
		wg.Go(func() { take(t, l, fmt.Sprint(i)).Settle(one()) })
	}
	wg.Wait()
	if e, ok := told.first(middleware.StoreDown); ok {
		t.Error(e.Err)
	}
}

// The share of a key that many use is not that of one that only this process uses.
func TestShareIsOfTheKeyWithMostProcesses(t *testing.T) {
	s := startServer(t)
	config := Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 100)}}
	l := limiter(t, s.client(t), config)
	for range 3 {
		take(t, limiter(t, s.client(t), config), "shared").Settle(one())
	}
	take(t, l, "shared").Settle(one())
	take(t, l, "own").Settle(one())
	if o := l.newOutage(errWhy, nil); o.share > 0.25 {
		t.Errorf("four draw on one of its keys, the share is %v", o.share)
		o.end()
	} else {
		o.end()
	}
}

// What somebody else has put into a budget's hash is that key's trouble alone.
func TestGarbageInAHash(t *testing.T) {
	needsServer(t)
	c := connect(t)
	told := new(events)
	l := limiter(t, c, Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60000)}, Observer: told})
	c.HSet(context.Background(), nameOf(t.Name(), "bad"), "h", "garbage")
	take(t, l, "bad").Settle(one())
	take(t, l, "good").Settle(one())
	eventually(t, "it is told", func() bool { return told.count(middleware.StoreDown) == 1 })
	if e, _ := told.first(middleware.StoreDown); e.Key != "bad" {
		t.Errorf("%+v", e)
	}
}

// An extra charge of a call of the store that was not answered is said again; a refund is not.
func TestWhatIsSaidAgain(t *testing.T) {
	b := newBudget(&Limiter{}, "k", limitsOf([]bucket.Limit{bucket.PerMinute(bucket.Tokens, 100)}, 1))
	out := &batch{ops: [][]string{{opRefund, "1", "5", "0"}, {opExtra, "1", "7"}, {opServed, "1"}, {opHold, "9"}}}
	b.restore(out, errTimeout)
	if b.batch == nil || len(b.batch.ops) != 2 || b.batch.ops[0][0] != opExtra || b.batch.ops[1][0] != opHold {
		t.Errorf("%+v", b.batch)
	}
	b.batch = nil
	b.restore(out, errors.New("LOADING Redis is loading the dataset in memory"))
	if b.batch == nil || len(b.batch.ops) != 4 {
		t.Errorf("%+v", b.batch)
	}
}

// Close does not wait for a client library that never answers.
func TestCloseIsBounded(t *testing.T) {
	c := connect(t)
	release := make(chan struct{})
	var hangs atomic.Bool
	c.AddHook(hookFunc(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if !hangs.Load() {
				return next(ctx, cmd)
			}
			<-release
			return errWhy
		}
	}))
	l := limiter(t, c, Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}, Timeout: 50 * time.Millisecond})
	var keys []bucket.Grant
	for i := range 500 {
		g, err := l.Acquire(context.Background(), fmt.Sprint(i), bucket.Cost{Requests: 2})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, g)
	}
	hangs.Store(true)
	for _, g := range keys {
		g.Settle(one())
	}
	soon(t, "Close", l.Close)
	close(release)
}
