package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

func TestALogHasALineNowAndThenAndTheLast(t *testing.T) {
	if got, want := shownFor(t, screen{}, 5*time.Second), "2s\n4s\n5s\n"; got != want {
		t.Errorf("shown: %q, want %q", got, want)
	}
}

func TestATerminalHasOneLineRewritten(t *testing.T) {
	got := shownFor(t, screen{rewrite: true}, 250*time.Millisecond)
	const want = "\x1b[?7l\r100ms\x1b[K\x1b[?7h\x1b[?7l\r200ms\x1b[K\x1b[?7h\x1b[?7l\r250ms\x1b[K\x1b[?7h\n"
	if got != want {
		t.Errorf("shown: %q, want %q", got, want)
	}
}

// shownFor is what s shows of a clock in that time.
func shownFor(t *testing.T, s screen, d time.Duration) string {
	var out strings.Builder
	synctest.Test(t, func(t *testing.T) {
		s.out = &out
		began := time.Now()
		hide := s.show(func() string { return time.Since(began).String() })
		time.Sleep(d)
		hide()
	})
	return out.String()
}

func TestTheLiveLineOfTheWholeBatchFitsEightyColumns(t *testing.T) {
	r := run{name: "naive", providers: []*metertest.Provider{raceQuota.provider("api")}}
	line := r.status(99*time.Second, 9999, 999)
	if want := "naive 99.0 s  sent 9,999  served     0  refused     0  tokens     0k  queue 999"; line != want {
		t.Errorf("the line is\n%q, want\n%q", line, want)
	}
	if len(line) > 79 {
		t.Errorf("%d columns", len(line))
	}
}
