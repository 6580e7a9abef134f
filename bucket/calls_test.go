package bucket

import (
	"testing"

	"pgregory.net/rapid"
)

// after agrees with a walk over every call that ever was.
func TestAfterIsTheSumOfAllLaterCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type record struct {
			c    *call
			cost Cost
			open bool
		}
		var s calls
		var all []*record
		cost := rapid.Custom(func(t *rapid.T) Cost {
			n := rapid.Int64Range(0, 100)
			return Cost{n.Draw(t, "requests"), n.Draw(t, "in"), n.Draw(t, "out")}
		})
		a := &account{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			var open []*record
			for _, r := range all {
				if r.open {
					open = append(open, r)
				}
			}
			if len(open) == 0 || rapid.IntRange(0, 2).Draw(t, "what") > 0 {
				r := &record{cost: cost.Draw(t, "cost"), open: true}
				r.c = s.begin(a, 0, r.cost)
				all = append(all, r)
			} else {
				r := open[rapid.IntRange(0, len(open)-1).Draw(t, "which")]
				r.cost, r.open = cost.Draw(t, "final"), false
				s.end(r.c, r.cost)
			}
			for i, r := range all {
				if !r.open {
					continue
				}
				var want Cost
				for _, later := range all[i+1:] {
					want = want.plus(later.cost)
				}
				if got := s.after(r.c); got != want {
					t.Fatalf("after call %d: %+v, want %+v", i, got, want)
				}
			}
		}
	})
}
