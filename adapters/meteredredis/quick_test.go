package meteredredis

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
)

type counter struct{ n atomic.Int64 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.n.Add(1); return next(ctx, cmd) }
}
func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestQuick(t *testing.T) {
	addr, _ := startRedis(t)
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	calls := new(counter)
	c.AddHook(calls)
	l, err := New(c, Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1e9), bucket.PerMinute(bucket.Tokens, 1e12)}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if o := l.down.Load(); o != nil {
		t.Fatal(o.reason)
	}
	for _, workers := range []int{1, 64} {
		var wg sync.WaitGroup
		before := calls.n.Load()
		start := time.Now()
		const n = 20000
		var errs atomic.Int64
		for range workers {
			wg.Go(func() {
				for range n / workers {
					g, err := l.Acquire(context.Background(), "k", bucket.Cost{Requests: 1, InputTokens: 100})
					if err != nil {
						errs.Add(1)
						continue
					}
					g.Served()
					g.Settle(bucket.Cost{Requests: 1, InputTokens: 90})
				}
			})
		}
		wg.Wait()
		took := time.Since(start)
		t.Logf("%d workers: %v a take, %.4f calls a take, %d errors", workers, took/n, float64(calls.n.Load()-before)/n, errs.Load())
		s, _ := l.Stats("k")
		t.Logf("%+v", s)
	}
	if o := l.down.Load(); o != nil {
		t.Fatal(o.reason)
	}
	// a limit that binds
	l2, _ := New(c, Config{Prefix: "b", Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 1000, Per: time.Second, Burst: 10}}})
	defer l2.Close()
	before := calls.n.Load()
	start := time.Now()
	var wg sync.WaitGroup
	var got atomic.Int64
	for range 64 {
		wg.Go(func() {
			for time.Since(start) < 2*time.Second {
				g, err := l2.Acquire(context.Background(), "k", bucket.Cost{Requests: 1})
				if err != nil {
					t.Error(err)
					return
				}
				got.Add(1)
				g.Settle(bucket.Cost{Requests: 1})
			}
		})
	}
	wg.Wait()
	t.Logf("binding: %d in 2 s, %d calls", got.Load(), calls.n.Load()-before)
	r := c.HGetAll(context.Background(), nameOf("b", "k")).Val()
	t.Log(r, c.TTL(context.Background(), nameOf("b", "k")).Val())
}
