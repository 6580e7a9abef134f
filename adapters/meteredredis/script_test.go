package meteredredis

import (
	"context"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A bench runs the script on a clock of the test's: the same text, but for where it reads the time.
type bench struct {
	t       testing.TB
	client  *redis.Client
	source  string
	name    string
	now     int64 // microseconds
	config  Config
	limits  []limit
	speaker *speaker
	epoch   int64
}

func newBench(t testing.TB, c *redis.Client, name string, limits ...bucket.Limit) *bench {
	const clock = "redis.call('TIME')"
	if strings.Count(source, clock) != 1 {
		t.Fatal("the script does not read the time once")
	}
	b := &bench{t: t, client: c, name: name, now: 1_800_000_000_000_000, config: Config{Limits: limits, MaxWait: -1}.withDefaults()}
	b.source = strings.Replace(source, clock, "{ARGV[2], ARGV[3]}", 1)
	b.limits = limitsOf(limits, 1)
	b.speaker = newSpeaker(1, 77, &b.config, b.limits)
	if err := c.Del(context.Background(), name).Err(); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) run(t interface{ Fatal(...any) }, out *batch) reply {
	if out.speaker == nil {
		out.speaker, out.epoch = b.speaker, b.epoch
	}
	words, err := b.client.Eval(context.Background(), b.source, []string{b.name}, out.argument(), b.now/1e6, b.now%1e6).Int64Slice()
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseReply(words, out.speaker.limits)
	if err != nil {
		t.Fatal(err)
	}
	if !r.declare {
		b.epoch = r.epoch
	}
	return r
}

// takes asks for n calls of one cost.
func (b *bench) takes(n int, costs ...int64) *batch { return &batch{groups: []group{{n, costs}}} }

// Contracts 1, 3, 7 and 8: what the script admits is what exact arithmetic admits, with refunds, extra charges
// and debt; and what it says one must wait is neither less than that nor a microsecond more.
func TestScriptIsExact(t *testing.T) {
	c := connect(t)
	rapid.Check(t, func(rt *rapid.T) {
		var limits []bucket.Limit
		for range rapid.IntRange(1, 3).Draw(rt, "limits") {
			l := bucket.Limit{
				Unit:   rapid.SampledFrom([]bucket.Unit{bucket.Requests, bucket.Tokens, bucket.OutputTokens}).Draw(rt, "unit"),
				Amount: rapid.Int64Range(1, 1000).Draw(rt, "amount"),
				Per:    time.Duration(rapid.Int64Range(1, 90).Draw(rt, "seconds")) * time.Second,
			}
			l.Burst = rapid.Int64Range(0, 50).Draw(rt, "burst")
			limits = append(limits, l)
		}
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

// Contract 2: a window never has more than Amount in any span of Per, refunds act at the admission's time, and
// a call leaves at most a slice later than exact books would let it.
func TestScriptKeepsWindows(t *testing.T) {
	c := connect(t)
	rapid.Check(t, func(rt *rapid.T) {
		l := bucket.Limit{Unit: bucket.Requests, Shape: bucket.Window,
			Amount: rapid.Int64Range(1, 60).Draw(rt, "amount"),
			Per:    time.Duration(rapid.Int64Range(1, 60).Draw(rt, "seconds")) * time.Second}
		per := l.Per.Microseconds()
		b := newBench(t, c, t.Name(), l)
		type charge struct{ at, cost int64 }
		var log []charge
		used := func(from, to int64) (n int64) { // in (from, to]
			for _, c := range log {
				if c.at > from && c.at <= to {
					n += c.cost
				}
			}
			return n
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			b.now += rapid.Int64Range(0, per/3).Draw(rt, "later")
			if len(log) > 0 && rapid.IntRange(0, 4).Draw(rt, "refund") == 0 {
				i := rapid.IntRange(0, len(log)-1).Draw(rt, "of")
				back := log[i].cost
				b.run(rt, &batch{ops: [][]string{{opRefund, "1", whole(back), whole(log[i].at)}}})
				log[i].cost = 0
				continue
			}
			cost := rapid.Int64Range(1, l.Amount).Draw(rt, "cost")
			r := b.run(rt, b.takes(1, cost))
			if r.granted == 1 {
				log = append(log, charge{b.now, cost})
				if n := used(b.now-per, b.now); n > l.Amount {
					rt.Fatalf("%d in a window of %d", n, l.Amount)
				}
				continue
			}
			// What counts no more in a slice's time does not count in exact books; then it must fit.
			slice := per/256 + 1
			if used(b.now-per+slice, b.now)+cost <= l.Amount && used(b.now-per-slice, b.now)+cost <= l.Amount {
				rt.Fatalf("refused %d, though %d of %d are used", cost, used(b.now-per-slice, b.now), l.Amount)
			}
			if r.wait <= 0 {
				rt.Fatal("refused without a wait")
			}
			if r.wait > l.Per+time.Millisecond {
				rt.Fatalf("to wait %v of %v", r.wait, l.Per)
			}
		}
	})
}

// Contract 9: nobody before the hold ends, the later of two wins; one leaves, then the number in flight doubles.
func TestScriptHoldsAndRamps(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 6000))
	b.run(t, &batch{ops: [][]string{{opHold, "5000000"}}})
	b.run(t, &batch{ops: [][]string{{opHold, "2000000"}}})
	if r := b.run(t, b.takes(3, 1)); r.granted != 0 || r.wait != 5*time.Second || r.hold != 5*time.Second {
		t.Fatalf("during the hold: %+v", r)
	}
	b.now += 5_000_000
	r := b.run(t, b.takes(10, 1))
	if r.granted != 1 || r.ramp == 0 || r.wait <= 0 {
		t.Fatalf("after the hold: %+v", r)
	}
	if r := b.run(t, b.takes(10, 1)); r.granted != 0 {
		t.Fatalf("a second one beside the first: %+v", r)
	}
	flying := 1
	for round := 1; round <= 4; round++ {
		ramp := whole(r.ramp)
		var ops [][]string
		for range flying {
			ops = append(ops, []string{opServed, ramp}, []string{opLeft, ramp})
		}
		got := b.run(t, &batch{ops: ops, groups: []group{{1000, []int64{1}}}})
		if got.granted != 2*flying {
			t.Fatalf("round %d: %d left, want %d", round, got.granted, 2*flying)
		}
		flying = got.granted
	}
	// Whoever has no answer is not waited for for ever.
	b.now += b.config.answerTime().Microseconds()
	if r := b.run(t, b.takes(10, 1)); r.granted != 1 {
		t.Fatalf("after the answer time %d left, want 1", r.granted)
	}
}

// Contract 5: nothing was admitted for MaxWait on the whole key: one probe at a time, on debt.
func TestScriptLetsOverdueOut(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.Limit{Unit: bucket.Requests, Amount: 1, Per: time.Hour, Burst: 5})
	b.config.MaxWait = 30 * time.Second
	b.speaker = newSpeaker(1, 77, &b.config, b.limits)
	b.run(t, b.takes(5, 1))
	overdue := b.takes(3, 1)
	b.now += 30_000_000
	overdue.age = 29 * time.Second
	if r := b.run(t, overdue); r.granted != 0 || r.wait != time.Second {
		t.Fatalf("a second early: %+v", r)
	}
	b.now += 1_000_000
	overdue.age = 30 * time.Second
	r := b.run(t, overdue)
	if r.granted != 1 || r.probe != 1 {
		t.Fatalf("overdue: %+v", r)
	}
	if r := b.run(t, overdue); r.granted != 0 {
		t.Fatalf("a second probe beside the first: %+v", r)
	}
	if r := b.run(t, &batch{ops: [][]string{{opProbed}}, age: overdue.age, groups: overdue.groups}); r.granted != 1 || r.probe != 1 {
		t.Fatalf("when the first is answered: %+v", r)
	}
	for range 10 {
		b.run(t, &batch{ops: [][]string{{opProbed}}, age: overdue.age, groups: overdue.groups})
	}
	if r := b.run(t, &batch{}); r.limits[0].available < -5 {
		t.Fatalf("probes have made a debt of %v, more than the burst", -r.limits[0].available)
	}
}

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

// Contract 12: every key has a time to live of twice its longest window at least, while it means anything.
func TestScriptBoundsTheLifeOfKeys(t *testing.T) {
	c := connect(t)
	for _, l := range []bucket.Limit{
		bucket.PerMinute(bucket.Requests, 10),
		{Unit: bucket.Requests, Amount: 10, Per: time.Hour, Shape: bucket.Window},
	} {
		b := newBench(t, c, t.Name(), l)
		for range 5 {
			b.run(t, b.takes(1, 3))
			if ttl := c.PTTL(context.Background(), b.name).Val(); ttl < 2*l.Per-time.Second || ttl > 100*l.Per {
				t.Errorf("%v: lives for %v", l, ttl)
			}
			b.now += l.Per.Microseconds() / 3
		}
		b.run(t, &batch{ops: [][]string{{opHold, whole((24 * time.Hour).Microseconds())}}})
		if ttl := c.PTTL(context.Background(), b.name).Val(); ttl < 24*time.Hour {
			t.Errorf("held for a day, lives for %v", ttl)
		}
		b.run(t, &batch{ops: [][]string{{opExtra, "1", "1000"}}})
		if ttl := c.PTTL(context.Background(), b.name).Val(); l.Shape == bucket.TokenBucket && ttl < 100*l.Per {
			t.Errorf("in debt for a hundred periods, lives for %v", ttl)
		}
	}
}

// A store that has lost the budget asks first what was known, and starts from the lower.
func TestScriptAsksForWhatItHasLost(t *testing.T) {
	c := connect(t)
	b := newBench(t, c, t.Name(), bucket.PerMinute(bucket.Requests, 100))
	b.run(t, b.takes(1, 70))
	b.speaker = newSpeaker(1, 78, &b.config, b.limits) // as a process does that has learned the epoch
	c.Del(context.Background(), b.name)
	if r := b.run(t, b.takes(1, 10)); !r.declare {
		t.Fatalf("an empty store let somebody go: %+v", r)
	}
	out := b.takes(1, 10)
	out.declared = &declaration{levels: []float64{30.5}, hold: 0}
	if r := b.run(t, out); r.granted != 1 || r.limits[0].available != 20.5 {
		t.Fatalf("%+v", r)
	}
	// Another process that knew less lowers it once.
	other := *b
	other.epoch = 12345
	other.speaker = newSpeaker(2, 99, &b.config, b.limits)
	if r := other.run(t, other.takes(1, 1)); !r.declare {
		t.Fatal("another process was not asked")
	}
	out = other.takes(1, 1)
	out.declared = &declaration{levels: []float64{5}, hold: 3 * time.Second}
	if r := other.run(t, out); r.granted != 0 || r.hold != 3*time.Second || r.limits[0].available != 5 {
		t.Fatalf("%+v", r)
	}
}

// Limits that differ: the lower ones hold, as long as somebody has them.
func TestScriptKeepsTheLowerLimits(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 100))
	low := *b
	low.limits = limitsOf([]bucket.Limit{bucket.PerMinute(bucket.Requests, 40)}, 1)
	low.speaker = newSpeaker(2, 99, &b.config, low.limits)
	if r := low.run(t, low.takes(1, 40)); r.granted != 1 || r.differ {
		t.Fatalf("%+v", r)
	}
	b.epoch = low.epoch
	b.now += 60_000_000
	if r := b.run(t, b.takes(100, 1)); r.granted != 40 || !r.differ {
		t.Fatalf("%d left under a limit of 40, differ %v", r.granted, r.differ)
	}
	b.now += 300_000_000
	if r := b.run(t, b.takes(200, 1)); r.granted != 40 && r.granted != 100 || r.granted == 100 && r.differ {
		t.Fatalf("%+v", r)
	}
	b.now += 60_000_000
	if r := b.run(t, b.takes(200, 1)); r.granted != 100 || r.differ {
		t.Fatalf("nobody has 40 any more: %d left", r.granted)
	}
}

