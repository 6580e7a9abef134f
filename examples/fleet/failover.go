package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
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
		name:      "third",
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
				primary.SetStatus(statusOverloaded)
				now := time.Now()
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

// A share is what one provider had of the calls: those it admitted before and
// after the primary died, and those it refused.
type share struct{ before, after, refused int }

// at is the share of the provider of that index.
func (f failover) at(provider int) (s share) {
	for _, e := range f.ledgers[provider] {
		switch {
		case !e.Admitted:
			s.refused++
		case f.died.IsZero() || !e.At.After(f.died):
			s.before++
		default:
			s.after++
		}
	}
	return s
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
func (f failover) write(w io.Writer) {
	primary, backup := f.at(0), f.at(1)
	fmt.Fprintf(w, "%-28s%12s%12s\n", "", "primary", "backup")
	for _, row := range []struct {
		title           string
		primary, backup int
	}{
		{"served before it died", primary.before, backup.before},
		{"served after", primary.after, backup.after},
		{"refused", primary.refused, backup.refused},
	} {
		fmt.Fprintf(w, "%-28s%12s%12s\n", row.title, comma(row.primary), comma(row.backup))
	}
	took, ok := f.switched()
	if !ok {
		fmt.Fprint(w, "\nThe backup had nothing to do.\n")
		return
	}
	n, _ := f.lost()
	fmt.Fprintf(w, "\nThe backup admitted its first call %s after the primary died. %s calls that were\nunder way then moved over to it; %s were lost.\n",
		seconds(took), comma(f.moved()), comma(n))
}
