package bench

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/adapters/meteredredis"
	"github.com/meteredhttp/meteredhttp/bucket"
)

// roundTrips counts what a client sends.
type roundTrips struct{ n atomic.Int64 }

func (r *roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.n.Add(1)
		return next(ctx, cmd)
	}
}

func (r *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.n.Add(1)
		return next(ctx, cmds)
	}
}

// redisServer starts a redis-server for the benchmark and returns a client of it.
func redisServer(b testing.TB) (*redis.Client, *roundTrips) {
	b.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skip("there is no redis-server on this machine")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	server := exec.Command(path, "--port", strconv.Itoa(addr.Port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", b.TempDir())
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: addr.String()})
	b.Cleanup(func() {
		client.Close()
		server.Process.Kill()
		server.Wait()
	})
	for range 500 {
		if client.Ping(b.Context()).Err() == nil {
			trips := new(roundTrips)
			client.AddHook(trips)
			return client, trips
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.Fatal("redis-server does not answer")
	return nil, nil
}

// BenchmarkRedis takes from one hot key on one redis-server: with redis_rate, which has one limit and a script
// call for each take, and with meteredredis, which checks two limits and settles each call for less than was
// taken. The limits never bind. Both run in turn on one server; x/redis_rate is the ratio of the times for one
// take.
func BenchmarkRedis(b *testing.B) {
	trips, theirs, ours := redisTakes(b)
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprintf("%d goroutines", workers), func(b *testing.B) {
			var times, sent [2]float64
			for i, take := range []func() error{theirs, ours} {
				before, start := trips.n.Load(), time.Now()
				spread(b, b.N, workers, take)
				times[i] = float64(time.Since(start).Nanoseconds()) / float64(b.N)
				sent[i] = float64(trips.n.Load()-before) / float64(b.N)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(times[0], "redis_rate-ns/take")
			b.ReportMetric(times[1], "ours-ns/take")
			b.ReportMetric(times[0]/times[1], "x-throughput")
			b.ReportMetric(sent[0], "redis_rate-trips/take")
			b.ReportMetric(sent[1], "ours-trips/take")
		})
	}
}

// redisTakes are a take of redis_rate and one of meteredredis, settled, on one redis-server.
func redisTakes(b testing.TB) (trips *roundTrips, theirs, ours func() error) {
	b.Helper()
	client, trips := redisServer(b)
	peer := redis_rate.NewLimiter(client)
	limiter, err := meteredredis.New(client, meteredredis.Config{
		Timeout: time.Second, // a loaded machine is no reason to measure the fallback
		Limits:  []bucket.Limit{bucket.PerMinute(bucket.Requests, 1e12), bucket.PerMinute(bucket.Tokens, 1e13)},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { limiter.Close() })
	ctx := context.Background()
	theirs = func() error {
		r, err := peer.Allow(ctx, "hot", redis_rate.Limit{Rate: 1e9, Burst: 1e9, Period: time.Second})
		if err == nil && r.Allowed == 0 {
			err = fmt.Errorf("refused")
		}
		return err
	}
	ours = func() error {
		g, err := limiter.Acquire(ctx, "hot", bucket.Cost{Requests: 1, InputTokens: 1000})
		if err == nil {
			g.Served()
			g.Settle(bucket.Cost{Requests: 1, InputTokens: 900})
		}
		return err
	}
	return trips, theirs, ours
}

// spread does n times do, on so many goroutines.
func spread(b testing.TB, n, workers int, do func() error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan error, workers)
	for range workers {
		go func() {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}
