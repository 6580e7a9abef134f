package escalate

import (
	"testing"

	"github.com/sony/gobreaker/v2"
)

func benchRouter(b *testing.B) *Router {
	r, err := New(Config{Primary: Route{Name: "p"}, Backups: []Route{{Name: "b", URL: "https://b.example"}}})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// BenchmarkAllowDone is the hot path: a call through a closed gate.
func BenchmarkAllowDone(b *testing.B) {
	r := benchRouter(b)
	b.ReportAllocs()
	for b.Loop() {
		p, err := r.Allow(0)
		if err != nil {
			b.Fatal(err)
		}
		p.Done(Outcome{})
	}
}

func BenchmarkAllowDoneParallel(b *testing.B) {
	r := benchRouter(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := r.Allow(0)
			if err != nil {
				b.Error(err)
				return
			}
			p.Done(Outcome{})
		}
	})
}

// BenchmarkGobreaker is what gobreaker's own two steps cost, to compare with.
func BenchmarkGobreaker(b *testing.B) {
	cb := gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{})
	b.ReportAllocs()
	for b.Loop() {
		done, err := cb.Allow()
		if err != nil {
			b.Fatal(err)
		}
		done(nil)
	}
}

func BenchmarkAdmits(b *testing.B) {
	r := benchRouter(b)
	b.ReportAllocs()
	for b.Loop() {
		r.Admits(0)
	}
}

func TestAllowDoneAllocatesOneClosure(t *testing.T) {
	r, err := New(Config{Primary: Route{Name: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	got := testing.AllocsPerRun(1000, func() {
		p, _ := r.Allow(0)
		p.Done(Outcome{})
	})
	if limit := 1.0; got > limit && !raceEnabled {
		t.Errorf("Allow and Done allocate %v times, want at most %v", got, limit)
	}
}
