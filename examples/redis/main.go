// Redis shows one budget for a fleet. It starts a redis-server of its own, a metered provider on loopback, and
// four worker processes of 32 goroutines each, which all draw on one budget in the store. In the middle it kills
// the redis-server and starts it again. Then it does the same without sharing: each process with a limiter of its
// own that believes in the whole limit.
//
//	go run ./examples/redis
//	go run ./examples/redis -redis redis://localhost:6379/0
//
// With an engine given by -redis nothing is killed. It ends by itself in about half a minute; in status 1 if a call
// failed or if the joint rate of the sharing fleet did not hold, in 2 if the command line was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if os.Getenv(workerEnv) != "" {
		os.Exit(work(ctx, os.Getenv(workerEnv), os.Stdout, os.Stderr))
	}
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the command line's.
type options struct {
	redis      string
	workers    int
	goroutines int
	span       time.Duration
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("redis", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "redis lets processes draw on one budget in a store, which it kills in the middle, and\nthen on one each, and compares.\n\nUsage: go run ./examples/redis [flags]\n\n")
		f.PrintDefaults()
	}
	f.StringVar(&o.redis, "redis", "", "`URL` of an engine; empty starts a redis-server, and kills it")
	f.IntVar(&o.workers, "workers", 4, "`number` of worker processes")
	f.IntVar(&o.goroutines, "goroutines", 32, "`number` of goroutines in each")
	f.DurationVar(&o.span, "span", 12*time.Second, "`time` that each of the two runs takes")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("redis: unexpected argument %q", f.Arg(0))
	case o.workers < 1 || o.goroutines < 1:
		err = errors.New("redis: -workers and -goroutines must be at least 1")
	case o.span < 3*time.Second:
		err = errors.New("redis: -span must be at least 3s")
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return o, err
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
	if err := show(ctx, o, stdout); err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(stderr, "redis: interrupted")
			return 130
		}
		fmt.Fprintln(stderr, "redis:", err)
		return 1
	}
	return 0
}
