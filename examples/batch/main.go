// Batch sends a file of jobs to a metered API. Before the first send it says how
// long that will take, which limit binds, when each tenth will be done, and what a
// daily limit will cut off; at the end, how that compares.
//
//	go run ./examples/batch -demo      # a provider of its own; interrupts itself, resumes, and ends
//	go run ./examples/batch -jobs jobs.csv -url https://api.example.com/v1/things -rpm 600 -tpm 400000
//
// A CSV file begins with the names of its columns: id and tokens, and, if there are
// any, output_tokens and body. A file that ends in .jsonl has one object a line,
// with the same names; its body is any JSON. Each job is one POST of its body. An
// id is there once, and tokens are what the call will be charged, as estimated.
//
// An interrupt stops it: calls that are on the wire are waited for, and nothing
// else is sent. The same command resumes. A second interrupt ends it at once.
//
// # Nothing is sent twice
//
// The journal, jobs.csv.journal, has a line for each send before it leaves, and one
// for each answer, on the disk before the program goes on. What is answered is
// done, with whatever status; refusals (429, 503, 529) are not answers. A job that
// was sent and has no answer, since the program, or the connection, was killed in
// between, may have been carried out or not; only the server knows. Such jobs are
// named and left out, unless
//
//   - -idempotent sends an Idempotency-Key with each job, the same after a resume, and
//     the server is known to honour it: then they go out again by themselves; or
//   - -resend says that twice is better than never.
//
// One process at a time may use a journal. The results, in the order of the jobs,
// are in jobs.csv.results.jsonl when it ends.
//
// A header such as a credential is in BATCH_HEADER, as "Name: value".
//
// The status is 0 when every job has an answer of 2xx; 1 when one has not, or what
// went wrong is on stderr; 2 when the command line or the file of jobs is wrong; and
// 130 after an interrupt.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends it at once
	os.Exit(command(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// command is the program as a function, and returns its exit status.
func command(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, err := parse(args, getenv, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	b := batch{options: o, stdout: stdout}
	if f, ok := stdout.(*os.File); ok {
		b.terminal = term.IsTerminal(int(f.Fd()))
	}
	if o.demo {
		err = demonstrate(ctx, b, loopback)
	} else {
		if b.jobs, err = readJobs(o.jobs); err != nil {
			fmt.Fprintln(stderr, err)
			return 2
		}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = o.workers
		defer transport.CloseIdleConnections()
		b.base = transport
		err = b.run(ctx)
	}
	switch {
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(stderr, err)
		return 130
	case err != nil:
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}
