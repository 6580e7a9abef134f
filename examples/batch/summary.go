package main

import (
	"fmt"
	"io"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A summary is what a run came to.
type summary struct {
	jobs, before int // in all; done before
	sent         int // answered in this run
	done, failed int // in all; failed: answered with another status than 2xx
	unsent       int // neither answered nor in doubt
	refused      int64
	lost, doubt  []string // ids: without an answer in this run; in doubt by now
	why          error    // the last that was lost
	took         time.Duration
	forecast     bucket.Forecast
}

func (s *summary) write(w io.Writer, results string) {
	fmt.Fprintf(w, "%s of %s jobs done, %s of them now", comma(s.done), comma(s.jobs), comma(s.sent))
	if s.failed > 0 {
		fmt.Fprintf(w, "; %s answered with an error", comma(s.failed))
	}
	fmt.Fprintf(w, "; %d refused on the way\n", s.refused)
	if n := len(s.lost); n > 0 {
		fmt.Fprintf(w, "  no answer    %s (%v)\n", some(s.lost), s.why)
	}
	if n := len(s.doubt); n > 0 {
		fmt.Fprintf(w, "  in doubt     %s\n", some(s.doubt))
	}
	// An interrupted run is held against what was to be done by then.
	if predicted, part, ok := s.predicted(); ok {
		fmt.Fprintf(w, "  predicted    %s for %s\n  actual       %s, %+.1f %%\n", short(predicted), part, short(s.took),
			100*(s.took.Seconds()/predicted.Seconds()-1))
	}
	fmt.Fprintf(w, "  results      %s\n", results)
}

// predicted is the forecast for what was done in this run.
func (s *summary) predicted() (predicted time.Duration, part string, ok bool) {
	planned := s.forecast.Jobs
	switch {
	case s.sent == 0 || planned == 0 || s.forecast.Takes == 0:
		return 0, "", false
	case s.sent >= planned:
		return s.forecast.Takes, "all of it", true
	}
	// Between two tenths time goes evenly, as far as a forecast of tenths knows.
	share := 10 * float64(s.sent) / float64(planned)
	i := int(share)
	low := time.Duration(0)
	if i > 0 {
		low = s.forecast.Tenths[i-1]
	}
	predicted = low + time.Duration((share-float64(i))*float64(s.forecast.Tenths[i]-low))
	return predicted, fmt.Sprintf("these %s", comma(s.sent)), predicted > 0
}
