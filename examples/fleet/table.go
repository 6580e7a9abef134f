package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// writeComparison writes the results side by side, a row for each figure. The
// makespan is held against least.
func writeComparison(w io.Writer, least time.Duration, results ...result) error {
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
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintf(t, "%-30s\t", row.title)
		for _, r := range results {
			fmt.Fprintf(t, "%s\t", row.cell(r))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// seconds writes a time as it is read in a table.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
