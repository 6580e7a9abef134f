package main

import (
	"fmt"
	"io"
	"time"
)

// writeComparison writes the results side by side, a row for each figure. The
// makespan is held against least.
func writeComparison(w io.Writer, least time.Duration, results ...result) {
	rows := []struct {
		title string
		cell  func(result) string
	}{
		{"", func(r result) string { return r.name }},
		{"served", func(r result) string { return comma(r.served()) }},
		{"refused", func(r result) string { return comma(r.refused()) }},
		{"wasted share of calls", func(r result) string { return fmt.Sprintf("%.1f %%", 100*r.wasted()) }},
		{"jobs lost", func(r result) string { n, _ := r.lost(); return comma(n) }},
		{"makespan", func(r result) string { return seconds(r.makespan()) }},
		{fmt.Sprintf("against the least, %s", seconds(least)), func(r result) string {
			return fmt.Sprintf("x %.2f", r.makespan().Seconds()/least.Seconds())
		}},
		{"latency of a job, p50", func(r result) string { return seconds(r.latency(0.50)) }},
		{"latency of a job, p99", func(r result) string { return seconds(r.latency(0.99)) }},
	}
	for _, row := range rows {
		fmt.Fprintf(w, "%-28s", row.title)
		for _, r := range results {
			fmt.Fprintf(w, "%12s", row.cell(r))
		}
		fmt.Fprintln(w)
	}
}

// seconds writes a time as it is read in a table.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
