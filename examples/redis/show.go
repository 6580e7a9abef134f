package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// The provider's limit, and what the fleet is told of it: the same.
const (
	rate  = 200 // requests a second
	burst = 40
)

// A run is one fleet at work.
type run struct {
	options
	engine *engine // nil: every process has a limiter of its own
	stdout io.Writer

	reports []report
	ledger  []metertest.Entry
	started time.Time
}

// show does both runs and says what came of them.
func show(ctx context.Context, o options, stdout io.Writer) error {
	e, err := findEngine(ctx, o.redis)
	if err != nil {
		return err
	}
	defer e.close()

	fmt.Fprintf(stdout, "The provider serves %d requests a second, from a bucket of %d. The fleet: %d processes of %d goroutines.\n\n",
		rate, burst, o.workers, o.goroutines)
	fmt.Fprintln(stdout, "1. One budget, in the store:")
	shared := &run{options: o, engine: e, stdout: stdout}
	if err := shared.do(ctx); err != nil {
		return err
	}
	shared.table()

	fmt.Fprintln(stdout, "\n2. Without sharing: each process believes in the whole limit, and learns from its refusals:")
	alone := &run{options: o, stdout: stdout}
	if err := alone.do(ctx); err != nil {
		return err
	}
	alone.table()

	fmt.Fprintf(stdout, "\nShared, %.2f %% of what was sent was refused; alone, %.2f %%.\n", 100*shared.wasted(), 100*alone.wasted())
	for _, r := range shared.reports {
		if r.Failed > 0 {
			return fmt.Errorf("%d calls of the sharing fleet failed: %s", r.Failed, r.Error)
		}
	}
	if over := shared.over(); over > 0.02 {
		return fmt.Errorf("the sharing fleet went %.1f %% over the limit", 100*over)
	}
	return nil
}

// do starts the provider and the workers, kills the store in the middle, and collects the reports.
func (r *run) do(ctx context.Context) error {
	provider := metertest.New(metertest.Config{
		Requests: rate, Per: time.Second, RequestBurst: burst, Latency: 20 * time.Millisecond, RefusedLatency: 5 * time.Millisecond,
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: provider}
	go server.Serve(l)
	defer server.Close()

	o := orders{
		Provider: "http://" + l.Addr().String() + "/v1/messages", Prefix: fmt.Sprintf("example-%d", os.Getpid()),
		Processes: r.workers, Goroutines: r.goroutines, Span: r.span,
		Limit: bucket.Limit{Unit: bucket.Requests, Amount: rate, Per: time.Second, Burst: burst},
	}
	if r.engine != nil {
		o.Redis = r.engine.url
	}
	r.started = time.Now()
	r.reports = make([]report, r.workers)
	errs := make([]error, r.workers)
	var wg sync.WaitGroup
	for i := range r.workers {
		wg.Go(func() { r.reports[i], errs[i] = r.work(ctx, o) })
	}
	if r.engine != nil && r.engine.own() {
		if err := r.crash(ctx); err != nil {
			return err
		}
	}
	wg.Wait()
	r.ledger = provider.Ledger()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// work runs one worker process.
func (r *run) work(ctx context.Context, o orders) (report, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return report{}, err
	}
	path, err := os.Executable()
	if err != nil {
		return report{}, err
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return report{}, fmt.Errorf("a worker: %w: %s", err, errs.String())
	}
	var rep report
	return rep, json.Unmarshal(out.Bytes(), &rep)
}

// crash kills the store for a quarter of the run.
func (r *run) crash(ctx context.Context) error {
	for _, step := range []struct {
		after time.Duration
		what  string
		do    func() error
	}{
		{r.span * 3 / 8, "the redis-server is killed", func() error { r.engine.kill(); return nil }},
		{r.span / 4, "it is started again, empty", func() error { return r.engine.start(ctx) }},
	} {
		select {
		case <-time.After(step.after):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := step.do(); err != nil {
			return err
		}
		fmt.Fprintf(r.stdout, "   %5.1f s  %s\n", time.Since(r.started).Seconds(), step.what)
	}
	return nil
}

func (r *run) total() report {
	var t report
	for _, w := range r.reports {
		t.Sent += w.Sent
		t.Served += w.Served
		t.Refused += w.Refused
		t.Failed += w.Failed
		t.P50, t.P99, t.Max = max(t.P50, w.P50), max(t.P99, w.P99), max(t.Max, w.Max)
		t.Down, t.Up = t.Down+w.Down, t.Up+w.Up
	}
	return t
}

func (r *run) wasted() float64 {
	t := r.total()
	return float64(t.Refused) / float64(max(t.Sent, 1))
}

// over is by which part of a second's limit the arrivals at the provider, served or refused, went over it, at worst.
// The provider serves no more than its limit, so its refusals are what counts here.
func (r *run) over() float64 {
	level, worst := float64(burst), 0.0
	var last time.Time
	for i, e := range r.ledger {
		if i > 0 {
			level = min(level+rate*e.At.Sub(last).Seconds(), burst)
		}
		level--
		last, worst = e.At, min(worst, level)
	}
	return max(0, -worst-1) / rate
}

func (r *run) table() {
	w := tabwriter.NewWriter(r.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "process\tsent\tserved\trefused\tfailed\ta second\tp50\tp99\tmost\tstore down, up\t")
	line := func(name string, p report) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.1f\t%v\t%v\t%v\t%d, %d\t\n", name, p.Sent, p.Served, p.Refused, p.Failed,
			float64(p.Served)/r.span.Seconds(), p.P50.Round(time.Millisecond), p.P99.Round(time.Millisecond), p.Max.Round(time.Millisecond), p.Down, p.Up)
	}
	for i, p := range r.reports {
		line(fmt.Sprint(i+1), p)
	}
	line("joint", r.total())
	w.Flush()
}
