package meteredredis

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// told waits until the store has heard all that l has to say of key.
func told(t testing.TB, l *Limiter, key string) {
	t.Helper()
	eventually(t, "the store is told", func() bool {
		b := l.peek(key)
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.batch == nil && !b.calling && !b.owes()
	})
}

// Once a refusal has reached the store, nobody is admitted before the hold ends, in any process, however many
// wait; then one call alone is out; and what is out at once at most doubles with each round that is served.
func TestAHoldAndItsRampOverProcesses(t *testing.T) {
	ls := make([]*Limiter, 3)
	c := connect(t)
	for i := range ls {
		ls[i] = limiter(t, c, Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 100_000, Per: time.Second}}})
		take(t, ls[i], "k").Settle(one())
	}
	const hold = 400 * time.Millisecond
	refused := time.Now()
	take(t, ls[0], "k").Refused(hold)
	told(t, ls[0], "k")

	ctx, cancel := context.WithCancel(context.Background())
	granted := make(chan bucket.Grant, 1000)
	var wg sync.WaitGroup
	for _, l := range ls {
		for range 20 {
			wg.Go(func() {
				if g, err := l.Acquire(ctx, "k", one()); err == nil {
					granted <- g
				}
			})
		}
	}
	defer func() { cancel(); wg.Wait() }()

	first := <-granted
	if early := hold - time.Since(refused); early > 5*time.Millisecond { // the clocks' difference
		t.Errorf("somebody left %v before the hold ends", early)
	}
	out := []bucket.Grant{first}
	for round := 1; round <= 16; round *= 2 {
		// Nobody else leaves while the round has no answer.
		select {
		case <-granted:
			t.Fatalf("%d are out in the round of %d", len(out)+1, round)
		case <-time.After(150 * time.Millisecond):
		}
		for _, g := range out {
			g.Served()
			g.Settle(one())
		}
		out = out[:0]
		for len(out) < min(2*round, 60-2*round+1) {
			select {
			case g := <-granted:
				out = append(out, g)
			case <-time.After(20 * time.Second):
				t.Fatalf("of the round of %d only %d left", 2*round, len(out))
			}
		}
	}
	for _, g := range out {
		g.Served()
		g.Settle(one())
	}
}

// Calls that settle for less, are refused, never sent or reported, of three processes on one key: what they
// really cost stays within the limits, and nothing is lost: at the end all levels are full, no call is open.
//
// Proved able to fail: with refunds that are said twice.
func TestAMixOfEndsOverProcesses(t *testing.T) {
	for _, shape := range []bucket.Shape{bucket.TokenBucket, bucket.Window} {
		t.Run(shape.String(), func(t *testing.T) {
			c := connect(t)
			const rate = 400 // tokens a second, and the burst
			limits := []bucket.Limit{
				{Unit: bucket.Tokens, Amount: rate, Per: time.Second, Shape: shape},
				{Unit: bucket.Requests, Amount: 100_000, Per: time.Minute},
			}
			tokens := new(admissions)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			used := int64(0)
			var ls []*Limiter
			var wg sync.WaitGroup
			for i := range 3 {
				l := limiter(t, c, Config{Limits: limits, Prefix: "mix-" + shape.String()})
				ls = append(ls, l)
				for j := range 4 {
					random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
					wg.Go(func() {
						last := -1 // its admission before
						for {
							estimate := bucket.Cost{Requests: 1, InputTokens: 1 + random.Int64N(20), OutputTokens: random.Int64N(20)}
							from := time.Now()
							g, err := l.Acquire(ctx, "k", estimate)
							if err != nil {
								if ctx.Err() == nil {
									t.Error(err)
								}
								return
							}
							to := time.Now()
							real := estimate
							switch random.IntN(6) {
							case 0:
								real = bucket.Cost{}
								g.Cancel()
							case 1:
								real = bucket.Cost{}
								g.Refused(time.Duration(random.IntN(20)) * time.Millisecond)
							case 2:
								g.Served()
								g.Settle(real)
							default:
								real.OutputTokens = random.Int64N(estimate.OutputTokens + 1)
								g.Served()
								g.Settle(real)
							}
							g.Settle(bucket.Cost{OutputTokens: 1 << 40}) // it has ended: nothing
							tokens.mu.Lock()
							if last >= 0 { // what came back of it went with this call at the latest
								tokens.all[last].heard = to
							}
							last = len(tokens.all)
							tokens.all = append(tokens.all, admission{from: from, to: to, cost: real.Of(bucket.Tokens),
								back: estimate.Of(bucket.Tokens) - real.Of(bucket.Tokens)})
							used += real.Of(bucket.Tokens)
							if used > 3*rate {
								cancel()
							}
							tokens.mu.Unlock()
						}
					})
				}
			}
			wg.Wait()
			tokens.within(t, rate, rate, 0)
			eventually(t, "all is full again", func() bool {
				for _, l := range ls {
					take(t, l, "k").Cancel()
					told(t, l, "k")
					s, _ := l.Stats("k")
					if s.InFlight != 0 || s.Queued != 0 || s.Levels[0].Available < rate || s.Levels[1].Available < 99_999 {
						return false
					}
				}
				return true
			})
		})
	}
}

