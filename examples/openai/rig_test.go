package main

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

const model = "gpt-4.1-mini"

var plenty = limits{requests: 500, tokens: 200_000}

// rig is the recipe over a provider in memory: make it inside a bubble.
type rig struct {
	provider *metertest.Provider
	stack    *middleware.Stack
	client   openai.Client
}

func newRig(t *testing.T, l limits, script ...metertest.Answer) rig {
	t.Helper()
	stack, err := newStack(l, retryafter.Reader{})
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(l, script...)
	t.Cleanup(func() {
		if n := p.OpenBodies(); n != 0 {
			t.Errorf("%d answers were not closed", n)
		}
	})
	return rig{p, stack, newClient(stack, p.Transport(), service...)}
}

// service is the real service by name, so that nothing depends on the environment.
var service = []option.RequestOption{option.WithBaseURL("https://api.openai.com/v1/"), option.WithAPIKey("sk-test")}

// hits fails unless the provider saw as many requests.
func (r rig) hits(t *testing.T, want int) {
	t.Helper()
	if got := r.provider.Hits(); got != want {
		t.Errorf("the provider saw %d requests, want %d", got, want)
	}
}

// statuses are those that the provider answered, in order.
func (r rig) statuses() []int {
	var all []int
	for _, e := range r.provider.Ledger() {
		all = append(all, e.Status)
	}
	return all
}

// figures are those of the only budget in use.
func (r rig) figures(t *testing.T) middleware.KeyStats {
	t.Helper()
	keys := r.stack.Stats().Keys
	if len(keys) != 1 {
		t.Fatalf("%d budgets in use, want 1: %v", len(keys), keys)
	}
	return keys[0]
}

// slow refills so slowly that what a call has spent still shows after it.
var slow = limits{requests: 500, tokens: 600}

// spent fails unless about so many tokens of a slow budget are gone.
func (r rig) spent(t *testing.T, want float64) {
	t.Helper()
	for _, level := range r.figures(t).Budget.Levels {
		if level.Limit.Unit != bucket.Tokens {
			continue
		}
		if got := level.Capacity - level.Available; got <= want-5 || got > want {
			t.Errorf("%v tokens are spent, want %v less what has refilled", got, want)
		}
	}
}

func times(n int, a metertest.Answer) metertest.Answer {
	a.Times = n
	return a
}

func refusedFor(seconds string) metertest.Answer {
	a := refusedOnce
	a.Header = http.Header{"Content-Type": {"application/json"}, "Retry-After": {seconds}}
	return a
}

// between fails unless what has passed since is in [least, most).
func between(t *testing.T, since time.Time, least, most time.Duration) {
	t.Helper()
	if took := time.Since(since); took < least || took >= most {
		t.Errorf("it took %v, want from %v to %v", took, least, most)
	}
}

// crowd asks n questions at once and returns the errors.
func (r rig) crowd(ctx context.Context, n int) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = ask(ctx, r.client, model, "?") })
	}
	wg.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}
