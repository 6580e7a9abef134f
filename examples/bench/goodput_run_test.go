package bench

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// outcome is what one run came to.
type outcome struct {
	makespan, least time.Duration
	hits, refused   int
	lost            int // jobs without a 200
	latencies       []time.Duration
	kept, missed    int // the neighbour's calls
}

func (o outcome) over() float64   { return o.makespan.Seconds() / o.least.Seconds() }
func (o outcome) wasted() float64 { return float64(o.refused) / float64(max(o.hits, 1)) }

// quantile of latencies, which it sorts.
func quantile(latencies []time.Duration, q float64) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	return latencies[min(int(q*float64(len(latencies))), len(latencies)-1)]
}

// middle is the run in the middle by makespan; its wasted calls and lost jobs are medians too.
func middle(runs []outcome) outcome {
	mid := len(runs) / 2
	slices.SortFunc(runs, func(a, b outcome) int { return a.refused - b.refused })
	hits, refused := runs[mid].hits, runs[mid].refused
	slices.SortFunc(runs, func(a, b outcome) int { return a.lost - b.lost })
	lost := runs[mid].lost
	slices.SortFunc(runs, func(a, b outcome) int { return int(a.makespan - b.makespan) })
	m := runs[mid]
	m.hits, m.refused, m.lost = hits, refused, lost
	return m
}

// play runs the batch through a client against the server, on virtual time. More than one client
// share the server, and each has a batch of its own. during, if any, runs beside.
func play(t *testing.T, s server, b batch, c client, clients int, during func(*metertest.Provider)) outcome {
	t.Helper()
	var o outcome
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), goodputHorizon)
		defer cancel()
		p := metertest.New(s.meter)
		start := time.Now()
		if during != nil {
			go during(p)
		}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range clients {
			do := c.make(t, s, p.Transport())
			queue := make(chan int64, len(b.costs))
			for _, cost := range b.costs {
				queue <- cost
			}
			close(queue)
			for range b.workers {
				all.Go(func() {
					for cost := range queue {
						picked := time.Now()
						ok := job(ctx, do, cost)
						mu.Lock()
						if ok {
							o.latencies = append(o.latencies, time.Since(picked))
						} else {
							o.lost++
						}
						mu.Unlock()
					}
				})
			}
		}
		all.Wait()
		o.makespan = time.Since(start)
		o.hits, o.refused = p.Hits(), p.Refused()
		o.kept, o.missed = p.Neighbour()
		if o.hits != p.Served()+p.Refused() {
			t.Error("a call without an answer")
		}
	})
	o.least = s.least(b)
	return o
}

// job sends one job and reports whether it was served.
func job(ctx context.Context, do doer, cost int64) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(`{"model":"m"}`))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(metertest.TokensHeader, strconv.FormatInt(cost, 10))
	resp, err := do(req)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
