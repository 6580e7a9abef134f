package bench

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

// side is one of those who are compared: it does the same thing n times.
type side struct {
	name string
	run  func(n int)
}

// inTurns has every side do at least b.N operations, in blocks and by turns, so
// that whatever else the machine is doing meets them all alike. It returns the
// nanoseconds of one operation, for each side.
//
// The slower half of the rounds, by the time of all sides together, is left out:
// there the machine was busy with something else.
func inTurns(b *testing.B, block int, sides ...side) []float64 {
	b.Helper()
	for _, s := range sides {
		s.run(block)
	}
	runtime.GC()
	b.ResetTimer()

	type round struct {
		total time.Duration
		each  []time.Duration
	}
	rounds := make([]round, max(8, (b.N+block-1)/block))
	for i := range rounds {
		r := &rounds[i]
		r.each = make([]time.Duration, len(sides))
		for j := range sides {
			k := (i + j) % len(sides) // nobody is always first
			start := time.Now()
			sides[k].run(block)
			r.each[k] = time.Since(start)
			r.total += r.each[k]
		}
	}
	b.StopTimer()

	slices.SortFunc(rounds, func(a, b round) int { return int(a.total - b.total) })
	rounds = rounds[:len(rounds)/2]
	ns := make([]float64, len(sides))
	for _, r := range rounds {
		for k, d := range r.each {
			ns[k] += float64(d)
		}
	}
	for k := range ns {
		ns[k] /= float64(block * len(rounds))
	}
	return ns
}

// allocated returns what one operation of s allocates, on average.
func allocated(s side) (objects, bytes float64) {
	const n = 2000
	s.run(n) // pools and spare records are filled
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.run(n)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / n, float64(after.TotalAlloc-before.TotalAlloc) / n
}

// reportAllocated prints what ours allocates, where -benchmem would print what
// all sides allocate together.
func reportAllocated(b *testing.B, ours side) {
	b.Helper()
	objects, bytes := allocated(ours)
	b.ReportMetric(math.Floor(objects+0.01), "allocs/op")
	b.ReportMetric(bytes, "B/op")
}
