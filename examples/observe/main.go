// Observe shows a Stack in Prometheus and Grafana: package meteredotel on the
// OpenTelemetry Prometheus exporter, over a metered provider of its own.
//
//	go run ./examples/observe           # serves http://127.0.0.1:9464/metrics until an interrupt
//	go run ./examples/observe -for 5s   # ends by itself
//
// dashboard.json is a dashboard to import into Grafana; rules.yaml has two alerts for
// Prometheus. The exporter writes dots as underscores and adds units and _total:
// metered.client.requests is metered_client_requests_total.
//
// The provider allows half of what the client is told, so that there is something to
// see: refusals at first, holds, and then the pace that the client has learned.
//
// The status is 0 after -for or an interrupt, 1 when it cannot serve, and 2 when the
// command line is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/meteredhttp/meteredhttp/middleware"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is the program as a function, and returns its exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("observe", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "observe calls a metered provider of its own, and serves what happens as metrics for\nPrometheus.\n\nUsage: go run ./examples/observe [flags]\n\n")
		f.PrintDefaults()
	}
	listen := f.String("listen", "127.0.0.1:9464", "`address` to serve /metrics at")
	span := f.Duration("for", 0, "`time` after which it ends; 0 for never")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case f.NArg() > 0:
		fmt.Fprintf(stderr, "observe: unexpected argument %q: there are only flags\n", f.Arg(0))
		return 2
	case *span < 0:
		fmt.Fprintf(stderr, "observe: -for is %v, must not be negative\n", *span)
		return 2
	}
	if *span > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *span)
		defer cancel()
	}
	if err := serve(ctx, *listen, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// serve serves the metrics, and makes calls, until ctx is done.
func serve(ctx context.Context, listen string, stdout, stderr io.Writer) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	// The log may be read slowly; the metrics, and the calls, do not wait for it.
	log := middleware.Async(middleware.NewSlogObserver(slog.New(slog.NewTextHandler(stderr, nil))), 0)
	registry := prometheus.NewRegistry()
	stack, end, err := observed(registry, log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	var both sync.WaitGroup
	both.Go(func() { _ = server.Serve(l) }) // until it is closed
	fmt.Fprintf(stdout, "observe: http://%s/metrics\n", l.Addr())
	fmt.Fprintln(stdout, "observe: the first calls are refused: the provider allows half of what the client is told")

	var load sync.WaitGroup
	for range workers {
		load.Go(func() { work(ctx, stack) })
	}
	<-ctx.Done()
	load.Wait()
	err = server.Close()
	both.Wait()
	families, gathered := registry.Gather()
	for _, k := range stack.Stats().Keys {
		fmt.Fprintf(stdout, "observe: %s: %d sent, %d served, health %s; %d metrics\n", k.Key, k.Sends, k.Served, k.Health, len(families))
	}
	told, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return errors.Join(err, gathered, end(), log.Flush(told))
}
