package main

import (
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
)

// A screen shows a line that changes while something is under way.
type screen struct {
	out io.Writer
	// rewrite draws each line over the one before, as on a terminal; without it
	// lines come seldom and below each other, as in a log.
	rewrite bool
}

// show draws line again and again until the function that it returns is called;
// that draws it for the last time.
func (s screen) show(line func() string) (hide func()) {
	// On a terminal the rest of the line before is erased, and what is too long for
	// the width is cut rather than wrapped, since \r would not come back from there.
	every, form := 2*time.Second, "%s\n"
	if s.rewrite {
		every, form = 100*time.Millisecond, "\x1b[?7l\r%s\x1b[K\x1b[?7h"
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(s.out, form, line())
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
		fmt.Fprintf(s.out, form, line())
		if s.rewrite {
			fmt.Fprintln(s.out)
		}
	}
}

// status is the live line of a run: queued calls are those that a worker has taken
// up and that are not on the wire. It fits a terminal of 80 columns.
func (r run) status(since time.Duration, sent, queued int64) string {
	served, refused, tokens := 0, 0, int64(0)
	for _, p := range r.providers {
		served += p.Served()
		refused += p.Refused()
		tokens += p.Tokens()
	}
	return fmt.Sprintf("%-5s%5.1f s  sent %5s  served %5s  refused %5s  tokens %5sk  queue %3d",
		r.name, since.Seconds(), comma(sent), comma(served), comma(refused), comma(tokens/1000), max(queued, 0))
}

// comma writes n with a comma between thousands.
func comma[N int | int64](n N) string { return humanize.Comma(int64(n)) }