// The head that has waited longest has a claim on what comes back; who came later takes what is left beside it.
func TestScriptKeepsTheOldestHeadsClaim(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 60))
	b.run(t, b.takes(1, 60))
	other := *b
	other.speaker = newSpeaker(2, 99, &b.config, b.limits)
	big := b.takes(1, 50)
	big.age = 2 * time.Second
	if r := b.run(t, big); r.granted != 0 || r.wait != 50*time.Second {
		t.Fatalf("%+v", r)
	}
	for range 49 { // many small ones would starve it
		b.now += 1_000_000
		other.now = b.now
		small := other.takes(1, 1)
		if r := other.run(t, small); r.granted != 0 {
			t.Fatal("a younger call took what an older one waits for")
		}
	}
	b.now += 1_000_000
	big.age += 50 * time.Second
	if r := b.run(t, big); r.granted != 1 {
		t.Fatalf("%+v", r)
	}
	other.now = b.now + 1_000_001
	if r := other.run(t, other.takes(1, 1)); r.granted != 1 {
		t.Fatal("the claim outlives its call")
	}
}

// A clock that steps back mints nothing.
func TestScriptClockStepsBack(t *testing.T) {
	b := newBench(t, connect(t), t.Name(), bucket.PerMinute(bucket.Requests, 60))
	b.run(t, b.takes(1, 60))
	for range 100 {
		b.now -= 10_000_000
		b.run(t, &batch{})
		b.now += 10_000_000
		if r := b.run(t, b.takes(1, 1)); r.granted != 0 {
			t.Fatal("a token out of nothing")
		}
	}
}

func TestScriptRefusesAnotherLayout(t *testing.T) {
	needsServer(t)
	c := connect(t)
	b := newBench(t, c, t.Name(), bucket.PerMinute(bucket.Requests, 60))
	b.run(t, b.takes(1, 1))
	head, _ := c.HGet(context.Background(), b.name, "h").Bytes()
	head[6], head[7] = 0x00, 0x40 // the double 2
	c.HSet(context.Background(), b.name, "h", head)
	err := b.client.Eval(context.Background(), b.source, []string{b.name}, b.argumentOf(b.takes(1, 1)), b.now/1e6, b.now%1e6).Err()
	if err == nil || !strings.HasPrefix(err.Error(), "METEREDLAYOUT") || !ofKey(err) {
		t.Errorf("%v", err)
	}
	if errors.Is(err, redis.Nil) {
		t.Error("nil")
	}
}

func (b *bench) argumentOf(out *batch) string {
	out.speaker, out.epoch = b.speaker, b.epoch
	return out.argument()
}
