package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// estimate plans jobs, of which one call takes latency.
func (o *options) estimate(jobs []job, latency time.Duration) (bucket.Forecast, error) {
	costs := make([]bucket.Cost, len(jobs))
	for i, j := range jobs {
		costs[i] = j.cost
	}
	return bucket.Plan(o.limits(), bucket.Batch{
		Costs: slices.Values(costs), Workers: o.workers, Latency: latency, Headroom: o.headroom,
	})
}

// writeEstimate says what f is to be read for.
func writeEstimate(w io.Writer, f bucket.Forecast, jobs []job, workers int, latency time.Duration) {
	fmt.Fprintf(w, "%s jobs of %s tokens, %d at a time, each %s: about %s\n", comma(f.Jobs),
		humanize.Comma(f.Total.InputTokens+f.Total.OutputTokens), workers, short(latency), short(f.Takes))
	if f.Binds < 0 {
		fmt.Fprintln(w, "  what binds   the workers: more of them would be faster")
	} else {
		l := f.Limits[f.Binds]
		fmt.Fprintf(w, "  what binds   %s; jobs wait %s for it\n", name(l.Limit), short(l.Waits))
	}
	fmt.Fprint(w, "  done         ")
	for i, at := range f.Tenths {
		if i > 0 && i%5 == 0 {
			fmt.Fprint(w, "\n               ")
		}
		fmt.Fprintf(w, "%3d %% %-9s", 10*(i+1), short(at))
	}
	fmt.Fprintln(w)
	for _, l := range f.Limits {
		if l.Limit.Per >= 24*time.Hour && l.First >= 0 {
			fmt.Fprintf(w, "  cut off      %s is spent after %s jobs: %s are left, from %q on;\n               that one leaves after %s\n",
				name(l.Limit), comma(l.First), comma(f.Jobs-l.First), jobs[l.First].id, short(l.FirstAt))
		}
	}
}

// name is a limit as one speaks of it.
func name(l bucket.Limit) string {
	per := "minute"
	if l.Per >= 24*time.Hour {
		per = "day"
	}
	return fmt.Sprintf("the limit of %s %s per %s", humanize.Comma(l.Amount), l.Unit, per)
}

// short is d as precise as an estimate deserves.
func short(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute).String()
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

func comma(n int) string { return humanize.Comma(int64(n)) }

// median of all, 0 of none. It sorts them.
func median(all []int64) int64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
