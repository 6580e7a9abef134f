package meteredredis

import (
	"context"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A booked is a call that the script let go: at an instant, for a cost of each limit, less what came back.
type booked struct {
	at    int64
	costs []int64
	ramp  int64
	over  bool
}

// worst returns by how much the calls go beyond a limit in their worst window, by brute force over all of them.
func worst(l *limit, all []booked, i int) float64 {
	most := math.Inf(-1)
	for from := range all {
		sum := int64(0)
		for to := from; to < len(all); to++ {
			sum += all[to].costs[i]
			span := float64(all[to].at - all[from].at)
			allowed := float64(l.capacity) + l.rate*span
			if l.Shape == bucket.Window {
				if span >= l.per {
					break
				}
				allowed = float64(l.capacity)
			}
			most = max(most, float64(sum)-allowed)
		}
	}
	return most
}

// Contracts 1, 2, 3, 8, 9 and 12 over several processes on one budget: whatever they take, give back, are charged
// beside and hold, in every window no limit admits more than it may; all limits are charged or none; nobody leaves
// under a hold; after it the ramp bounds who is out; who is refused is told a wait after which he fits, and a
// bound before which he does not.
func TestScriptOverProcesses(t *testing.T) {
	c := connect(t)
	rapid.Check(t, func(rt *rapid.T) {
		limits := drawLimits(rt, rapid.Int64Range(5, 100), bucket.TokenBucket, bucket.Window)
		first := newBench(t, c, t.Name(), limits...)
		benches := []*bench{first, first.another(2), first.another(3)}
		small := make([]int64, len(limits)) // the largest cost that no limit takes for oversize
		for i := range small {
			small[i] = min(first.limits[i].capacity, 40)
		}
		var all []booked
		var open []int
		var cum []int64
		var held int64
		ramp, size, proven := int64(0), 1<<30, 0
		now := first.now
		longest := time.Duration(0)
		for _, l := range limits {
			longest = max(longest, l.Per)
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now += rapid.OneOf(rapid.Int64Range(0, longest.Microseconds()/4), rapid.Int64Range(0, longest.Microseconds()/600)).Draw(rt, "later")
			b := rapid.SampledFrom(benches).Draw(rt, "process")
			b.now = now
			out := new(batch)
			end := func() int {
				j := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
				k := open[j]
				open = append(open[:j], open[j+1:]...)
				if a := &all[k]; a.ramp != 0 {
					out.ops = append(out.ops, []string{opLeft, whole(a.ramp)})
				}
				return k
			}
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what == 0 && len(open) > 0: // settled for less
				a := &all[end()]
				for i := range a.costs {
					back := rapid.Int64Range(0, a.costs[i]).Draw(rt, "back")
					out.ops = append(out.ops, []string{opRefund, whole(int64(i + 1)), whole(back), whole(a.at)})
					if limits[i].Shape == bucket.Window {
						a.costs[i] -= back // of a bucket it comes back now, and may be lost above the brim
					} else if back > 0 {
						all = append(all, booked{at: now, costs: make([]int64, len(limits))})
						all[len(all)-1].costs[i] = -back
					}
				}
			case what == 1: // charged beside
				i := rapid.IntRange(0, len(limits)-1).Draw(rt, "limit")
				out.ops = append(out.ops, []string{opExtra, whole(int64(i + 1)), whole(rapid.Int64Range(0, 30).Draw(rt, "extra"))})
			case what == 2 && len(open) > 0: // refused
				end()
				span := rapid.Int64Range(1, 20_000_000).Draw(rt, "hold")
				out.ops = append(out.ops, []string{opHold, whole(span)})
				held = max(held, now+span)
				ramp, size, proven = ramp+1, 1, 0
			case what == 3 && len(open) > 0: // served
				a := &all[end()]
				out.ops = append([][]string{{opServed, whole(a.ramp)}}, out.ops...)
				if a.ramp != 0 && a.ramp == ramp {
					if proven++; proven >= size {
						size, proven = size*2, 0
					}
				}
			}
			n := rapid.IntRange(0, 4).Draw(rt, "calls")
			costs := make([]int64, len(limits))
			for i := range costs {
				costs[i] = rapid.Int64Range(0, small[i]).Draw(rt, "cost")
			}
			if n > 0 {
				out.groups = []group{{n, costs}}
				out.age = time.Duration(rapid.Int64Range(0, 10_000).Draw(rt, "age")) * time.Millisecond
			}
			r := b.run(rt, out)
			if r.declare || r.granted < 0 || r.granted > n || r.probe != 0 {
				rt.Fatalf("%+v", r)
			}
			if r.granted > 0 && now < held {
				rt.Fatalf("%d left under a hold of %d us yet", r.granted, held-now)
			}
			if (r.granted < n) != (r.wait > 0) {
				rt.Fatalf("%d of %d left, to wait %v", r.granted, n, r.wait)
			}
			for i := range limits {
				if cum != nil && r.limits[i].charged != cum[i] {
					rt.Fatalf("limit %d was charged %d, the calls that left cost %d", i, r.limits[i].charged, cum[i])
				}
			}
			cum = make([]int64, len(limits))
			for i := range cum {
				cum[i] = r.limits[i].charged + int64(r.granted)*costs[i]
				if have := r.limits[i].available; have > float64(b.limits[i].capacity) || math.IsNaN(have) {
					rt.Fatalf("limit %d has %v of %d", i, have, b.limits[i].capacity)
				}
			}
			for range r.granted {
				open = append(open, len(all))
				all = append(all, booked{at: now, costs: append([]int64(nil), costs...), ramp: r.ramp})
			}
			if r.ramp != 0 && r.granted > 0 {
				out := 0
				for _, k := range open {
					if all[k].ramp == r.ramp {
						out++
					}
				}
				if lost := 1; out > size+lost && longest < b.config.answerTime() {
					rt.Fatalf("%d are out in a ramp of %d", out, size)
				}
			}
			if ttl := c.PTTL(context.Background(), b.name).Val(); ttl < 2*longest-5*time.Second {
				rt.Fatalf("lives for %v", ttl)
			}
			if r.granted == n || now < held || r.ramp != 0 {
				continue
			}
			// What is said of the future, asked of the same process with nothing between.
			again := func(at int64) reply {
				probe := *b
				probe.now = at
				c.Copy(context.Background(), b.name, b.name+"copy", 0, true)
				probe.name = b.name + "copy"
				return probe.run(rt, &batch{age: out.age + time.Duration(at-now)*time.Microsecond, groups: []group{{1, costs}}})
			}
			if us := r.window.Microseconds(); us > 1 {
				if r := again(now + us - 1); r.granted != 0 {
					rt.Fatalf("fits a microsecond before the %d us that a window was to keep it", us)
				}
			}
			if r := again(now + r.wait.Microseconds() + 1); r.granted != 1 && r.wait > time.Second {
				rt.Fatalf("does not fit when it was told to come, but %v later", r.wait)
			}
		}
		for i := range limits {
			if over := worst(&first.limits[i], all, i); over > 1e-6 {
				rt.Fatalf("limit %v: %.6f too many in a window", limits[i], over)
			}
		}
	})
}
