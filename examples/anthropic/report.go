package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware"
)

// report prints the figures of a stack: its budgets, and its routes.
func report(w io.Writer, stats middleware.Stats) {
	for _, k := range stats.Keys {
		fmt.Fprintf(w, "%s\n  health %s: %.0f %% of the last 5 minutes' sends refused\n", k.Key, k.Health, 100*k.Wasted5)
		fmt.Fprintf(w, "  %d sent, %d served, %d without an answer\n", k.Sends, k.Served, k.Failed)
		for _, class := range slices.Sorted(maps.Keys(k.Refused)) {
			fmt.Fprintf(w, "  %d refused: %v\n", k.Refused[class], class)
		}
		fmt.Fprintf(w, "  waited for the budget: half of them %v, at most %v\n", brief(k.WaitP50), brief(k.WaitMax))
		for _, level := range k.Budget.Levels {
			fmt.Fprintf(w, "  %.0f of %.0f %v left\n", level.Available, level.Capacity, level.Limit.Unit)
		}
	}
	for _, r := range stats.Routes {
		fmt.Fprintf(w, "route %s: %s", r.Name, r.State)
		if r.Rest > 0 {
			fmt.Fprintf(w, " for %v, because it was %v", r.Rest.Round(time.Second), r.Kind)
		}
		fmt.Fprintln(w)
	}
}

func brief(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
