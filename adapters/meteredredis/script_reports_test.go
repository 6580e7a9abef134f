package meteredredis

import (
	"testing"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Contract 10: a report sets the level, less all that was admitted since; an older one only lowers it.
func TestScriptReports(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 100))
	first := b.run(t, b.takes(1, 10))
	second := b.run(t, b.takes(1, 20))
	report := func(r reply, cost, remaining int64, literal bool) float64 {
		return b.run(t, &batch{ops: [][]string{{opReport, "1", whole(r.number + 1), whole(r.limits[0].charged + cost),
			whole(r.limits[0].extra), whole(remaining), truth(literal)}}}).limits[0].available
	}
	if got := report(first, 10, 50, true); got != 30 {
		t.Errorf("the first says 50 are left, and 20 were taken since: %v", got)
	}
	if got := report(second, 20, 60, true); got != 60 {
		t.Errorf("the second says 60 are left: %v", got)
	}
	if got := report(first, 10, 90, true); got != 60 {
		t.Errorf("an older answer raised the level to %v", got)
	}
	if got := report(first, 10, 40, true); got != 20 {
		t.Errorf("an older answer may lower it: %v", got)
	}
	// Beside a limit of one's own, what the server says holds too, and raises nothing.
	if got := report(second, 20, 1000, false); got != 20 {
		t.Errorf("a report of plenty raised a limit of one's own to %v", got)
	}
	if got := report(second, 20, 7, false); got != 7 {
		t.Errorf("the server has 7, the level is %v", got)
	}
	if got := report(second, 20, 15, false); got != 15 {
		t.Errorf("the server has 15, the level is %v", got)
	}
}

// Contract 10: an extra charge that came after the admission which reports is not in what it reports.
func TestScriptReportsBeforeExtras(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 100))
	r := b.run(t, b.takes(1, 10))
	b.run(t, &batch{ops: [][]string{{opExtra, "1", "15"}}})
	got := b.run(t, &batch{ops: [][]string{{opReport, "1", whole(r.number + 1), whole(r.limits[0].charged + 10), "0", "50", "1"}}})
	if got.limits[0].available != 35 {
		t.Errorf("50 were left before 15 more were charged: %v", got.limits[0].available)
	}
}
