package bench

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"golang.org/x/time/rate"
)

var oneRequest = bucket.Cost{Requests: 1}

// crowd is how many goroutines wait on one key.
func crowd() int {
	if raceDetector {
		return 5_000
	}
	return 100_000
}

// A crowd on one key leaves in the order of its arrival, each the instant its
// budget is there, and no sooner.
func TestCrowdLeavesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = time.Millisecond
		l := newLocal(t, bucket.Config{
			Limits:  []bucket.Limit{{Unit: bucket.Requests, Amount: 1, Burst: 1, Per: every}},
			MaxWait: -1,
		})
		n := crowd()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		var next atomic.Int64 // who leaves next; nobody else runs in that instant
		var wrong atomic.Int64
		for i := range n {
			go func() {
				g, err := l.Acquire(ctx, origin, oneRequest)
				left := time.Since(start)
				if err != nil || left != time.Duration(i)*every || next.Add(1) != int64(i)+1 {
					if wrong.Add(1) <= 10 {
						t.Errorf("number %d left after %v, error %v", i, left, err)
					}
				}
				g.Settle(oneRequest)
			}()
			synctest.Wait() // it stands in line before the next one comes
		}
		time.Sleep(time.Duration(n) * every)
		synctest.Wait()
		if got := next.Load(); got != int64(n) {
			t.Errorf("%d of %d have left", got, n)
		}
	})
}

// A waiter costs under 400 bytes beyond its stack: beyond what a goroutine costs
// that waits for a channel and a context, and no more.
func TestWaiterIsSmall(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector changes what is allocated")
	}
	const most = 400
	bare := bytesEach(t, crowd(), waitBare)
	ours := bytesEach(t, crowd(), waitOurs(t))
	t.Logf("%d waiters: %.0f bytes each beyond the %.0f of a goroutine that waits", crowd(), ours-bare, bare)
	if ours-bare >= most {
		t.Errorf("%d waiters: %.0f bytes each, want under %d", crowd(), ours-bare, most)
	}
}

// When a crowd has left, its memory goes with it.
func TestCrowdLeavesNothingBehind(t *testing.T) {
	l := newLocal(t, shut)
	take(t, l)
	gather(5_000, waitBare).disperse() // the runtime keeps its goroutines, to use them again
	before := heap()
	gather(5_000, waitOn(l)).disperse()
	if kept := heap() - before; kept > 5_000*10 && !raceDetector {
		t.Errorf("%d bytes are kept of a crowd of 5,000 that was cancelled", kept)
	}
	if s, _ := l.Stats(origin); s.Queued != 0 || s.InFlight != 1 {
		t.Errorf("%d queued and %d in flight, want 0 and the 1 that came first", s.Queued, s.InFlight)
	}
}

// BenchmarkWaiters lets a crowd wait on one key, and then grants them all at once
// by a wider limit. ns/op is from then until the last has left, for each of them.
//
// x/wake is over waking as many goroutines of which each waits for a channel of
// its own, one after the other: the least that a grant in order can cost, and
// linear in the crowd. That x/wake is much the same for a crowd ten times as large
// shows that granting all is n log n: were it n squared, it would be ten times as
// large too. B/waiter is what a waiter holds beyond a goroutine that waits for a
// channel and a context; rate-B is what one in Wait of x/time/rate holds.
func BenchmarkWaiters(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
	}{{"10k", 10_000}, {"100k", 100_000}} {
		b.Run(c.name, func(b *testing.B) {
			if raceDetector {
				b.Skip("the race detector does not bear as many goroutines")
			}
			bare := bytesEach(b, c.n, waitBare)
			ours, peer := bytesEach(b, c.n, waitOurs(b)), bytesEach(b, c.n, waitRate())

			var grant, wake []float64
			b.ResetTimer()
			for range max(b.N, 3) {
				grant = append(grant, float64(grantAll(b, c.n))/float64(c.n))
				wake = append(wake, float64(wakeAll(c.n))/float64(c.n))
			}
			b.StopTimer()
			ns, least := median(grant), median(wake)
			b.ReportMetric(ns, "ns/op")
			b.ReportMetric(ns/least, "x/wake")
			b.ReportMetric(ours-bare, "B/waiter")
			b.ReportMetric(peer-bare, "rate-B")
			b.ReportMetric(ours-bare, "B/waiter")
			b.ReportMetric(peer-bare, "rate-B")
		})
	}
}

