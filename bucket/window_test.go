package bucket

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The log agrees with a plain list of charges about what is used, when there is room again, and
// what a refund gives back.
func TestWindowAgreesWithAPlainList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{Amount: rapid.Int64Range(1, 50).Draw(t, "amount"), Per: 100, Shape: Window}
		w := newWindow(l, headroomSteps)
		type entry struct {
			at, cost, pos int64
		}
		var list []*entry
		used := func(now int64) (sum int64) {
			for _, e := range list {
				if now-e.at < w.per {
					sum += e.cost
				}
			}
			return sum
		}
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 40).Draw(t, "dt")
			w.expire(now)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				cost := rapid.Int64Range(0, 60).Draw(t, "cost")
				list = append(list, &entry{now, cost, w.charge(now, cost)})
			case 2:
				if len(list) > 0 {
					e := list[rapid.IntRange(0, len(list)-1).Draw(t, "which")]
					back := rapid.Int64Range(0, e.cost).Draw(t, "back")
					w.refund(e.pos, back)
					e.cost -= back
				}
			case 3:
				cost := rapid.Int64Range(0, 30).Draw(t, "relief")
				w.relieve(cost)
				for _, e := range list {
					if now-e.at < w.per {
						back := min(cost, e.cost)
						e.cost -= back
						cost -= back
					}
				}
			}
			if w.used != used(now) {
				t.Fatalf("used %d, want %d", w.used, used(now))
			}
			ahead := now + rapid.Int64Range(0, 120).Draw(t, "ahead")
			if got := w.usedAt(ahead); got != used(ahead) {
				t.Fatalf("used %d at %d, want %d", got, ahead, used(ahead))
			}
			room := rapid.Int64Range(0, 50).Draw(t, "room")
			at := now
			for used(at) > room {
				at++
			}
			if got := w.reach(now, room); got != at {
				t.Fatalf("reach(%d, %d) = %d, want %d", now, room, got, at)
			}
		}
	})
}

func TestWindowDrainsALineInRounds(t *testing.T) {
	w := newWindow(Limit{Amount: 10, Per: time.Second, Shape: Window}, headroomSteps)
	w.charge(0, 6)
	w.charge(3e8, 4)
	sec := int64(time.Second)
	for _, tt := range []struct{ total, want int64 }{
		{0, 5e8}, {1, sec}, {6, sec}, {7, sec + 3e8}, {10, sec + 3e8},
		{11, 2 * sec}, {16, 2 * sec}, {17, 2*sec + 3e8}, {20, 2*sec + 3e8}, {21, 3 * sec},
	} {
		if got := w.drain(5e8, tt.total, 10, 10); got != tt.want {
			t.Errorf("a line of %d is gone at %d, want %d", tt.total, got, tt.want)
		}
	}
}
