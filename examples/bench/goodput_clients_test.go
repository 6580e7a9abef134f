package bench

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A client is one way of sending the jobs. Each is told what s publishes.
type client struct {
	name string
	make func(t *testing.T, s server, base http.RoundTripper) doer
}

// A doer sends one call and comes back with its last answer.
type doer func(*http.Request) (*http.Response, error)

// ours is what middleware.New builds, with Headroom 1 and the published limits. The batch wants
// none of its jobs lost, so that the ladder may climb for as long as it takes; that is the one
// thing that is not a default.
func ours(t *testing.T, s server, base http.RoundTripper) doer {
	return newOurStack(t, s, func(*middleware.Config) {}).Transport(base).RoundTrip
}

func newOurStack(t *testing.T, s server, change func(*middleware.Config)) *middleware.Stack {
	patient := retryafter.DefaultPolicy()
	patient.MaxRetries = math.MaxInt32
	c := middleware.Config{
		Bucket: bucket.Config{
			Limits:   []bucket.Limit{bucket.PerMinute(bucket.Requests, s.rpm), bucket.PerMinute(bucket.Tokens, s.tpm)},
			Headroom: 1,
		},
		Pace:   middleware.PaceConfig{Cost: statedCost},
		Ladder: patient,
	}
	change(&c)
	stack, err := middleware.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return stack
}

func statedCost(r *http.Request) (bucket.Cost, error) {
	return bucket.Cost{Requests: 1, InputTokens: statedTokens(r)}, nil
}

func statedTokens(r *http.Request) int64 {
	n, _ := strconv.ParseInt(r.Header.Get(metertest.TokensHeader), 10, 64)
	return n
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
