// Sidecar is a reverse proxy over a Stack: agents in any language call it in the
// place of their provider, and share one budget.
//
//	go run ./examples/sidecar -upstream https://api.openai.com -rpm 500 -tpm 200000
//	OPENAI_BASE_URL=http://127.0.0.1:8080/v1 python agent.py
//
//	go run ./examples/sidecar -demo    # against a provider of its own; ends by itself
//
// An agent's credentials pass through as they are, and so do answers. A refusal is
// resent up to five times; the provider's last one then comes through, also where
// it asks for a longer wait than -wait. What the sidecar says itself is JSON as the
// providers' SDKs read it: {"type":"error","error":{"type","code","message"}}.
//
//	429, with Retry-After    no budget within -wait, or every route rests
//	429, 503                 every route has refused, and none said for how long
//	504                      the upstream did not answer in time
//	502                      it could not be reached
//
// Agents should retry nothing themselves (max_retries=0): the sidecar has done so.
// That goes for a POST too whose connection was lost, or that was answered with a
// 5xx, and nobody can tell whether the provider has carried it out. So a lost call
// may be billed twice.
//
// -wait bounds each wait for the budget. A call has one before each send, so one
// that is refused and sent again may take several times as long, and the answer's
// own time besides. An agent that will not wait so long hangs up: its call then
// leaves the queue.
//
// Streams pass unbuffered. But a provider may answer 200, and then send an overload
// error as the first event: that is a refusal like any other. So a stream's headers
// reach the agent with its first event, or after 10 s.
//
// A request is kept up to 8 MiB, so that it can be sent again. An interrupt, or
// SIGTERM, ends the sidecar when its calls have ended; a second one ends it at once.
//
// What a provider's answers mean is told by its host. For another host, a gateway's
// say, -provider names the provider that it speaks like: -provider openai
//
// A backup gets the request with the agent's credentials taken out, and the header
// in SIDECAR_BACKUP_HEADER put in: SIDECAR_BACKUP_HEADER="Authorization: Bearer sk-..."
//
// Everybody who reaches -listen can use it: keep it on loopback.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
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
	if o.demo {
		err = demonstrate(ctx, stdout, loopback)
	} else {
		err = run(ctx, o, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// run serves until ctx is done and the calls that are open then have ended.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	p, err := newProxy(o, newTransport(), stderr)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("sidecar: %w", err)
	}
	fmt.Fprintf(stdout, "sidecar: http://%s is %s\n", listener.Addr(), o.upstream)
	context.AfterFunc(ctx, func() { fmt.Fprintln(stderr, "sidecar: stopping when all calls have ended") })
	err = serve(ctx, listener, p)
	told, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.log.Flush(told) != nil || p.log.Dropped() > 0 {
		fmt.Fprintf(stdout, "sidecar: the log is read too slowly; %d lines were dropped\n", p.log.Dropped())
	}
	for _, k := range p.stack.Stats().Keys {
		fmt.Fprintf(stdout, "sidecar: %s: %d sent, %d served, health %s\n", k.Key, k.Sends, k.Served, k.Health)
	}
	return err
}

// newTransport returns one that keeps connections for many agents to one host, and
// neither asks for compression that an agent has not asked for nor undoes it.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = t.MaxIdleConns
	t.DisableCompression = true
	return t
}
