package bucket

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The heap is a sorted list, whoever comes, returns or leaves.
func TestLineIsSortedByPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l line
		var list []*waiter
		next := int64(0)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
			case what < 2 || len(list) == 0:
				next += 10
				at := next
				if what == 0 { // one that comes again
					at = rapid.Int64Range(1, next).Draw(t, "at")
				}
				w := &waiter{place: Place{at}}
				l.push(w)
				i, _ := slices.BinarySearchFunc(list, at, func(w *waiter, at int64) int { return int(w.place.at - at) })
				list = slices.Insert(list, i, w)
			default:
				i := 0
				if what == 3 {
					i = rapid.IntRange(0, len(list)-1).Draw(t, "who")
				}
				l.remove(list[i])
				if list[i].index >= 0 {
					t.Fatal("still in line")
				}
				list = slices.Delete(list, i, i+1)
			}
			if l.len() != len(list) {
				t.Fatalf("%d in line, want %d", l.len(), len(list))
			}
			for _, w := range list {
				if l.heap[w.index].w != w {
					t.Fatal("a waiter has lost its index")
				}
			}
			if len(list) == 0 {
				continue
			}
			if l.head().place != list[0].place {
				t.Fatalf("head at %v, want %v", l.head().place, list[0].place)
			}
			p := list[rapid.IntRange(0, len(list)-1).Draw(t, "before")].place
			n := 0
			l.before(p, func(w *waiter) { n++ })
			want := slices.IndexFunc(list, func(w *waiter) bool { return !w.place.before(p) })
			if n != want {
				t.Fatalf("%d stand before %v, want %d", n, p, want)
			}
		}
	})
}
