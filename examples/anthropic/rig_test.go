package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

const (
	primary = "claude-sonnet-4-6"
	backup  = "claude-haiku-4-5"
)

var plenty = limits{requests: 500, input: 200_000, output: 80_000}

// rig is the recipe over a provider in memory: make it inside a bubble.
type rig struct {
	provider *metertest.Provider
	stack    *middleware.Stack
	client   anthropic.Client
}

func newRig(t *testing.T, l limits, script ...metertest.Answer) rig {
	t.Helper()
	stack, err := newStack(models{primary, backup}, l, retryafter.Reader{})
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(l, "", script...)
	t.Cleanup(func() {
		if n := p.OpenBodies(); n != 0 {
			t.Errorf("%d answers were not closed", n)
		}
	})
	return rig{p, stack, newClient(stack, p.Transport(), retryafter.Reader{}, service...)}
}

// service is the real service by name, so that nothing depends on the environment.
var service = []option.RequestOption{option.WithBaseURL("https://api.anthropic.com"), option.WithAPIKey("sk-ant-test")}

// hits fails unless the provider saw as many requests for each model.
func (r rig) hits(t *testing.T, wantPrimary, wantBackup int) {
	t.Helper()
	got := map[string]int{}
	for _, e := range r.provider.Ledger() {
		got[e.Model]++
	}
	if got[primary] != wantPrimary || got[backup] != wantBackup || r.provider.Hits() != wantPrimary+wantBackup {
		t.Errorf("the provider saw %v, want %d for the primary, %d for the backup", got, wantPrimary, wantBackup)
	}
}

// idle fails if a budget has calls waiting or in flight.
func (r rig) idle(t *testing.T) {
	t.Helper()
	for _, k := range r.stack.Stats().Keys {
		if b := k.Budget; b.Queued != 0 || b.InFlight != 0 {
			t.Errorf("%s: %d calls wait, %d are in flight", k.Key, b.Queued, b.InFlight)
		}
	}
}

func times(n int, a metertest.Answer) metertest.Answer {
	a.Times = n
	return a
}

// after is an answer with another Retry-After, or none.
func after(seconds string, a metertest.Answer) metertest.Answer {
	a.Header = http.Header{"Content-Type": {"application/json"}}
	if seconds != "" {
		a.Header.Set("Retry-After", seconds)
	}
	return a
}

// between fails unless what has passed since is in [least, most).
func between(t *testing.T, since time.Time, least, most time.Duration) {
	t.Helper()
	if took := time.Since(since); took < least || took >= most {
		t.Errorf("it took %v, want from %v to %v", took, least, most)
	}
}
