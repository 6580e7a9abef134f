package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// statusOverloaded is what a provider says that is short of capacity.
const statusOverloaded = 529

// A failover is the result of a run in the middle of which the primary died.
type failover struct {
	result // its ledgers are the primary's and the backup's
	jobs   []job
	died   time.Time // zero: it did not live to see it
}

// failover sends jobs to a primary with a backup, and kills the primary when half
// of them are served.
func (s stage) failover(ctx context.Context, q quota, jobs []job, o middleware.Observer) (failover, error) {
	primary, backup := q.provider("primary"), q.provider("backup")
	var died atomic.Pointer[time.Time]
	res, err := s.run(ctx, run{
		name:      "backup",
		jobs:      jobs,
		providers: []*metertest.Provider{primary, backup},
		client: func(urls []string, base http.RoundTripper) (http.RoundTripper, error) {
			stack, err := pacedWithBackup(q, urls[0], urls[1], o)
			if err != nil {
				return nil, err
			}
			return stack.Transport(base), nil
		},
		served: func(n int) {
			if n == (len(jobs)+1)/2 {
				now := time.Now()
				primary.SetStatus(statusOverloaded)
				died.Store(&now)
			}
		},
	})
	f := failover{result: res, jobs: jobs}
	if t := died.Load(); t != nil {
		f.died = *t
	}
	return f, err
}

// served is how many calls the provider of that index admitted before and after
// the primary died, and how many it refused.
func (f failover) at(provider int) (before, after, refused int) {
	for _, e := range f.ledgers[provider] {
		switch {
		case !e.Admitted:
			refused++
		case f.died.IsZero() || !e.At.After(f.died):
			before++
		default:
			after++
		}
	}
	return before, after, refused
}

// moved is how many calls were under way when the primary died, and were served
// by the backup.
func (f failover) moved() int {
	byBackup := map[string]bool{}
	for _, e := range f.ledgers[1] {
		if e.Admitted {
			byBackup[e.Path] = true
		}
	}
	n := 0
	for i, o := range f.outcomes {
		if o.picked.Before(f.died) && byBackup[f.jobs[i].path()] {
			n++
		}
	}
	return n
}

// switched is how long it took from the primary's death until the backup admitted
// a call. False if it never did.
func (f failover) switched() (time.Duration, bool) {
	for _, e := range f.ledgers[1] {
		if e.Admitted && e.At.After(f.died) {
			return e.At.Sub(f.died), true
		}
	}
	return 0, false
}

// write tells where the calls were served.
func (f failover) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%-30s\t%s\t%s\t%s\t\n", "", "before", "after", "refused")
	for i, name := range []string{"served by the primary", "served by the backup"} {
		before, after, refused := f.at(i)
		fmt.Fprintf(t, "%-30s\t%s\t%s\t%s\t\n", name, comma(before), comma(after), comma(refused))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	took, ok := f.switched()
	if !ok {
		_, err := fmt.Fprintln(w, "\nThe backup had nothing to do.")
		return err
	}
	n, _ := f.lost()
	_, err := fmt.Fprintf(w, "\nThe backup admitted its first call %s after the primary died. %s calls that were\nunder way then moved over to it; %s were lost.\n",
		seconds(took), comma(f.moved()), comma(n))
	return err
}
