package bench

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	goodputSVG  = flag.String("goodput.svg", "", "write the goodput table as an SVG to this file")
	goodputRuns = flag.Int("goodput.runs", 5, "repetitions of each goodput run; the table has medians")
	poissonRuns = flag.Int("goodput.poisson", 5, "repetitions of the runs with a Poisson neighbour; the target is for 21")
)

// TestGoodput runs one batch of 1,000 jobs with 50 workers against seven servers that publish much
// the same limits and meter them in seven ways, and prints for each client its makespan over the
// least possible and its wasted calls (refused of all).
func TestGoodput(t *testing.T) {
	servers := sevenServers(600, 400_000, 25*time.Second)
	table := grid{servers: servers}
	for _, c := range append([]client{us}, peers...) {
		row := make([]outcome, len(servers))
		for i, s := range servers {
			b := s.work(goodputJobs, goodputWorkers, 1)
			runs := make([]outcome, *goodputRuns)
			for k := range runs {
				runs[k] = play(t, s, b, c, 1, nil)
			}
			row[i] = middle(runs)
		}
		table.add(c.name, row)
		for i, o := range row {
			if c.name == us.name && (o.lost > 0 || o.over() > 1.05 || o.wasted() > 0.007) {
				t.Errorf("%s: %s, the target is 1.05 and 0.7 %%", servers[i].name, o.cell())
			}
		}
	}
	t.Log("\n" + table.String())
	t.Log("\n" + table.latencies())
	path := *goodputSVG
	if path == "" {
		path = filepath.Join(t.TempDir(), "goodput.svg")
	}
	if err := os.WriteFile(path, []byte(table.svg()), 0o644); err != nil {
		t.Fatal(err)
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
	fmt.Fprintf(&b, "makespan over the least possible, wasted calls\n%-42s", "client")
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

// svg draws the table; a cell is the greener the less time and calls were lost.
func (g *grid) svg() string {
	const left, top, width, height = 310, 70, 104, 44
	w, h := left+width*len(g.servers)+20, top+height*len(g.names)+20
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title" font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif" font-size="13" fill="#222">`, w, h)
	fmt.Fprintf(&b, "\n<title id=\"title\">Goodput: makespan over the least possible, and wasted calls</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", w, h)
	fmt.Fprintf(&b, "<text x=\"16\" y=\"28\" font-size=\"18\" font-weight=\"bold\">Makespan over the least possible, and wasted calls</text>\n")
	for i, s := range g.servers {
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" font-weight=\"bold\">%s</text>\n", left+i*width+width/2, top-10, s.name)
	}
	for k, name := range g.names {
		y := top + k*height
		fmt.Fprintf(&b, "<text x=\"16\" y=\"%d\">%s</text>\n", y+height/2+4, name)
		for i, o := range g.rows[k] {
			x := left + i*width
			fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\"/>", x+2, y+2, width-4, height-4, o.shade())
			fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x+width/2, y+height/2+4, o.cell())
		}
	}
	return b.String() + "</svg>\n"
}

// shade is green where both targets hold, amber where one is missed by a little, else red.
func (o outcome) shade() string {
	switch over, wasted := o.over(), o.wasted(); {
	case o.lost == 0 && over <= 1.05 && wasted <= 0.007:
		return "#bfe3c0"
	case o.lost == 0 && over <= 1.25 && wasted <= 0.05:
		return "#f6e3a8"
	}
	return "#f0b6a6"
}
