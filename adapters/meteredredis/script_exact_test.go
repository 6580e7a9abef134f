package meteredredis

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Contracts 1, 3, 7 and 8: what the script admits is what exact arithmetic admits, with refunds, extra charges
// and debt; and what it says one must wait is neither less than that nor a microsecond more.
func TestScriptIsExact(t *testing.T) {
	c := connect(t)
	rapid.Check(t, func(rt *rapid.T) {
		limits := drawLimits(rt, rapid.Int64Range(1, 1000), bucket.TokenBucket)
		b := newBench(t, c, t.Name(), limits...)
		level := make([]*big.Rat, len(limits)) // the model
		brim := make([]*big.Rat, len(limits))
		rate := make([]*big.Rat, len(limits))
		for i := range b.limits {
			l := &b.limits[i]
			brim[i] = new(big.Rat).SetInt64(l.capacity)
			level[i] = new(big.Rat).Set(brim[i])
			rate[i] = big.NewRat(l.Amount, l.Per.Microseconds())
		}
		add := func(i int, d *big.Rat) {
			if level[i].Add(level[i], d); level[i].Cmp(brim[i]) > 0 {
				level[i].Set(brim[i])
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			dt := rapid.Int64Range(0, 20_000_000).Draw(rt, "later")
			b.now += dt
			for i := range limits {
				add(i, new(big.Rat).Mul(rate[i], new(big.Rat).SetInt64(dt)))
			}
			out := &batch{}
			i := rapid.IntRange(0, len(limits)-1).Draw(rt, "which")
			cost := rapid.Int64Range(0, 40).Draw(rt, "amount of it")
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				out.ops = [][]string{{opRefund, whole(int64(i + 1)), whole(cost), whole(b.now)}}
				add(i, new(big.Rat).SetInt64(cost))
			case 1:
				out.ops = [][]string{{opExtra, whole(int64(i + 1)), whole(cost)}}
				add(i, new(big.Rat).SetInt64(-cost))
			default:
				costs := make([]int64, len(limits))
				for k := range costs {
					costs[k] = rapid.Int64Range(0, 60).Draw(rt, "cost")
				}
				out.groups = []group{{rapid.IntRange(1, 4).Draw(rt, "calls"), costs}}
			}
			r := b.run(rt, out)
			if len(out.groups) == 0 {
				continue
			}
			g := out.groups[0]
			// How many the model admits, and how long the next one waits there. Where a level is within a
			// millionth of what is needed, a double may be on either side.
			admitted, near, wait := 0, false, 0.0
			for admitted < g.n {
				fits := true
				wait = 0
				for k, cost := range g.costs {
					need := new(big.Rat).SetInt64(min(cost, b.limits[k].capacity))
					short, _ := new(big.Rat).Sub(need, level[k]).Float64()
					if math.Abs(short) < 1e-6 && short != 0 {
						near = true
					}
					if short > 0 {
						fits = false
						perMicro, _ := rate[k].Float64()
						wait = max(wait, short/perMicro)
					}
				}
				if !fits {
					break
				}
				for k, cost := range g.costs {
					add(k, new(big.Rat).SetInt64(-cost))
				}
				admitted++
			}
			if near {
				rt.Skip("too near to call")
			}
			if r.granted != admitted {
				rt.Fatalf("granted %d of %d at %v, the model %d", r.granted, g.n, g.costs, admitted)
			}
			if got := micros(r.wait); admitted < g.n && (got < wait-1e-3 || got > wait+2) || r.granted == g.n && r.wait != 0 {
				rt.Fatalf("to wait %v us, the model %v", got, wait)
			}
			if admitted < g.n && r.wait <= 0 {
				rt.Fatal("refused without a wait")
			}
			for k := range limits {
				exact, _ := level[k].Float64()
				if math.Abs(r.limits[k].available-exact) > 2e-5 {
					rt.Fatalf("limit %d has %v, the model %v", k, r.limits[k].available, exact)
				}
			}
		}
	})
}
