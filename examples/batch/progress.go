package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// A progress is a bar with the time left on a terminal, and nothing elsewhere.
type progress struct {
	bar *progressbar.ProgressBar
	w   io.Writer
}

func newProgress(w io.Writer, terminal bool, jobs int) progress {
	if !terminal {
		return progress{}
	}
	return progress{progressbar.NewOptions(jobs,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
	), w}
}

func (p progress) step() {
	if p.bar != nil {
		_ = p.bar.Add(1) // a bar that cannot be drawn is no reason to stop
	}
}

func (p progress) end() {
	if p.bar != nil {
		_ = p.bar.Exit()
		fmt.Fprintln(p.w)
	}
}
