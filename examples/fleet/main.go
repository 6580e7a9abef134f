// Fleet shows what meteredhttp is for. It starts a metered provider on loopback
// and sends it the same batch of jobs from a hundred goroutines twice: naively,
// where every refusal goes out again after a second, and through a meteredhttp
// Stack. It draws both runs in fleet.svg. Then it kills a primary provider in the
// middle of a third run, and shows the calls arriving at the backup.
//
//	go run ./examples/fleet
//
// It ends by itself in about 40 seconds; in status 1 if more than one call in a
// hundred of the paced run was refused, or if a paced job was lost; in 2 if the
// command line was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/term"

	"github.com/meteredhttp/meteredhttp/middleware"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends it at once
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is the program as a function, and returns its exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	d := demonstration{options: o, network: loopback, stdout: stdout}
	if f, ok := stdout.(*os.File); ok {
		d.terminal = term.IsTerminal(int(f.Fd())) && !o.verbose
	}
	flush := func(context.Context) error { return nil }
	if o.verbose {
		// A terminal that is slow to take the lines does not hold up the calls.
		log := middleware.Async(middleware.NewSlogObserver(slog.New(slog.NewTextHandler(stderr, nil))), 0)
		d.observer, flush = log, log.Flush
	}
	err = errors.Join(d.show(ctx), flush(context.WithoutCancel(ctx)))
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "fleet: interrupted")
		return 130
	case err != nil:
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}
