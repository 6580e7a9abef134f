package docs

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/adapters/meteredotel"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// A fact is a default as the code has it: the figures that a table must state, all of them and in this
// order, and the words that it must have.
type fact struct {
	figures []float64 // durations in seconds
	words   []string
}

func figures(values ...any) fact {
	var f fact
	for _, v := range values {
		switch v := v.(type) {
		case time.Duration:
			f.figures = append(f.figures, v.Seconds())
		case int:
			f.figures = append(f.figures, float64(v))
		case float64:
			f.figures = append(f.figures, v)
		}
	}
	return f
}

func words(w ...string) fact { return fact{words: w} }

// defaults are measured by what the code does, unless an exported function or constant states them.
func defaults(t *testing.T) map[string]fact {
	policy := retryafter.DefaultPolicy()
	overCap := map[retryafter.OverCap]string{retryafter.Clamp: "`Clamp`", retryafter.Stop: "`Stop`"}[policy.OverCap]
	respected := map[bool]string{true: "true", false: "false"}[policy.RespectRetryAfter]
	rest, escalations := gateDefaults(t)
	return map[string]fact{
		"bucket.Config.Headroom":                 figures(stackHeadroom(t), bucketLevel(t, bucket.Config{}).Capacity/100),
		"bucket.Config.MaxWait":                  figures(overdueAfter(t)),
		"bucket.Limit.Burst":                     words(burst(t)),
		"bucket.Config.Adaptive":                 words(adaptive(t)),
		"bucket.Config.MaxKeys":                  figures(rememberedKeys(t)),
		"retryafter.Policy.RespectRetryAfter":    words(respected),
		"retryafter.Policy.DefaultDelay":         figures(policy.DefaultDelay),
		"retryafter.Policy.MaxDelay":             figures(policy.MaxDelay),
		"retryafter.Policy.FallbackAfterRetries": figures(policy.FallbackAfterRetries),
		"retryafter.Policy.MaxRetries":           figures(policy.MaxRetries),
		"retryafter.Policy.Jitter":               figures(policy.Jitter),
		"retryafter.Policy.OverCap":              words(overCap),
		"middleware.RetryPolicy.MaxRetries":      figures(transportRetries(t)),
		"escalate.Settings.Escalations":          figures(escalations),
		"escalate.Settings.Timeout":              figures(rest),
		"meteredotel.Config.MaxKeys":             figures(meteredotel.DefaultMaxKeys),
	}
}

// bucketLevel is what a limit of 100 requests a minute becomes.
func bucketLevel(t *testing.T, c bucket.Config) bucket.Level {
	t.Helper()
	c.Limits = []bucket.Limit{bucket.PerMinute(bucket.Requests, 100)}
	l, err := bucket.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return levelOf(t, l)
}

func levelOf(t *testing.T, l *bucket.Local) bucket.Level {
	t.Helper()
	g, err := l.Acquire(t.Context(), "key", bucket.Cost{Requests: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Cancel()
	stats, ok := l.Stats("key")
	if !ok || len(stats.Levels) != 1 {
		t.Fatalf("%+v, want one level", stats)
	}
	return stats.Levels[0]
}

func newStack(t *testing.T, c middleware.Config) *middleware.Stack {
	t.Helper()
	s, err := middleware.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stackHeadroom(t *testing.T) float64 {
	s := newStack(t, middleware.Config{Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 100)}}})
	got := levelOf(t, s.Limiter().(*bucket.Local)).Capacity / 100
	if math.Abs(got-middleware.DefaultHeadroom) > 1e-9 {
		t.Errorf("a Stack has a headroom of %v, and DefaultHeadroom says %v", got, middleware.DefaultHeadroom)
	}
	return got
}

func burst(t *testing.T) string {
	if level := bucketLevel(t, bucket.Config{}); level.Capacity != float64(level.Limit.Amount) {
		return fmt.Sprintf("%v of %d", level.Capacity, level.Limit.Amount)
	}
	return "the whole amount"
}

// overdueAfter is how long a call waits where nothing can be admitted for an hour.
func overdueAfter(t *testing.T) (waited time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		l, err := bucket.New(bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 1, Per: time.Hour}}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			g, err := l.Acquire(t.Context(), "key", bucket.Cost{Requests: 1})
			if err != nil {
				t.Fatal(err)
			}
			g.Served()
			g.Settle(bucket.Cost{Requests: 1})
			waited = g.Waited()
		}
	})
	return waited
}

// adaptive says where the calls of a crowd leave one after the other though the limits would let all go.
func adaptive(t *testing.T) string {
	word := func(l func() bucket.Limiter) (word string) {
		synctest.Test(t, func(t *testing.T) {
			limiter, start := l(), time.Now()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if g, err := limiter.Acquire(context.Background(), "key", bucket.Cost{Requests: 1}); err == nil {
						time.Sleep(time.Second)
						g.Served()
						g.Settle(bucket.Cost{Requests: 1})
					}
				})
			}
			all.Wait()
			if word = "off"; time.Since(start) > time.Second {
				word = "on"
			}
		})
		return word
	}
	config := bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600)}}
	return fmt.Sprintf("%s in a Stack, %s in `bucket`",
		word(func() bucket.Limiter { return newStack(t, middleware.Config{Bucket: config}).Limiter() }),
		word(func() bucket.Limiter {
			l, err := bucket.New(config)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}))
}

