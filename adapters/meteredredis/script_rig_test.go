package meteredredis

import (
	"context"
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
	b.speaks(1)
	if err := c.Del(context.Background(), name).Err(); err != nil {
		t.Fatal(err)
	}
	return b
}

// speaks makes it process pid's, with the configuration and the limits that it has.
func (b *bench) speaks(pid int64) { b.speaker = newSpeaker(pid, 70+pid, &b.config, b.limits) }

// another is another process on the same budget, at the same time; of limits of its own, if there are any.
func (b *bench) another(pid int64, limits ...bucket.Limit) *bench {
	other := *b
	if len(limits) > 0 {
		other.limits = limitsOf(limits, 1)
	}
	other.speaks(pid)
	return &other
}

// exhausted is a budget whose five have been taken, of a process that waits for half a minute at most.
func exhausted(t *testing.T) *bench {
	b := newBench(t, connect(t), t.Name(), bucket.Limit{Unit: bucket.Requests, Amount: 1, Per: time.Hour, Burst: 5})
	b.config.MaxWait = 30 * time.Second
	b.speaks(1)
	b.run(t, b.takes(5, 1))
	return b
}

// drawLimits draws up to three limits of these amounts and shapes.
func drawLimits(rt *rapid.T, amounts *rapid.Generator[int64], shapes ...bucket.Shape) []bucket.Limit {
	limits := make([]bucket.Limit, rapid.IntRange(1, 3).Draw(rt, "limits"))
	for i := range limits {
		l := bucket.Limit{
			Unit:   rapid.SampledFrom([]bucket.Unit{bucket.Requests, bucket.Tokens, bucket.OutputTokens}).Draw(rt, "unit"),
			Amount: amounts.Draw(rt, "amount"),
			Per:    time.Duration(rapid.Int64Range(1, 60).Draw(rt, "seconds")) * time.Second,
			Shape:  rapid.SampledFrom(shapes).Draw(rt, "shape"),
		}
		if l.Shape == bucket.TokenBucket {
			l.Burst = rapid.Int64Range(0, 50).Draw(rt, "burst")
		}
		limits[i] = l
	}
	return limits
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

func (b *bench) argumentOf(out *batch) string {
	out.speaker, out.epoch = b.speaker, b.epoch
	return out.argument()
}
