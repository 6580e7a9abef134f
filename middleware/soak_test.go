package middleware_test

import (
	"bytes"
	"context"
	"flag"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

var soakFor = flag.Duration("soak", 0, "how long TestSoak runs, on the real clock; 0 skips it")

const (
	soakCallers = 500
	// What the last third may lie above the first: of the heap after a collection,
	// and of the median that the layers add to a call.
	soakHeap, soakHeapFloor       = 1.1, 1 << 20
	soakLatency, soakLatencyFloor = 1.5, 100 * time.Microsecond
)

// 500 callers, half of them over HTTP/1.1 and half over HTTP/2, on real time and
// loopback, at servers that refuse, fail, stream and cut connections: memory and
// what the layers add to a call stay flat. It is the one test here whose bounds
// are on the real clock, so it runs only when asked for.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("takes -soak 2m, say")
	}
	s, err := middleware.New(middleware.Config{
		Bucket: bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 400, Per: time.Second}}, MaxInFlight: 100},
		Observer: middleware.ObserverFunc(func(ctx context.Context, e middleware.Event) {
			if c, ok := ctx.Value(soakKey{}).(*soakCall); ok && e.Kind != middleware.Sent && e.Kind != middleware.Settled {
				c.delayed.Store(true)
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	var phases [3]soakPhase
	start := time.Now()
	phase := func() *soakPhase {
		return &phases[min(int(3*time.Since(start)/max(*soakFor, 1)), 2)]
	}
	ctx, stop := context.WithTimeout(t.Context(), *soakFor)
	defer stop()
	var callers sync.WaitGroup
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(soakAnswer))
		server.EnableHTTP2 = http2
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		defer server.Close()
		base := server.Client().Transport.(*http.Transport)
		base.MaxIdleConnsPerHost = soakCallers
		defer base.CloseIdleConnections()
		client := &http.Client{Transport: s.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
			began := time.Now()
			defer func() { req.Context().Value(soakKey{}).(*soakCall).below.Add(int64(time.Since(began))) }()
			return base.RoundTrip(req)
		}))}
		for range soakCallers / 2 {
			callers.Go(func() { soakCaller(ctx, t, client, server.URL, http2, phase) })
		}
	}
	for ctx.Err() == nil {
		time.Sleep(500 * time.Millisecond)
		if time.Since(start) < *soakFor/10 {
			continue // until all connections are made
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		p := phase()
		p.heaps = append(p.heaps, m.HeapAlloc)
		p.goroutines = max(p.goroutines, runtime.NumGoroutine())
	}
	callers.Wait()

	t.Logf("%-12s %8s %8s %8s %8s %10s %10s %10s %10s %10s", "third", "calls", "served", "failed", "left", "at once", "layers p50", "layers p99", "heap MiB", "goroutines")
	for i := range phases {
		p := &phases[i]
		t.Logf("%-12d %8d %8d %8d %8d %10d %10v %10v %10.2f %10d", i+1, p.calls.Load(), p.served.Load(), p.failed.Load(), p.left.Load(), p.layers.count(),
			p.layers.percentile(0.5), p.layers.percentile(0.99), float64(p.heap())/(1<<20), p.goroutines)
	}
	for _, k := range s.Stats().Keys {
		t.Logf("%s: %d sends, %d served, refused %v, %d failed, waits p50 %v p99 %v", k.Key, k.Sends, k.Served, k.Refused, k.Failed, k.WaitP50, k.WaitP99)
		if k.Budget.InFlight != 0 || k.Budget.Queued != 0 {
			t.Errorf("%s: %d slots taken, %d in line", k.Key, k.Budget.InFlight, k.Budget.Queued)
		}
	}
	first, last := &phases[0], &phases[2]
	if float64(last.heap()) > soakHeap*float64(first.heap())+soakHeapFloor {
		t.Errorf("the heap grew from %d to %d bytes", first.heap(), last.heap())
	}
	if a, b := first.layers.percentile(0.5), last.layers.percentile(0.5); float64(b) > soakLatency*float64(a)+float64(soakLatencyFloor) {
		t.Errorf("the layers add %v to a call, and added %v in the beginning", b, a)
	}
}

