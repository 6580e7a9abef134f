package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// What the providers allow. The first lets a whole 5 seconds' worth go at once;
// the pair of the third run one second's worth, so that the short run is a steady
// one.
var (
	raceQuota = quota{
		requests: 240, tokens: 400_000, per: 5 * time.Second,
		requestsAtOnce: 240, tokensAtOnce: 400_000,
	}
	failoverQuota = quota{
		requests: 240, tokens: 400_000, per: 5 * time.Second,
		requestsAtOnce: 48, tokensAtOnce: 80_000,
	}
)

const (
	naiveWait    = time.Second // of the naive client, after each refusal
	failoverJobs = 300         // at most, of the batch, in the third run
	maxWasted    = 0.01        // of the paced run's calls
)

type demonstration struct {
	options
	network  network
	stdout   io.Writer
	terminal bool
	observer middleware.Observer
}

// show makes the three runs and reports them. The error is the first thing that
// went otherwise than it should.
func (d demonstration) show(ctx context.Context) error {
	s := stage{network: d.network, workers: d.workers, screen: screen{out: d.stdout, rewrite: d.terminal}}
	jobs := newBatch(d.jobs, d.seed)
	least := leastMakespan(raceQuota, jobs, d.workers)
	fmt.Fprintf(d.stdout, "%s jobs of %s tokens, from %d goroutines. The provider allows %s requests and\n%s tokens in %s. Nobody could be done before %s.\n\n",
		comma(d.jobs), comma(sum(jobs)), d.workers, comma(raceQuota.requests), comma(raceQuota.tokens), raceQuota.time(), seconds(least))

	naive, err := s.run(ctx, d.naive(jobs))
	if err != nil {
		return err
	}
	paced, err := s.run(ctx, d.paced(jobs))
	if err != nil {
		return err
	}
	fmt.Fprintln(d.stdout)
	writeComparison(d.stdout, least, naive, paced)
	fmt.Fprintf(d.stdout, "\nThe paced client keeps %.0f %% of the limits in hand, the default headroom of a Stack;\nwhat it takes longer is the price.\n",
		100*(1-middleware.DefaultHeadroom))
	if d.picture != "" {
		if err := writeChart(d.picture, raceQuota, naive, paced); err != nil {
			return err
		}
		fmt.Fprintf(d.stdout, "\nThe picture is in %s.\n", d.picture)
	}

	few := jobs[:min(len(jobs), failoverJobs)]
	fmt.Fprintf(d.stdout, "\n%s jobs again, to a primary with a backup. Half-way the primary dies: it answers\neverything with %d.\n\n", comma(len(few)), statusOverloaded)
	f, err := s.failover(ctx, failoverQuota, few, d.observer)
	if err != nil {
		return err
	}
	fmt.Fprintln(d.stdout)
	f.write(d.stdout)
	return verdict(paced, f.result)
}

// naive is the run of the client that retries every refusal after a fixed second.
func (d demonstration) naive(jobs []job) run {
	return run{
		name:      "naive",
		jobs:      jobs,
		providers: []*metertest.Provider{raceQuota.provider("naive")},
		client: func(_ []string, base http.RoundTripper) (http.RoundTripper, error) {
			return naiveRetry{base: base, wait: naiveWait}, nil
		},
	}
}

// paced is the run through a Stack.
func (d demonstration) paced(jobs []job) run {
	return run{
		name:      "paced",
		jobs:      jobs,
		providers: []*metertest.Provider{raceQuota.provider("paced")},
		client: func(_ []string, base http.RoundTripper) (http.RoundTripper, error) {
			stack, err := paced(raceQuota, d.observer)
			if err != nil {
				return nil, err
			}
			return stack.Transport(base), nil
		},
	}
}

// verdict is nil if the paced run wasted little enough and neither lost a job.
func verdict(paced, failover result) error {
	if wasted := paced.wasted(); wasted > maxWasted {
		return fmt.Errorf("fleet: the paced run wasted %.1f %% of its calls, more than %.0f %%", 100*wasted, 100*maxWasted)
	}
	for _, r := range []result{paced, failover} {
		if n, why := r.lost(); n > 0 {
			return fmt.Errorf("fleet: %d jobs of the %s run were lost: %w", n, r.name, why)
		}
	}
	return nil
}
