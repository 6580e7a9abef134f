package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/adapters/meteredredis"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// workerEnv makes this program a worker; it holds the orders, in JSON.
const workerEnv = "METERED_REDIS_WORKER"

// orders are what a worker is told.
type orders struct {
	Provider   string
	Redis      string // "" for a limiter of its own
	Prefix     string
	Processes  int
	Goroutines int
	Span       time.Duration
	Limit      bucket.Limit
}

// A report is what a worker tells at its end.
type report struct {
	Sent, Served, Refused, Failed int64
	P50, P99, Max                 time.Duration // of the calls
	Down, Up                      int           // times that the store went, and came back
	Error                         string        // of the last call that failed
}

// work is the worker as a function, and returns its exit status.
func work(ctx context.Context, text string, stdout, stderr io.Writer) int {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(stderr, "worker: orders:", err)
		return 2
	}
	r, err := o.carryOut(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "worker:", err)
		return 1
	}
	if err := json.NewEncoder(stdout).Encode(r); err != nil {
		return 1
	}
	return 0
}

// carryOut calls the provider on all goroutines until the time is over.
func (o orders) carryOut(ctx context.Context) (report, error) {
	var r report
	var mu sync.Mutex // of r and trips
	var trips []time.Duration
	observer := middleware.ObserverFunc(func(_ context.Context, e middleware.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e.Kind {
		case middleware.Sent:
			r.Sent++
		case middleware.Refused:
			r.Refused++
		case middleware.StoreDown:
			r.Down++
		case middleware.StoreUp:
			r.Up++
		}
	})
	config := middleware.Config{Observer: observer}
	if o.Redis == "" {
		config.Bucket = bucket.Config{Limits: []bucket.Limit{o.Limit}} // with a Stack's own headroom
	} else {
		options, err := redis.ParseURL(o.Redis)
		if err != nil {
			return r, err
		}
		redis.SetLogger(silent{}) // of the connections that fail while the engine is away
		client := redis.NewClient(options)
		defer client.Close()
		limiter, err := meteredredis.New(client, meteredredis.Config{
			Limits: []bucket.Limit{o.Limit}, Headroom: middleware.DefaultHeadroom,
			Prefix: o.Prefix, Processes: o.Processes, Observer: observer,
		})
		if err != nil {
			return r, err
		}
		defer limiter.Close()
		config.Limiter = limiter
	}
	stack, err := middleware.New(config)
	if err != nil {
		return r, err
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = o.Goroutines
	client := &http.Client{Transport: stack.Transport(base)}
	defer client.CloseIdleConnections()

	end := time.Now().Add(o.Span)
	var wg sync.WaitGroup
	for range o.Goroutines {
		wg.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				began := time.Now()
				status, err := call(ctx, client, o.Provider)
				took := time.Since(began)
				mu.Lock()
				trips = append(trips, took)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					r.Failed++
					r.Error = err.Error()
				case status == http.StatusOK:
					r.Served++
				default:
					r.Failed++
					r.Error = fmt.Sprintf("status %d after all retries", status)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if slices.Sort(trips); len(trips) > 0 {
		r.P50, r.P99, r.Max = trips[len(trips)/2], trips[len(trips)*99/100], trips[len(trips)-1]
	}
	return r, ctx.Err()
}

func call(ctx context.Context, client *http.Client, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"model":"m"}`))
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
