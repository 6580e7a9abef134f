package bench

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var (
	goodputSVG  = flag.String("goodput.svg", "", "the file that TestGoodput draws its table to; by default goodput.svg here with -v, else none")
	goodputRuns = flag.Int("goodput.runs", 5, "repetitions of each goodput run; the table has medians")
	poissonRuns = flag.Int("goodput.poisson", 5, "repetitions of the runs with a Poisson neighbour; the target is for 21")
)

// TestGoodput runs one batch of 1,000 jobs with 50 workers against seven servers that publish much
// the same limits and meter them in seven ways, and prints for each client its makespan over the
// least possible and its wasted calls (refused of all). With -v it draws the table as an SVG as well.
func TestGoodput(t *testing.T) {
	servers := sevenServers(600, 400_000, 25*time.Second)
	table := grid{servers: servers}
	repeat, others, budgets := *goodputRuns, peers(), defaultBudgets()
	if raceDetector || testing.Short() {
		// The others are there to be compared with, and under their storms the race detector's
		// runtime now and then fails a check of its own (tsan_rtl.cpp).
		repeat, others, budgets = 1, nil, nil
	}
	medians := func(c client) []outcome {
		row := make([]outcome, len(servers))
		for i, s := range servers {
			b := s.work(goodputJobs, goodputWorkers, 1)
			runs := make([]outcome, repeat)
			for k := range runs {
				runs[k] = play(t, s, b, c, 1, nil)
			}
			row[i] = middle(runs)
		}
		return row
	}
	for _, c := range append(others, us) {
		row := medians(c)
		table.add(c.name, row)
		for i, o := range row {
			if c.name == us.name && (o.lost > 0 || o.over() > 1.05 || o.wasted() > 0.007) {
				t.Errorf("%s: %s, the target is 1.05 and 0.7 %%", servers[i].name, o.cell())
			}
		}
	}
	t.Log("\n" + table.String())
	t.Log("\n" + table.latencies())
	lost := grid{servers: servers}
	for _, c := range append(budgets, us) {
		lost.add(c.name, medians(c))
	}
	t.Log("\n" + lost.losses())
	if path := *goodputSVG; path != "" || testing.Verbose() && len(others) > 0 {
		if path == "" {
			path = "goodput.svg"
		}
		if err := os.WriteFile(path, []byte(table.svg()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// grid is the table of clients and servers.
type grid struct {
	servers []server
	names   []string
	rows    [][]outcome
}

func (g *grid) add(name string, row []outcome) {
	g.names = append(g.names, name)
	g.rows = append(g.rows, row)
}

// cell is a makespan over the least, the wasted share, and the jobs lost, if any.
func (o outcome) cell() string {
	s := fmt.Sprintf("%.3f %4.1f%%", o.over(), 100*o.wasted())
	if o.lost > 0 {
		s += fmt.Sprintf(" -%d", o.lost)
	}
	return s
}

func (g *grid) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "makespan over the least possible, wasted calls, -n: n jobs lost\n%-42s", "client")
	for _, s := range g.servers {
		fmt.Fprintf(&b, "| %-12s ", s.name)
	}
	for i, name := range g.names {
		fmt.Fprintf(&b, "\n%-42s", name)
		for _, o := range g.rows[i] {
			fmt.Fprintf(&b, "| %-12s ", o.cell())
		}
	}
	return b.String()
}

// latencies is the table of how long a job took from its pick-up to its 200.
func (g *grid) latencies() string {
	var b strings.Builder
	fmt.Fprintf(&b, "a job from pick-up to its 200: p50 / p99 in seconds\n%-42s", "client")
	for _, s := range g.servers {
		fmt.Fprintf(&b, "| %-13s ", s.name)
	}
	row := func(name string, of func(i int) []time.Duration) {
		fmt.Fprintf(&b, "\n%-42s", name)
		for i := range g.servers {
			l := of(i)
			fmt.Fprintf(&b, "| %5.2f / %5.1f ", quantile(l, 0.5).Seconds(), quantile(l, 0.99).Seconds())
		}
	}
	for k, name := range g.names {
		row(name, func(i int) []time.Duration { return g.rows[k][i].latencies })
	}
	row("an oracle, first in first out (buckets)", func(i int) []time.Duration {
		if s := g.servers[i]; !s.windowed() {
			return s.oracle(s.work(goodputJobs, goodputWorkers, 1))
		}
		return nil
	})
	return b.String()
}

// losses is the table of the jobs that never got their 200.
func (g *grid) losses() string {
	var b strings.Builder
	fmt.Fprintf(&b, "jobs lost of 1,000 with each library's default budget\n%-42s", "client")
	for _, s := range g.servers {
		fmt.Fprintf(&b, "| %4s ", s.name)
	}
	for k, name := range g.names {
		fmt.Fprintf(&b, "\n%-42s", name)
		for _, o := range g.rows[k] {
			fmt.Fprintf(&b, "| %4d ", o.lost)
		}
	}
	return b.String()
}
