// Dashboard shows adapters/dashboard at work. It calls an embedded metered provider on several keys: one whose
// limit was set ten times too high, until it is put right in the middle; one that is paced from the start; one that
// is held now and then; and a quiet one. The page is served on loopback meanwhile.
//
//	go run ./examples/dashboard            # until Ctrl-C
//	go run ./examples/dashboard -for 20s
//
// With -png and -for it takes a picture of the page by headless Chromium, if there is one.
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
	"time"

	"github.com/meteredhttp/meteredhttp/adapters/dashboard"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is the program as a function, and returns its exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("dashboard", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "dashboard shows the page over a metered provider: a storm of refusals, and its cure.\n\nUsage: go run ./examples/dashboard [flags]\n\n")
		f.PrintDefaults()
	}
	span := f.Duration("for", 0, "`time` after which it ends; 0 for never")
	listen := f.String("listen", "127.0.0.1:0", "`address` to serve the page at; keep it on loopback")
	png := f.String("png", "", "`file` for a picture of the page, which takes -for and Chromium")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case f.NArg() > 0 || *span < 0:
		fmt.Fprintln(stderr, "dashboard: unexpected arguments, or a negative -for")
		return 2
	case *png != "" && *span == 0:
		fmt.Fprintln(stderr, "dashboard: -png without -for: the picture is taken at three quarters of it")
		return 2
	}
	if err := show(ctx, *span, *listen, *png, stdout); err != nil {
		fmt.Fprintln(stderr, "dashboard:", err)
		return 1
	}
	return 0
}

func show(ctx context.Context, span time.Duration, listen, png string, stdout io.Writer) error {
	s, err := newScene()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/metered/", http.StripPrefix("/debug/metered", dashboard.Handler(s.stack)))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(l)
	defer server.Close()
	url := "http://" + l.Addr().String() + "/debug/metered/"
	fmt.Fprintf(stdout, "watch %s\n", url)

	work, end := context.WithCancel(ctx)
	defer end()
	if span > 0 {
		work, end = context.WithTimeout(ctx, span)
		defer end()
	}
	took := make(chan error, 1)
	if png != "" { // while there is something to see
		go func() {
			select {
			case <-time.After(span * 3 / 4):
				took <- screenshot(ctx, url, png)
			case <-work.Done():
				took <- work.Err()
			}
		}()
	}
	s.run(work, span)
	for i, k := range s.stack.Stats().Keys {
		storm, since := s.refusals(i)
		fmt.Fprintf(stdout, "%-24s  sent %5d, refused %4.1f %% before the limit was put right and %4.1f %% since\n", k.Key, k.Sends, 100*storm, 100*since)
	}
	if png != "" {
		switch err := <-took; {
		case errors.Is(err, errNoBrowser):
			fmt.Fprintf(stdout, "no %s: %v\n", png, err)
		case err != nil && ctx.Err() == nil:
			return err
		default:
			fmt.Fprintf(stdout, "the page is in %s\n", png)
		}
	}
	return nil
}
