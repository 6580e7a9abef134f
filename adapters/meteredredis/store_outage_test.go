package meteredredis

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// field report J1: a store that hangs.
func TestStoreHangs(t *testing.T) {
	s := startServer(t)
	told := new(events)
	l := limiter(t, s.client(t), Config{
		Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60000)}, Timeout: 3 * time.Second, Observer: told})
	take(t, l, "k").Settle(one())
	s.pause()
	for range 20 {
		take(t, l, "k").Settle(one())
	}
	if told.count(middleware.StoreDown) != 1 {
		eventually(t, "it is told", func() bool { return told.count(middleware.StoreDown) == 1 })
	}
	if e, _ := told.first(middleware.StoreDown); e.Err == nil {
		t.Error("without a reason")
	}
	// A caller who goes does so at once, whatever the store does.
	s.resume()
	eventually(t, "it is there again", func() bool { take(t, l, "k").Settle(one()); return told.count(middleware.StoreUp) == 1 })
	if told.count(middleware.StoreDown) != 1 || told.count(middleware.StoreUp) != 1 {
		t.Errorf("%d times down, %d times up", told.count(middleware.StoreDown), told.count(middleware.StoreUp))
	}
}

func TestCancelDuringAStoreCall(t *testing.T) {
	s := startServer(t)
	l := limiter(t, s.client(t), Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}, Timeout: 20 * time.Second, MaxWait: -1})
	take(t, l, "k").Settle(one())
	s.pause()
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() { _, err := l.Acquire(ctx, "k", bucket.Cost{Requests: 50}); failed <- err }()
	time.Sleep(20 * time.Millisecond)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	s.resume()
	// What the call took after its caller had gone comes back.
	eventually(t, "all is back", func() bool {
		take(t, l, "k").Cancel()
		s, _ := l.Stats("k")
		return s.Levels[0].Available > 55
	})
}

// A store that is flushed under load has no full bucket: what it lets go is within the limit by its own clock, but for
// what the first one to declare the budget could not have heard of.
//
// Proved able to fail: with a declaration of full levels.
func TestFlushesInTheMiddle(t *testing.T) {
	s := startServer(t)
	const rate, burst, flushes = 400, 200, 5
	d := &decisions{name: nameOf(t.Name(), "k")}
	a, stop := new(admissions), make(chan struct{})
	var waits []func()
	for who := range int64(3) {
		c := s.client(t)
		d.hear(c, who)
		l := limiter(t, c, Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: rate, Per: time.Second, Burst: burst}}})
		take(t, l, "k").Settle(one()) // whoever does not know the budget cannot declare it
		waits = append(waits, load(t, l, "k", 8, a, stop))
	}
	eventually(t, "the bucket is empty", func() bool { return a.count() > burst })
	c := s.client(t)
	for range flushes {
		c.FlushAll(context.Background())
		c.ScriptFlush(context.Background())
		before := a.count()
		eventually(t, "calls leave", func() bool { return a.count() > before+rate/4 })
	}
	close(stop)
	for _, wait := range waits {
		wait()
	}
	unheard := d.unheard()
	d.within(t, burst, rate, float64(unheard), a.count())
	t.Logf("%d calls, %d flushes with %d calls unheard of", a.count(), flushes, unheard)
}

func TestOnStoreDown(t *testing.T) {
	dead := "127.0.0.1:1"
	for _, p := range []StoreDownPolicy{LocalShare, Open, Closed} {
		t.Run(p.String(), func(t *testing.T) {
			told := new(events)
			l := limiter(t, client(t, &redis.Options{Addr: dead, MaxRetries: -1, DialerRetries: 1}), Config{OnStoreDown: p, Observer: told, Processes: 2,
				Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 60, Per: time.Minute}}, MaxWait: -1, Timeout: 2 * time.Second})
			admitted := 0
			var last error
			for range 100 {
				ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
				g, err := l.Acquire(ctx, "k", one())
				cancel()
				if err != nil {
					last = err
					continue
				}
				admitted++
				g.Settle(one())
			}
			switch p {
			case LocalShare: // half of 60, less the margin
				if admitted < 27 || admitted > 31 || !errors.Is(last, context.DeadlineExceeded) {
					t.Errorf("%d admitted, %v", admitted, last)
				}
			case Open:
				if admitted != 100 {
					t.Errorf("%d admitted, %v", admitted, last)
				}
			case Closed:
				var store *StoreError
				if admitted != 0 || !errors.Is(last, ErrStoreDown) || !errors.As(last, &store) || store.Key != "k" || !store.Local() {
					t.Errorf("%d admitted, %v", admitted, last)
				}
				var op *net.OpError
				if !errors.As(last, &op) {
					t.Errorf("the reason is lost: %v", last)
				}
			}
			eventually(t, "it is told", func() bool { return told.count(middleware.StoreDown) == 1 })
		})
	}
}

// A client library that ignores contexts, panics or hangs does not hang the caller.
func TestHostileClient(t *testing.T) {
	for name, hook := range map[string]func(ctx context.Context, cmd redis.Cmder) error{
		"hangs": func(context.Context, redis.Cmder) error {
			time.Sleep(300 * time.Millisecond)
			return errors.New("late")
		},
		"panics": func(context.Context, redis.Cmder) error { panic("a bug") },
	} {
		t.Run(name, func(t *testing.T) {
			var hostile atomic.Bool
			c := connect(t)
			c.AddHook(hookFunc(func(next redis.ProcessHook) redis.ProcessHook {
				return func(ctx context.Context, cmd redis.Cmder) error {
					if hostile.Load() {
						return hook(ctx, cmd)
					}
					return next(ctx, cmd)
				}
			}))
			told := new(events)
			l := limiter(t, c, Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60000)}, Timeout: 100 * time.Millisecond, Observer: told})
			take(t, l, "k").Settle(one())
			hostile.Store(true)
			for range 10 {
				take(t, l, "k").Settle(one())
			}
			hostile.Store(false)
			eventually(t, "it is there again", func() bool { return told.count(middleware.StoreUp) > 0 })
			time.Sleep(400 * time.Millisecond) // what hangs comes back before the leaks are counted
		})
	}
}

type hookFunc func(redis.ProcessHook) redis.ProcessHook

func (hookFunc) DialHook(next redis.DialHook) redis.DialHook            { return next }
func (h hookFunc) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return h(next) }
func (hookFunc) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
