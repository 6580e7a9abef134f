package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
)

type options struct {
	jobs    int
	workers int
	seed    uint64
	picture string
	verbose bool
}

// parse reads the command line. Usage, and what is wrong, goes to stderr.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("fleet", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "fleet sends one batch of jobs to a metered provider twice, naively and through\nmeteredhttp, and compares.\n\nUsage: go run ./examples/fleet [flags]\n\n")
		f.PrintDefaults()
	}
	f.IntVar(&o.jobs, "jobs", 800, "`number` of jobs in the batch; with the default the whole takes about 40 s")
	f.IntVar(&o.workers, "workers", 100, "`number` of goroutines that send them")
	f.Uint64Var(&o.seed, "seed", 1, "`seed` of the jobs' sizes")
	f.StringVar(&o.picture, "out", "fleet.svg", "`file` for the picture; empty for none")
	f.BoolVar(&o.verbose, "v", false, "log refusals, holds and reroutes")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.validate(f.Args())
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return o, err
}

// The most that the flags allow: a batch of some forty minutes, and workers whose
// connections, with both ends in this process, still fit a usual limit of open
// files.
const (
	maxJobs    = 100_000
	maxWorkers = 1_000
)

func (o options) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("fleet: unexpected argument %q: there are only flags", rest[0])
	case o.jobs < 1 || o.jobs > maxJobs:
		return fmt.Errorf("fleet: -jobs is %d, must be from 1 to %d", o.jobs, maxJobs)
	case o.workers < 1 || o.workers > maxWorkers:
		return fmt.Errorf("fleet: -workers is %d, must be from 1 to %d", o.workers, maxWorkers)
	case o.picture == "":
		return nil
	}
	if err := writable(o.picture); err != nil {
		return fmt.Errorf("fleet: -out: %w", err)
	}
	return nil
}

// writable finds out before the runs whether a picture can be written after them.
// It leaves everything as it was.
func writable(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		if f, err = os.OpenFile(name, os.O_WRONLY, 0); err != nil {
			return err
		}
		return f.Close()
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(name))
}