// Whatever is done, every key in the store expires, no sooner than twice the longest window; and the log of a
// window does not grow with what it admits.
func TestWhatIsKeptIsBounded(t *testing.T) {
	needsServer(t)
	c := connect(t)
	l := limiter(t, c, Config{Limits: []bucket.Limit{
		{Unit: bucket.Requests, Amount: 1_000_000, Per: time.Second, Shape: bucket.Window},
		{Unit: bucket.Tokens, Amount: 1_000_000, Per: time.Minute},
		{Unit: bucket.Tokens, Amount: 1_000_000, Per: time.Hour, Shape: bucket.Window},
	}, MaxKeys: 50})
	for i := range 200 {
		key := "key " + strings.Repeat("x", i)
		g := take(t, l, key)
		switch i % 5 {
		case 0:
			g.Cancel()
		case 1:
			g.Refused(time.Duration(i) * time.Minute)
		case 2:
			g.Settle(bucket.Cost{Requests: 1, OutputTokens: 1 << 43}) // debt of years
		case 3:
			g.Report(bucket.Meter{Unit: bucket.Requests, Limit: 1_000_000, Remaining: 5})
			g.Settle(one())
		}
	}
	var wg sync.WaitGroup
	end := time.Now().Add(2500 * time.Millisecond)
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(end) {
				take(t, l, "hot").Settle(bucket.Cost{Requests: 1, OutputTokens: 1})
			}
		})
	}
	wg.Wait()
	told(t, l, "hot")
	ctx := context.Background()
	keys := c.Keys(ctx, "*").Val()
	if len(keys) < 201 {
		t.Errorf("%d keys", len(keys))
	}
	for _, k := range keys {
		ttl := c.PTTL(ctx, k).Val()
		if least := 2*time.Hour - time.Minute; ttl <= 0 || ttl < least && !strings.HasSuffix(k, "probe") {
			t.Errorf("%.80q expires in %v", k, ttl)
		}
		// Three limits, and two logs of 257 pairs of 16 bytes at most.
		size := 0
		for f, v := range c.HGetAll(ctx, k).Val() {
			size += len(f) + len(v)
		}
		if size > 2*257*16+1024 {
			t.Errorf("%.80q has %d bytes", k, size)
		}
	}
}

// A budget of a newer layout is left alone: its key is admitted as while the store is away, and an event says
// so; under our own key New says it.
func TestANewerLayout(t *testing.T) {
	c := connect(t)
	heard := new(events)
	l := limiter(t, c, Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60000)}, Observer: heard})
	newer := strings.Replace(source, "NOBODY = 1,", "NOBODY = 2,", 1)
	if newer == source {
		t.Fatal("the layout's number is no longer there")
	}
	write := func(name string) {
		t.Helper()
		b := &batch{speaker: newSpeaker(9, 9, &l.config, nil)}
		if err := c.Eval(context.Background(), newer, []string{name}, b.argument()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	name := nameOf(t.Name(), "k")
	write(name)
	before := c.Dump(context.Background(), name).Val()
	for range 20 {
		take(t, l, "k").Settle(one())
	}
	take(t, l, "another").Settle(one())
	eventually(t, "it is told", func() bool { return heard.count(middleware.StoreDown) == 1 })
	if e, _ := heard.first(middleware.StoreDown); e.Key != "k" || !strings.Contains(e.Err.Error(), "layout") {
		t.Errorf("%+v", e)
	}
	if after := c.Dump(context.Background(), name).Val(); after != before {
		t.Error("it was written to")
	}
	write(nameOf("newer", "") + "probe")
	if _, err := New(c, Config{Prefix: "newer"}); err == nil || !strings.Contains(err.Error(), "layout") {
		t.Errorf("New says %v", err)
	}
}

// Processes that were told different limits: the lower ones hold for all, and the other process says so, once.
func TestLimitsDiffer(t *testing.T) {
	c := connect(t)
	limits := func(n int64) []bucket.Limit {
		return []bucket.Limit{{Unit: bucket.Requests, Amount: n, Per: time.Hour}}
	}
	low, high := new(events), new(events)
	a := limiter(t, c, Config{Limits: limits(10), Observer: low, MaxWait: -1})
	b := limiter(t, c, Config{Limits: limits(1000), Observer: high, MaxWait: -1})
	take(t, a, "k").Settle(one())
	n := 0
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		g, err := b.Acquire(ctx, "k", one())
		cancel()
		if err != nil {
			break
		}
		g.Settle(one())
		if n++; n > 20 {
			break
		}
	}
	if n != 9 {
		t.Errorf("%d left after the first, of 10 in an hour", n)
	}
	eventually(t, "it is told", func() bool { e, ok := high.first(middleware.Doubted); return ok && errors.Is(e.Err, ErrLimitsDiffer) })
	if len(high.all) != 1 || len(low.all) != 0 {
		t.Errorf("%d events where the limits are higher, %d where they are lower", len(high.all), len(low.all))
	}
}
