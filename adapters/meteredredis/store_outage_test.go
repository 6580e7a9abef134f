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
		Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60000)}, Timeout: 50 * time.Millisecond, Observer: told})
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

// The store crashes in the middle of a load and comes back empty: the joint rate holds, no call fails, and all
// is as it was afterwards.
func TestStoreCrashes(t *testing.T) {
	s := startServer(t)
	const rate, burst = 400, 20
	told := []*events{new(events), new(events), new(events)}
	a := new(admissions)
	stop := make(chan struct{})
	var waits []func() int64
	for _, e := range told {
		l := limiter(t, s.client(t), Config{Timeout: 100 * time.Millisecond, Observer: e, Processes: 3,
			Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: rate, Per: time.Second, Burst: burst}}})
		waits = append(waits, load(t, l, "k", 8, one(), a, stop))
	}
	time.Sleep(500 * time.Millisecond)
	s.kill()
	time.Sleep(1500 * time.Millisecond)
	s.start()
	for _, e := range told {
		eventually(t, "the store is back", func() bool { return e.count(middleware.StoreUp) == 1 })
	}
	time.Sleep(500 * time.Millisecond)
	close(stop)
	for _, wait := range waits {
		if n := wait(); n < rate/3 {
			t.Errorf("one of three was let go %d times", n)
		}
	}
	for _, e := range told {
		if e.count(middleware.StoreDown) != 1 || e.count(middleware.StoreUp) != 1 {
			t.Errorf("%d times down, %d times up", e.count(middleware.StoreDown), e.count(middleware.StoreUp))
		}
	}
	a.within(t, burst, rate, 150*time.Millisecond)
}

func TestFlushesInTheMiddle(t *testing.T) {
	needsServer(t)
	c := connect(t)
	const rate, burst = 400, 200
	a := new(admissions)
	stop := make(chan struct{})
	var waits []func() int64
	for range 3 {
		l := limiter(t, c, Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: rate, Per: time.Second, Burst: burst}}})
		waits = append(waits, load(t, l, "k", 8, one(), a, stop))
	}
	time.Sleep(time.Second)
	for range 5 {
		time.Sleep(100 * time.Millisecond)
		c.FlushAll(context.Background())
		c.ScriptFlush(context.Background())
	}
	close(stop)
	for _, wait := range waits {
		wait()
	}
	a.within(t, burst, rate, 150*time.Millisecond)
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

// The bucket of these tests is large beside its rate, so that a bucket that is full once too often, or for each
// process, shows against the slack of the clocks.
const (
	faultRate, faultBurst = 100, 200
	faultSlack            = 700 * time.Millisecond // a goroutine of a loaded machine may note late that it was let go
)

func faultLimits() []bucket.Limit {
	return []bucket.Limit{{Unit: bucket.Requests, Amount: faultRate, Per: time.Second, Burst: faultBurst}}
}

// The engine goes under load and comes back, as it was or empty: the joint admissions stay within the limit
// over the whole of it, no call fails, each process says so once, and afterwards the rate is what it was.
func TestJointRateOverAnOutage(t *testing.T) {
	for _, fault := range []struct {
		name         string
		down         time.Duration
		begin, ended func(*server)
	}{
		{"hangs", 1200 * time.Millisecond, (*server).pause, (*server).resume},
		{"hangs for long", 5 * time.Second, (*server).pause, (*server).resume},
		{"crashes", 1200 * time.Millisecond, (*server).kill, (*server).start},
		{"crashes for long", 5 * time.Second, (*server).kill, (*server).start},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			s := startServer(t)
			a, stop := new(admissions), make(chan struct{})
			var told []*events
			var waits []func() int64
			for range 3 {
				e := new(events)
				l := limiter(t, s.client(t), Config{Prefix: "p", Limits: faultLimits(), Timeout: 300 * time.Millisecond, Processes: 3, Observer: e})
				told, waits = append(told, e), append(waits, load(t, l, "k", 4, one(), a, stop))
			}
			time.Sleep(time.Second)
			fault.begin(s)
			time.Sleep(fault.down)
			fault.ended(s)
			for _, e := range told {
				eventually(t, "the store is back", func() bool { return e.count(middleware.StoreUp) == 1 })
			}
			back := time.Now()
			time.Sleep(3 * time.Second)
			after := a.since(back)
			close(stop)
			for _, wait := range waits {
				wait()
			}
			for _, e := range told {
				if down, up := e.count(middleware.StoreDown), e.count(middleware.StoreUp); down != 1 || up != 1 {
					t.Errorf("%d times down, %d times up", down, up)
				}
			}
			a.within(t, faultBurst, faultRate, faultSlack)
			if after < faultRate { // a third of what the limit gives
				t.Errorf("%d calls left in the 3 s after the store was back, at %d a second", after, faultRate)
			}
		})
	}
}
