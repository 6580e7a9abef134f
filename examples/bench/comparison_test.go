package bench

import (
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

var comparisonWrite = flag.Bool("comparison.write", false, "TestComparison writes docs/COMPARISON.md; without it, it prints what it would write")

const (
	comparisonPage    = "../../docs/COMPARISON.md"
	comparisonCommand = "cd examples && go test ./bench -run Comparison -v -args -comparison.write"
	refusedCalls      = 200
)

// TestComparison puts ours beside eight peers, with -v as the page docs/COMPARISON.md. What is counted is
// held here as well: ours loses no connection, and sends a refused call no oftener than the ladder says.
// Times are measured, printed and never judged.
//
// Under the race detector and with -short it counts ours alone, at one server, and measures nothing.
func TestComparison(t *testing.T) {
	smoke := raceDetector || testing.Short()
	clients, servers := theCompared(), sevenServers(600, 400_000, 25*time.Second)
	if smoke {
		clients, servers = clients[len(clients)-1:], servers[:1]
	}
	rows := make([]measured, len(clients))
	for i, c := range clients {
		rows[i] = count(t, c, servers)
	}
	us := rows[len(rows)-1]
	if us.inUse != 0 || us.unclosed != 0 || us.dials != 1 {
		t.Errorf("%d refused calls opened %d connections and left %d, with %d answers unclosed; want one, and none left",
			refusedCalls, us.dials, us.inUse, us.unclosed)
	}
	if want := retriesByDefault + 1; us.sends != want || us.installed != want {
		t.Errorf("a refused call was sent %d times, and %d under go-retryablehttp with the adapter, want %d", us.sends, us.installed, want)
	}
	var redis []redisRatio
	if !smoke {
		timeTakes(t, clients, rows)
		timeCalls(t, clients, rows)
		redis = timeRedis(t)
	}
	page := comparisonOf(servers, rows, redis)
	t.Log("\n" + page)
	if *comparisonWrite && !smoke {
		if err := os.WriteFile(comparisonPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const retriesByDefault = 5 // retryafter.DefaultPolicy().MaxRetries

// measured is what one client came to.
type measured struct {
	compared
	take, added    float64 // nanoseconds; NaN: it has none
	allocs, bytes  float64
	dials, inUse   int
	unclosed       int
	sends, stacked int
	installed      int // under go-retryablehttp, by the adapter; 0: there is none
	lost           []int
	endlessly      []outcome // nil: it cannot
}

// count plays everything that is counted, on virtual time.
func count(t *testing.T, c compared, servers []server) measured {
	m := measured{compared: c, take: math.NaN(), added: math.NaN()}
	refuse := metertest.Config{Script: []metertest.Answer{{
		Status: http.StatusTooManyRequests, Times: -1, Header: http.Header{"Retry-After": {"1"}},
		Body: `{"error":{"message":"Rate limit reached. Please try again in 1s.","type":"requests","code":"rate_limit_exceeded"}}`,
	}}}
	refused := func(calls int, wrap func(http.RoundTripper) http.RoundTripper) (p *metertest.Provider) {
		synctest.Test(t, func(t *testing.T) {
			p = metertest.New(refuse)
			do := c.byDefault(t, servers[0], wrap(p.Transport()))
			for range calls {
				job(t.Context(), do, 100)
			}
			m.inUse, m.unclosed = p.ConnsInUse(), p.OpenBodies()
		})
		return p
	}
	itself := func(base http.RoundTripper) http.RoundTripper { return base }
	m.sends = refused(1, itself).Hits()
	m.stacked = refused(1, func(base http.RoundTripper) http.RoundTripper {
		return &retryablehttp.RoundTripper{Client: newPlainRetryable(base)}
	}).Hits()
	m.dials = refused(refusedCalls, itself).Dials()
	if len(c.modules) == 0 {
		synctest.Test(t, func(t *testing.T) {
			p := metertest.New(refuse)
			callRetryable(t, "ours", p.Transport())
			m.installed = p.Hits()
		})
	}
	for _, s := range servers {
		b := s.work(goodputJobs, goodputWorkers, 1)
		m.lost = append(m.lost, play(t, s, b, client{c.name, c.byDefault}, 1, nil).lost)
		if c.endless != nil {
			m.endlessly = append(m.endlessly, play(t, s, b, client{c.name, c.endless}, 1, nil))
		}
	}
	return m
}

// timeTakes measures what a take costs, by turns.
func timeTakes(t *testing.T, clients []compared, rows []measured) {
	var sides []side
	var at []int
	for i, c := range clients {
		if c.take != nil {
			sides, at = append(sides, side{c.name, c.take(t)}), append(at, i)
		}
	}
	ns := mediansByTurns(400, 512, sides)
	for k, i := range at {
		rows[i].take = ns[k]
	}
}

// mediansByTurns has every side do so many blocks of operations, by turns, and returns the median time of one
// operation for each. With many sides a round is long, and something else may come in between at any of them:
// blocks are short and each side has a median of its own.
func mediansByTurns(rounds, block int, sides []side) []float64 {
	each := make([][]float64, len(sides))
	for i := range rounds + 1 {
		for j := range sides {
			k := (i + j) % len(sides) // nobody is always first
			start := time.Now()
			sides[k].run(block)
			if took := time.Since(start); i > 0 { // the first one fills pools
				each[k] = append(each[k], float64(took)/float64(block))
			}
		}
	}
	ns := make([]float64, len(sides))
	for k := range sides {
		ns[k] = median(each[k])
	}
	return ns
}

// timeCalls measures what a served call costs over a bare http.Client, by turns.
func timeCalls(t *testing.T, clients []compared, rows []measured) {
	base := newMemory(plainAnswer())
	repeat := func(name string, call func() error) side {
		return side{name, func(n int) {
			for range n {
				if err := call(); err != nil {
					t.Error(name, err)
					return
				}
			}
		}}
	}
	sides := []side{repeat("bare", asDoer(t, (&http.Client{Transport: base}).Do))}
	for _, c := range clients {
		sides = append(sides, repeat(c.name, c.call(t, base)))
	}
	ns := mediansByTurns(800, 64, sides)
	objects, bytes := allocated(sides[0])
	for i := range clients {
		o, n := allocated(sides[i+1])
		rows[i].added, rows[i].allocs, rows[i].bytes = ns[i+1]-ns[0], math.Round(o-objects), n-bytes
	}
}

// redisRatio is meteredredis beside redis_rate, with so many goroutines.
type redisRatio struct {
	workers      int
	theirs, ours float64 // nanoseconds a take
}

// timeRedis measures both on one redis-server, if there is one.
func timeRedis(t *testing.T) []redisRatio {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil
	}
	_, theirs, ours := redisTakes(t)
	var ratios []redisRatio
	for _, workers := range []int{1, 64} {
		var ns [2][]float64
		for range 5 { // by turns
			for i, take := range []func() error{theirs, ours} {
				const takes = 4000
				start := time.Now()
				spread(t, takes, workers, take)
				ns[i] = append(ns[i], float64(time.Since(start))/takes)
			}
		}
		ratios = append(ratios, redisRatio{workers, median(ns[0]), median(ns[1])})
	}
	return ratios
}

// comparisonOf is the page.
func comparisonOf(servers []server, rows []measured, redis []redisRatio) string {
	var b strings.Builder
	us := rows[len(rows)-1]
	fmt.Fprintf(&b, `# Comparison

Measured on %s, %s, on %s, %d processors. Written by

    %s

Absolute times are this machine's, and it was not quiet; all clients were measured by turns in one run,
in short blocks whose median counts, so their ratios say more; collections of garbage fall out of a median.
Everything that is counted (connections, losses, sends, waste) is on virtual time, against the metered provider of package `+"`middleware/metertest`"+`.

Versions: %s.

`, time.Now().UTC().Format("2 January 2006"), runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH, cpu(), runtime.GOMAXPROCS(0),
		comparisonCommand, strings.Join(versions(rows), ", "))

	fmt.Fprintf(&b, "| client | a take, ns | added to a request, ns | allocations, bytes added | connections opened, left in use | jobs lost of %s | makespan at the worst server | wasted at the worst server | sends of a refused call | over another retrier |\n",
		thousands(goodputJobs*len(servers)))
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, m := range rows {
		lost := 0
		for _, n := range m.lost {
			lost += n
		}
		makespan, waste := "–", "–"
		if m.endlessly != nil {
			var worst, wasted float64
			for _, o := range m.endlessly {
				worst, wasted = max(worst, o.over()), max(wasted, o.wasted())
			}
			makespan, waste = fmt.Sprintf("%.2f", worst), percent(wasted)
		}
		stacked := fmt.Sprint(m.stacked)
		if m.installed > 0 {
			stacked = fmt.Sprintf("%d by hand, %d installed under it", m.stacked, m.installed)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.0f, %.0f | %d, %d | %s | %s | %s | %d | %s |\n", m.name, nanoseconds(m.take), nanoseconds(m.added),
			m.allocs, m.bytes, m.dials, m.inUse, thousands(lost), makespan, waste, m.sends, stacked)
	}
	b.WriteString(`
- **A take**: asking the budget for one call, uncontended, for requests and tokens, ours with its settlement.
  failsafe-go's limiter knows requests alone; gobreaker's row has its two limiters and the breaker in it.
  A dash: it has no budget.
- **Added to a request**: a served POST of 1 KiB over a transport in memory, less the same by a bare
  http.Client. Ours has all layers and a backup route in it. openai-go's row has its own JSON and headers in it,
  resty's reads the answer into memory.
- **Connections**: ` + fmt.Sprint(refusedCalls) + ` calls, one after the other, each refused to its end, and its last answer read and
  closed by the caller. An answer that a client drops unread costs its connection; one that is never closed
  keeps it in use for ever.
- **Jobs lost**: 1,000 jobs and 50 workers at each of seven servers, with the retries that each client comes
  with or that its documentation shows: x/time/rate none, failsafe-go and openai-go 2, resty and rehttp 3,
  go-retryablehttp and heimdall 4, ours the default ladder.
- **Makespan** over the least possible, and **wasted** calls (refused of all), when nobody ever gives up.
  heimdall does not retry a 429.
- **Sends** of one call to a server that refuses everything; and the same with go-retryablehttp's 4 retries
  between the client and the server. Retries of two loops multiply, ours too, unless the adapter joins them.

## Seven servers

Makespan over the least possible, wasted calls, and the jobs that the default budget loses. What the letters
mean: the servers publish the same limits and meter them in seven ways. R and T are a bucket of a minute, of
requests and of tokens; W and WT count by fixed windows of a minute; Q and QT refill ten or a hundred times a
second with a small bucket; at S, like Q, a refused call costs a permit too.

| client |`)
	for _, s := range servers {
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(servers)) + "\n")
	for _, m := range rows {
		fmt.Fprintf(&b, "| %s |", m.name)
		for i := range servers {
			if m.endlessly == nil {
				fmt.Fprintf(&b, " –, –, %d |", m.lost[i])
				continue
			}
			o := m.endlessly[i]
			fmt.Fprintf(&b, " %.2f, %s, %d |", o.over(), percent(o.wasted()), m.lost[i])
		}
		b.WriteByte('\n')
	}
	b.WriteString("\n## Where ours loses\n\n")
	for _, line := range losses(servers, rows, us, redis) {
		b.WriteString("- " + line + "\n")
	}
	return b.String()
}

// losses says, from the same figures, what others do better.
func losses(servers []server, rows []measured, us measured, redis []redisRatio) []string {
	var lines, fewer []string
	for _, m := range rows[:len(rows)-1] {
		if m.take < us.take {
			lines = append(lines, fmt.Sprintf("A take: ours costs %.2f times that of %s.", us.take/m.take, m.name))
		}
		if m.added < us.added {
			line := fmt.Sprintf("A served request: ours adds %s ns, %s %s ns", nanoseconds(us.added), m.name, nanoseconds(m.added))
			if m.added > 100 { // less is noise
				line += fmt.Sprintf(" (%.2f times)", us.added/m.added)
			}
			lines = append(lines, line+".")
		}
		if m.allocs < us.allocs {
			lines = append(lines, fmt.Sprintf("Allocations of a served request: ours %.0f, %s %.0f.", us.allocs, m.name, m.allocs))
		}
		if m.sends < us.sends {
			fewer = append(fewer, fmt.Sprintf("%d by %s", m.sends, m.name))
		}
		var quicker []string
		for i, o := range m.endlessly {
			if o.makespan < us.endlessly[i].makespan*199/200 {
				quicker = append(quicker, fmt.Sprintf("%s (%.3f to %.3f, at %s wasted)", servers[i].name, o.over(), us.endlessly[i].over(), percent(o.wasted())))
			}
		}
		if quicker != nil {
			lines = append(lines, fmt.Sprintf("Makespan: %s is quicker at %s.", m.name, strings.Join(quicker, ", ")))
		}
		for i, n := range m.lost {
			if n < us.lost[i] {
				lines = append(lines, fmt.Sprintf("Jobs lost at %s with default budgets: ours %d, %s %d.", servers[i].name, us.lost[i], m.name, n))
			}
		}
	}
	if fewer != nil {
		lines = append(lines, fmt.Sprintf("A call that is always refused is sent %d times by ours; %s.", us.sends, strings.Join(fewer, ", ")))
	}
	slices.Sort(lines)
	for _, r := range redis {
		lines = append(lines, fmt.Sprintf("On Redis, with %s: %.2f of redis_rate's throughput (%s ns a take, settled, two limits; redis_rate %s ns, one limit, nothing settled).",
			plural(r.workers, "goroutine"), r.theirs/r.ours, nanoseconds(r.ours), nanoseconds(r.theirs)))
	}
	if redis == nil {
		lines = append(lines, "On Redis: not measured, there is no redis-server on this machine.")
	}
	return lines
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func nanoseconds(ns float64) string {
	if math.IsNaN(ns) {
		return "–"
	}
	return thousands(int(math.Round(ns)))
}

func thousands(n int) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// versions are those of the modules that this was built with.
func versions(rows []measured) []string {
	var all []string
	for _, m := range rows {
		for _, module := range m.modules {
			v, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Version}}", module).Output()
			if err != nil {
				v = []byte(module + " of an unknown version")
			}
			all = append(all, strings.TrimSpace(string(v)))
		}
	}
	slices.Sort(all)
	return all
}

// cpu is what the machine says of itself.
func cpu() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "a CPU without a name"
}