// shut lets one call through, and then nobody for longer than anyone waits.
var shut = bucket.Config{
	Limits:  []bucket.Limit{{Unit: bucket.Requests, Amount: 1, Per: 1000 * time.Hour}},
	MaxWait: -1,
}

func take(tb testing.TB, l *bucket.Local) {
	tb.Helper()
	if g, err := l.Acquire(context.Background(), origin, oneRequest); err != nil || g.Waited() != 0 {
		tb.Fatalf("the first Acquire waited %v, error %v", g.Waited(), err)
	}
}

// A wait is what each goroutine of a crowd does until ctx ends.
type wait func(ctx context.Context)

var never = make(chan struct{})

func waitBare(ctx context.Context) {
	select {
	case <-never:
	case <-ctx.Done():
	}
}

func waitOurs(tb testing.TB) wait {
	l := newLocal(tb, shut)
	take(tb, l)
	return waitOn(l)
}

func waitOn(l *bucket.Local) wait {
	return func(ctx context.Context) {
		g, _ := l.Acquire(ctx, origin, oneRequest)
		g.Cancel()
	}
}

func waitRate() wait {
	l := rate.NewLimiter(rate.Every(1000*time.Hour), 1)
	l.Allow()
	return func(ctx context.Context) { _ = l.Wait(ctx) }
}

// A gathering is a crowd that waits.
type gathering struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// gather starts n goroutines that wait, and returns when they do.
func gather(n int, w wait) *gathering {
	ctx, cancel := context.WithCancel(context.Background())
	c := &gathering{cancel: cancel}
	var arrived atomic.Int64
	for range n {
		c.done.Go(func() {
			arrived.Add(1)
			w(ctx)
		})
	}
	for arrived.Load() < int64(n) {
		runtime.Gosched()
	}
	for range 100 { // whoever has arrived gets to where it waits
		runtime.Gosched()
	}
	return c
}

func (c *gathering) disperse() {
	c.cancel()
	c.done.Wait()
}

// bytesEach returns what each of n goroutines in w holds on the heap, stacks not
// counted.
func bytesEach(tb testing.TB, n int, w wait) float64 {
	tb.Helper()
	gather(n, waitBare).disperse() // the runtime keeps its goroutines, to use them again
	before := heap()
	c := gather(n, w)
	bytes := heap() - before
	c.disperse()
	return float64(bytes) / float64(n)
}

// heap returns the bytes of all reachable objects.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one only made ready, pools for one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// grantAll lets n goroutines wait in line and returns the time from the moment
// when there is budget for all until the last of them has left.
func grantAll(b *testing.B, n int) time.Duration {
	l := newLocal(b, shut)
	take(b, l)
	c := gather(n, func(ctx context.Context) {
		if _, err := l.Acquire(ctx, origin, oneRequest); err != nil { // the bucket goes, and its grants with it
			b.Error(err)
		}
	})
	defer c.cancel()
	for s, _ := l.Stats(origin); s.Queued < n; s, _ = l.Stats(origin) {
		runtime.Gosched()
	}
	start := time.Now()
	if err := l.SetLimits(origin, bucket.Limit{Unit: bucket.Requests, Amount: math.MaxInt32, Per: time.Second}); err != nil {
		b.Fatal(err)
	}
	c.done.Wait()
	return time.Since(start)
}

// wakeAll is the same without a bucket.
func wakeAll(n int) time.Duration {
	var line []chan struct{}
	for range n {
		line = append(line, make(chan struct{}, 1))
	}
	var arrived atomic.Int64
	c := gather(n, func(ctx context.Context) {
		select {
		case <-line[arrived.Add(1)-1]:
		case <-ctx.Done():
		}
	})
	defer c.cancel()
	start := time.Now()
	for _, done := range line {
		done <- struct{}{}
	}
	c.done.Wait()
	return time.Since(start)
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
