package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// fabricated is a result of that name with calls served and refused evenly over
// a time, and latencies of 10 ms, 20 ms and so on.
func fabricated(name string, served, refused int, over time.Duration) result {
	r := result{name: name, began: time.Unix(1000, 0)}
	r.ended = r.began.Add(over)
	var ledger []metertest.Entry
	for i := range served + refused {
		at := r.began.Add(over * time.Duration(i) / time.Duration(served+refused))
		ledger = append(ledger, metertest.Entry{At: at, Admitted: i%(served+refused) < served})
	}
	for i := range served {
		r.outcomes = append(r.outcomes, outcome{picked: r.began, took: time.Duration(i+1) * 10 * time.Millisecond})
	}
	r.ledgers = [][]metertest.Entry{ledger}
	return r
}

func TestTheNearestRank(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100-i) * time.Second
	}
	for _, c := range []struct {
		values []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{hundred[:1], 0.99, 100 * time.Second},
		{hundred, 0.50, 50 * time.Second},
		{hundred, 0.99, 99 * time.Second},
		{hundred, 0.991, 100 * time.Second},
		{hundred, 1, 100 * time.Second},
		{hundred, 0, 1 * time.Second},
	} {
		if got := nearestRank(append([]time.Duration(nil), c.values...), c.p); got != c.want {
			t.Errorf("%v of %d values: %v, want %v", c.p, len(c.values), got, c.want)
		}
	}
}

func TestLatencyIsThatOfServedJobsAlone(t *testing.T) {
	r := fabricated("x", 10, 0, time.Second)
	for range 90 {
		r.outcomes = append(r.outcomes, outcome{took: time.Hour, err: errors.New("lost")})
	}
	if got := r.latency(0.99); got != 100*time.Millisecond {
		t.Errorf("p99 is %v", got)
	}
	if n, why := r.lost(); n != 90 || why == nil {
		t.Errorf("%d lost, %v", n, why)
	}
}

func TestTheTable(t *testing.T) {
	var out strings.Builder
	writeComparison(&out, 10*time.Second, fabricated("naive", 1000, 3000, 10500*time.Millisecond), fabricated("paced", 1000, 1, 11*time.Second))
	const want = `
                                   naive       paced
served                             1,000       1,000
refused                            3,000           1
wasted share of calls             75.0 %       0.1 %
jobs lost                              0           0
makespan                         10.50 s     11.00 s
against the least, 10.00 s        x 1.05      x 1.10
latency of a job, p50             5.00 s      5.00 s
latency of a job, p99             9.90 s      9.90 s
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
}

func TestAResultWithoutCallsWastedNothing(t *testing.T) {
	if got := (result{}).wasted(); got != 0 {
		t.Errorf("wasted %v", got)
	}
}