// rememberedKeys is how many idle keys are left of many more.
func rememberedKeys(t *testing.T) (most int) {
	l, err := bucket.New(bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600)}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 15_000 {
		g, err := l.Acquire(t.Context(), strconv.Itoa(i), bucket.Cost{Requests: 1})
		if err != nil {
			t.Fatal(err)
		}
		g.Cancel()
		if i%100 == 0 || i > 9_990 && i < 10_010 {
			most = max(most, len(l.Keys()))
		}
	}
	return most
}

func transportRetries(t *testing.T) (retries int) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		p.SetStatus(http.StatusInternalServerError)
		client := &http.Client{Transport: newStack(t, middleware.Config{}).Transport(p.Transport())}
		resp, err := client.Get("https://api.example.com/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		retries = p.Hits() - 1
	})
	return retries
}

// gateDefaults are how long a gate rests without a hint, and how many escalations open it.
func gateDefaults(t *testing.T) (rest time.Duration, escalations int) {
	synctest.Test(t, func(t *testing.T) {
		r, err := escalate.New(escalate.Config{Primary: escalate.Route{Name: "big"}})
		if err != nil {
			t.Fatal(err)
		}
		for rest == 0 && escalations < 10 {
			permit, err := r.Allow(0)
			if err != nil {
				t.Fatal(err)
			}
			if err := permit.Done(escalate.Outcome{Verdict: escalate.Escalated}); err != nil {
				t.Fatal(err)
			}
			escalations++
			rest = r.Soonest()
		}
	})
	return rest, escalations
}

// figure is a number with the unit of time that may follow it.
var figure = regexp.MustCompile(`(\d[\d,]*(?:\.\d+)?)(?:\s?(ms|s|min|h)\b)?`)

// stated are the figures of a cell.
func stated(cell string) []float64 {
	var all []float64
	for _, m := range figure.FindAllStringSubmatch(cell, -1) {
		v, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		if err != nil {
			continue
		}
		all = append(all, v*map[string]float64{"": 1, "ms": 0.001, "s": 1, "min": 60, "h": 3600}[m[2]])
	}
	return all
}

var fieldName = regexp.MustCompile("`([a-z]+\\.[A-Z][A-Za-z]*\\.[A-Z][A-Za-z]*)`")

// wrongDefaults are the rows of p's tables with a column "default" that the code contradicts, or that
// name nothing which can be looked at. n is how many rows were looked at.
func wrongDefaults(p page, facts map[string]fact) (n int, wrong []string) {
	for _, r := range p.rows() {
		cell, ok := r.cells["default"]
		if !ok {
			continue
		}
		n++
		var field string
		for _, other := range r.cells {
			if m := fieldName.FindStringSubmatch(other); m != nil {
				field = m[1]
			}
		}
		f, known := facts[field]
		got := stated(cell)
		same := len(got) == len(f.figures)
		for i := 0; same && i < len(got); i++ {
			same = math.Abs(got[i]-f.figures[i]) < 1e-9
		}
		for _, w := range f.words {
			same = same && strings.Contains(cell, w)
		}
		switch {
		case !known:
			wrong = append(wrong, fmt.Sprintf("%s: a default of %q, which no test looks at", r.where, field))
		case !same:
			wrong = append(wrong, fmt.Sprintf("%s: %s is said to be %q; it is %v %v", r.where, field, cell, f.figures, f.words))
		}
	}
	return n, wrong
}

func TestDefaultsAreTrue(t *testing.T) {
	facts := defaults(t)
	n := 0
	for _, p := range pages(t) {
		rows, wrong := wrongDefaults(p, facts)
		n += rows
		for _, w := range wrong {
			t.Error(w)
		}
	}
	t.Logf("%d defaults", n)
	if n < 13 {
		t.Errorf("only %d stated defaults were found", n)
	}
}

func TestWrongDefaultsAreFound(t *testing.T) {
	facts := map[string]fact{
		"bucket.Config.MaxWait":       figures(30 * time.Second),
		"bucket.Config.Headroom":      figures(0.9, 1),
		"bucket.Config.MaxKeys":       figures(10_000),
		"retryafter.Policy.OverCap":   words("`Clamp`"),
		"middleware.RetryPolicy.Base": figures(100 * time.Millisecond),
	}
	table := func(rows ...string) page {
		return sample("| what | default | where |\n|---|---|---|\n" + strings.Join(rows, "\n"))
	}
	n, wrong := wrongDefaults(table(
		"| wait | 30 s with nothing admitted | `bucket.Config.MaxWait` |",
		"| share | 0.9 in a Stack, 1 in `bucket` | `bucket.Config.Headroom` |",
		"| keys | 10,000 | `bucket.Config.MaxKeys` |",
		"| long hints | `Clamp` | `retryafter.Policy.OverCap` |",
		"| base | 100 ms | `middleware.RetryPolicy.Base` |",
	), facts)
	if n != 5 || len(wrong) != 0 {
		t.Errorf("%d rows, %q; want 5 and none", n, wrong)
	}
	n, wrong = wrongDefaults(table(
		"| wait | 30 ms | `bucket.Config.MaxWait` |",
		"| wait | 30 s, or 40 | `bucket.Config.MaxWait` |",
		"| share | 1 in a Stack, 0.9 in `bucket` | `bucket.Config.Headroom` |",
		"| long hints | `Stop` | `retryafter.Policy.OverCap` |",
		"| queue | 7 | `bucket.Config.MaxQueue` |",
		"| keys | many | `bucket.Config.MaxKeys` |",
	), facts)
	if n != 6 || len(wrong) != 6 {
		t.Errorf("%d rows, %q; want 6, all wrong", n, wrong)
	}
}
