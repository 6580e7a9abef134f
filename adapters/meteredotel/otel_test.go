package meteredotel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/meteredhttp/meteredhttp/adapters/meteredotel"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is an Observer whose figures can be read.
type rig struct {
	*meteredotel.Observer
	reader *sdkmetric.ManualReader
}

func newRig(t *testing.T, c meteredotel.Config) rig {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	c.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	o, err := meteredotel.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return rig{o, reader}
}

// read returns every point as "name{attributes}": its value, or a histogram's count and sum.
func (r rig) read(t *testing.T) map[string]string {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	points := map[string]string{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			put := func(a attribute.Set, format string, args ...any) {
				points[m.Name+"{"+a.Encoded(attribute.DefaultEncoder())+"}"] = fmt.Sprintf(format, args...)
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, "%d", p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, "%d", p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, "%.4g", p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, "%d in %.4g", p.Count, p.Sum)
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return points
}

func (r rig) want(t *testing.T, want map[string]string) {
	t.Helper()
	got := r.read(t)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	if t.Failed() {
		for name, value := range got {
			t.Logf("%s = %s", name, value)
		}
	}
}

func TestOtelCountsEachKindOfEvent(t *testing.T) {
	r := newRig(t, meteredotel.Config{})
	ctx := context.Background()
	for _, e := range []middleware.Event{
		{Kind: middleware.Sent, Key: "k"},
		{Kind: middleware.Sent, Key: "k", Route: "backup"},
		{Kind: middleware.Settled, Key: "k", Cost: bucket.Cost{Requests: 1, InputTokens: 30, OutputTokens: 4}},
		{Kind: middleware.Waited, Key: "k", Wait: 1500 * time.Millisecond},
		{Kind: middleware.Overdue, Key: "k", Wait: 30 * time.Second},
		{Kind: middleware.Refused, Key: "k", Status: 429, Class: retryafter.RateLimited},
		{Kind: middleware.Refused, Key: "k", Status: 529, Class: retryafter.Overloaded},
		{Kind: middleware.Held, Key: "k", Class: retryafter.RateLimited, Wait: 2 * time.Second},
		{Kind: middleware.Retried, Key: "k", Status: 502},
		{Kind: middleware.Retried, Key: "k", Err: fmt.Errorf("post: %w", io.ErrUnexpectedEOF)},
		{Kind: middleware.Retried, Key: "k"},
		{Kind: middleware.Escalated, Key: "k", Err: &escalate.Error{}},
		{Kind: middleware.Rerouted, Key: "k", Route: "backup"},
		{Kind: middleware.StoreDown, Err: errors.New("gone")},
		{Kind: middleware.StoreUp},
		{Kind: middleware.Doubted, Key: "k", Err: errors.New("limits differ")},
	} {
		r.Observe(ctx, e)
	}
	r.want(t, map[string]string{
		"metered.client.requests{metered.key=k}":                                                          "1",
		"metered.client.requests{metered.key=k,metered.route=backup}":                                     "1",
		"metered.client.tokens{metered.key=k,metered.token.type=input}":                                   "30",
		"metered.client.tokens{metered.key=k,metered.token.type=output}":                                  "4",
		"metered.client.wait.duration{metered.key=k}":                                                     "1 in 1.5",
		"metered.client.wait.duration{metered.key=k,metered.overdue=true}":                                "1 in 30",
		"metered.client.refusals{http.response.status_code=429,metered.class=rate_limited,metered.key=k}": "1",
		"metered.client.refusals{http.response.status_code=529,metered.class=overloaded,metered.key=k}":   "1",
		"metered.client.hold.duration{metered.class=rate_limited,metered.key=k}":                          "1 in 2",
		"metered.client.retries{http.response.status_code=502,metered.key=k}":                             "1",
		"metered.client.retries{error.type=*errors.errorString,metered.key=k}":                            "1",
		"metered.client.retries{error.type=_OTHER,metered.key=k}":                                         "1",
		"metered.client.escalations{metered.key=k}":                                                       "1",
		"metered.client.reroutes{metered.key=k,metered.route=backup}":                                     "1",
		"metered.client.doubts{metered.key=k}":                                                            "1",
		"metered.store.changes{metered.key=,metered.store.state=down}":                                    "1",
		"metered.store.changes{metered.key=,metered.store.state=up}":                                      "1",
	})
}

func TestOtelAMillionKeysAreFewSeries(t *testing.T) {
	r := newRig(t, meteredotel.Config{MaxKeys: 10})
	for i := range 1000 {
		r.Observe(context.Background(), middleware.Event{Kind: middleware.Sent, Key: fmt.Sprint(i), Route: "a"})
	}
	points := r.read(t)
	if len(points) != 11 {
		t.Errorf("%d series, want 10 and the others", len(points))
	}
	if got := points["metered.client.requests{metered.key=other,metered.route=a}"]; got != "990" {
		t.Errorf("others sent %s, want 990", got)
	}
}

func TestOtelNamesKeys(t *testing.T) {
	var next []middleware.Event
	r := newRig(t, meteredotel.Config{
		Name: func(key string) string { return strings.ToUpper(key) },
		Next: middleware.ObserverFunc(func(_ context.Context, e middleware.Event) { next = append(next, e) }),
	})
	r.Observe(context.Background(), middleware.Event{Kind: middleware.Sent, Key: "a"})
	r.want(t, map[string]string{"metered.client.requests{metered.key=A}": "1"})
	if len(next) != 1 || next[0].Key != "a" {
		t.Errorf("the next observer heard %v", next)
	}
}

func TestOtelRefusesNonsense(t *testing.T) {
	if _, err := meteredotel.New(meteredotel.Config{MaxKeys: -1}); err == nil {
		t.Error("a negative MaxKeys is no error")
	}
}

// A storm and its end, as a whole Stack shows it.
func TestOtelOverAStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, meteredotel.Config{})
		provider := metertest.New(metertest.Config{Requests: 60, RequestBurst: 2})
		stack, err := middleware.New(middleware.Config{
			Observer: r.Observer,
			Pace:     middleware.PaceConfig{Key: func(*http.Request) string { return "model" }},
			Bucket:   bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 600, Per: time.Minute, Burst: 10}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		watch, err := r.Watch(stack)
		if err != nil {
			t.Fatal(err)
		}
		spans := tracetest.NewSpanRecorder()
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("t")

		client := &http.Client{Transport: stack.Transport(provider.Transport())}
		for range 3 {
			ctx, span := tracer.Start(context.Background(), "call")
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://provider.test/", nil)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			span.End()
		}

		points := r.read(t)
		for name, want := range map[string]string{
			"metered.client.requests{metered.key=model}":                                                          "4",
			"metered.client.queue.length{metered.key=model}":                                                      "0",
			"metered.client.in_flight{metered.key=model}":                                                         "0",
			"metered.client.wasted.ratio{metered.key=model}":                                                      "0.25",
			"metered.client.capacity{metered.key=model,metered.limit.period=60,metered.limit.unit=requests}":      "9",
			"metered.client.refusals{http.response.status_code=429,metered.class=rate_limited,metered.key=model}": "1",
		} {
			if points[name] != want {
				t.Errorf("%s is %q, want %q", name, points[name], want)
			}
		}
		var events []string
		for _, s := range spans.Ended() {
			for _, e := range s.Events() {
				events = append(events, e.Name)
			}
		}
		for _, want := range []string{"metered.refused", "metered.held", "metered.waited"} {
			if !slices.Contains(events, want) {
				t.Errorf("the spans tell of %v, not of %s", events, want)
			}
		}

		if err := watch.Unregister(); err != nil {
			t.Fatal(err)
		}
		if _, ok := r.read(t)["metered.client.queue.length{metered.key=model}"]; ok {
			t.Error("the gauges go on after Unregister")
		}
		for name, value := range points {
			t.Log(name, value)
		}
	})
}

