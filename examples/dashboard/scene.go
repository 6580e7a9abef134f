package main

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// The keys of the scene.
const (
	wrong = "limit ten times too high"
	paced = "paced from the start"
	held  = "held now and then"
	quiet = "quiet"
)

// A scene is a Stack over providers that meter each key on its own.
type scene struct {
	stack     *middleware.Stack
	local     *bucket.Local
	providers map[string]*metertest.Provider
	storm     middleware.Stats // when the wrong limit was put right; zero before
}

const rate = 20 // requests a second that each provider serves

func limits(rate int64) []bucket.Limit {
	return []bucket.Limit{
		{Unit: bucket.Requests, Amount: rate, Per: time.Second, Burst: rate},
		bucket.PerMinute(bucket.Tokens, 600_000),
	}
}

func newScene() (*scene, error) {
	s := &scene{providers: map[string]*metertest.Provider{}}
	for _, key := range []string{wrong, paced, held, quiet} {
		s.providers[key] = metertest.New(metertest.Config{Requests: rate, Per: time.Second, Latency: 60 * time.Millisecond})
	}
	var err error
	s.local, err = bucket.New(bucket.Config{
		Limits:   limits(rate),
		Headroom: 0.9,
		LimitsFor: func(key string) []bucket.Limit {
			if key == wrong {
				return limits(10 * rate)
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	s.stack, err = middleware.New(middleware.Config{
		Limiter: s.local,
		Ladder:  retryafter.Policy{RespectRetryAfter: true, DefaultDelay: time.Second, MaxDelay: 10 * time.Second, MaxRetries: 5, Jitter: 100 * time.Millisecond},
		Pace: middleware.PaceConfig{
			Key: func(r *http.Request) string { return r.Header.Get("X-Key") },
			Cost: func(*http.Request) (bucket.Cost, error) {
				return bucket.Cost{Requests: 1, InputTokens: 300, OutputTokens: 150}, nil
			},
		},
	})
	return s, err
}

// RoundTrip leads a request to the provider of its key.
func (s *scene) RoundTrip(r *http.Request) (*http.Response, error) {
	return s.providers[r.Header.Get("X-Key")].Transport().RoundTrip(r)
}

// run calls all keys until ctx ends; after half of span the wrong limit is put right.
func (s *scene) run(ctx context.Context, span time.Duration) {
	client := &http.Client{Transport: s.stack.Transport(s)}
	var wg sync.WaitGroup
	for key, goroutines := range map[string]int{wrong: 30, paced: 30, held: 4, quiet: 1} {
		for range goroutines {
			wg.Go(func() {
				for ctx.Err() == nil {
					call(ctx, client, key)
				}
			})
		}
	}
	wg.Go(func() {
		if span == 0 {
			span = 2 * time.Minute
		}
		cure := time.After(span / 2)
		hold := time.NewTicker(4 * time.Second)
		defer hold.Stop()
		for {
			select {
			case <-cure:
				s.storm = s.stack.Stats()
				s.local.SetLimits(wrong, limits(rate)...)
			case <-hold.C:
				s.local.Hold(held, time.Now().Add(3*time.Second))
			case <-ctx.Done():
				return
			}
		}
	})
	wg.Wait()
}

func call(ctx context.Context, client *http.Client, key string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://provider.test/", nil)
	if err != nil {
		return
	}
	req.Header.Set("X-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		return
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// refusals is how many of the sends of the key that is at i in Stats were refused while the limit was wrong, and since.
func (s *scene) refusals(i int) (storm, since float64) {
	share := func(sent, refused int64) float64 { return float64(refused) / float64(max(sent, 1)) }
	now := s.stack.Stats().Keys[i]
	then := now // where it ended before
	if i < len(s.storm.Keys) {
		then = s.storm.Keys[i]
	}
	before := sum(then.Refused)
	return share(then.Sends, before), share(now.Sends-then.Sends, sum(now.Refused)-before)
}

func sum(refused map[retryafter.Class]int64) (n int64) {
	for _, of := range refused {
		n += of
	}
	return n
}