// soakCall is one call: how long the transport below the layers took, and
// whether anything but a plain send happened to it.
type soakCall struct {
	below   atomic.Int64
	delayed atomic.Bool
}

type soakKey struct{}

// soakPhase is what is measured in a third of the time.
type soakPhase struct {
	calls, served, failed, left atomic.Int64
	layers                      soakHistogram
	heaps                       []uint64
	goroutines                  int
}

// heap is the median of the samples.
func (p *soakPhase) heap() uint64 {
	if len(p.heaps) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(p.heaps))[len(p.heaps)/2]
}

// soakHistogram counts durations, in steps of a sixteenth of an octave from 1 µs.
type soakHistogram [512]atomic.Int64

func (h *soakHistogram) add(d time.Duration) {
	i := int(16 * math.Log2(max(1, d.Seconds()*1e6)))
	h[min(i, len(h)-1)].Add(1)
}

func (h *soakHistogram) count() (n int64) {
	for i := range h {
		n += h[i].Load()
	}
	return n
}

func (h *soakHistogram) percentile(p float64) time.Duration {
	total, seen := h.count(), int64(0)
	for i := range h {
		if seen += h[i].Load(); total > 0 && float64(seen) >= p*float64(total) {
			return time.Duration(math.Exp2(float64(i+1)/16) * float64(time.Microsecond)).Round(time.Microsecond / 10)
		}
	}
	return 0
}

// soakAnswer is a server on one of its days.
func soakAnswer(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	time.Sleep(time.Duration(5+rand.IntN(10)) * time.Millisecond)
	switch n := rand.IntN(10_000); {
	case n < 50:
		panic(http.ErrAbortHandler)
	case n < 150:
		w.WriteHeader(500)
	case n < 152:
		w.Header().Set("Retry-After-Ms", "50")
		w.WriteHeader(429)
	case n < 1200: // a stream
		for range 10 {
			if _, err := w.Write(make([]byte, 200)); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			time.Sleep(3 * time.Millisecond)
		}
	default:
		w.Header().Set("X-Ratelimit-Limit-Requests", "18000")
		w.Header().Set("X-Ratelimit-Remaining-Requests", "17000")
		w.Header().Set("X-Ratelimit-Reset-Requests", "3s")
		w.Write(make([]byte, rand.IntN(4000)))
	}
}

// soakCaller calls until ctx ends, thinks in between, and sometimes leaves early.
func soakCaller(ctx context.Context, t *testing.T, client *http.Client, url string, http2 bool, phase func() *soakPhase) {
	for ctx.Err() == nil {
		if sleepUntil(ctx, time.Duration(400+rand.IntN(800))*time.Millisecond) != nil {
			return
		}
		p, c := phase(), new(soakCall)
		callCtx, cancel := context.WithCancel(context.WithValue(context.Background(), soakKey{}, c))
		if rand.IntN(50) == 0 {
			time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, cancel)
		}
		req, err := http.NewRequestWithContext(callCtx, "PUT", url, bytes.NewReader(make([]byte, rand.IntN(4000))))
		if err != nil {
			t.Error(err)
		}
		began := time.Now()
		resp, err := client.Do(req)
		took := time.Since(began)
		p.calls.Add(1)
		switch {
		case err == nil && resp.StatusCode == 200:
			p.served.Add(1)
			if !c.delayed.Load() {
				p.layers.add(took - time.Duration(c.below.Load()))
			}
			if (resp.ProtoMajor == 2) != http2 {
				t.Errorf("came over %s", resp.Proto)
			}
		case callCtx.Err() != nil:
			p.left.Add(1)
		default:
			p.failed.Add(1)
		}
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		cancel()
	}
}