// A span that is not recorded, and a provider that keeps nothing, cost next to nothing.
func TestOtelWithoutAnSDK(t *testing.T) {
	o, err := meteredotel.New(meteredotel.Config{MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	o.Observe(context.Background(), middleware.Event{Kind: middleware.Sent, Key: "k"})
	n := testing.AllocsPerRun(100, func() {
		o.Observe(context.Background(), middleware.Event{Kind: middleware.Sent, Key: "k"})
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// served is what a request that is served at once tells.
func served(o middleware.Observer, ctx context.Context) {
	o.Observe(ctx, middleware.Event{Kind: middleware.Waited, Key: "k", Wait: time.Millisecond})
	o.Observe(ctx, middleware.Event{Kind: middleware.Sent, Key: "k"})
	o.Observe(ctx, middleware.Event{Kind: middleware.Settled, Key: "k", Cost: bucket.Cost{Requests: 1, InputTokens: 30, OutputTokens: 4}})
}

func TestOtelAllocations(t *testing.T) {
	r := newRig(t, meteredotel.Config{})
	ctx := context.Background()
	served(r.Observer, ctx)
	if n := testing.AllocsPerRun(1000, func() { served(r.Observer, ctx) }); n > 4 {
		t.Errorf("%v allocations a request, want at most 4", n)
	}
}

// BenchmarkObserve is what a request costs that waits for its budget and is served, on the SDK.
func BenchmarkObserve(b *testing.B) {
	reader := sdkmetric.NewManualReader()
	o, err := meteredotel.New(meteredotel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		served(o, ctx)
	}
}

func ExampleNew() {
	observer, err := meteredotel.New(meteredotel.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	stack, err := middleware.New(middleware.Config{Observer: observer})
	if err != nil {
		fmt.Println(err)
		return
	}
	watch, err := observer.Watch(stack)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer watch.Unregister()
	_ = &http.Client{Transport: stack.Transport(nil)}
	// Output:
}
