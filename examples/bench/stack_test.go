package bench

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"testing"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// A call: a POST of 1 KiB with 8 headers, whose body can be sent again.
var content = bytes.Repeat([]byte("meteredhttp sent"), 64)

const endpoint = "https://api.example.com/v1/chat/completions"

func newCall(tb testing.TB) *call {
	tb.Helper()
	c := new(call)
	req, err := http.NewRequest(http.MethodPost, endpoint, nil)
	if err != nil {
		tb.Fatal(err)
	}
	req.Header = http.Header{
		"Accept":              {"application/json"},
		"Accept-Language":     {"*"},
		"Authorization":       {"Bearer sk-0123456789abcdef0123456789abcdef"},
		"Content-Type":        {"application/json"},
		"Openai-Organization": {"org-0123456789"},
		"User-Agent":          {"bench/1.0"},
		"X-Client-Version":    {"1.2.3"},
		"X-Request-Id":        {"0123456789abcdef"},
	}
	req.ContentLength = int64(len(content))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	c.req = req
	c.body = io.NopCloser(&c.reader) // what http.NewRequest makes of a *bytes.Reader
	return c
}

// call is a call that is made again and again, so that making it costs nothing.
type call struct {
	req     *http.Request
	reader  bytes.Reader
	body    io.ReadCloser
	scratch [2048]byte
}

// via returns a side that makes the call by do, and reads the answer.
func (c *call) via(tb testing.TB, name string, do func(*http.Request) (*http.Response, error)) side {
	return side{name, func(n int) {
		for range n {
			c.reader.Reset(content)
			c.req.Body = c.body
			resp, err := do(c.req)
			if err == nil && resp.StatusCode != http.StatusOK {
				tb.Error(name, resp.Status)
			}
			if err == nil {
				err = drain(resp.Body, c.scratch[:])
			}
			if err != nil {
				tb.Error(name, err)
				return
			}
		}
	}}
}

// newStack returns all the layers of middleware.New, with two limits.
func newStack(tb testing.TB, backups ...escalate.Route) *middleware.Stack {
	tb.Helper()
	c := middleware.Config{
		Bucket: twoLimits(),
		Pace:   middleware.PaceConfig{Cost: func(*http.Request) (bucket.Cost, error) { return callCost, nil }},
	}
	if len(backups) > 0 {
		router, err := escalate.New(escalate.Config{Primary: escalate.Route{Name: "primary"}, Backups: backups})
		if err != nil {
			tb.Fatal(err)
		}
		c.Router = router
	}
	s, err := middleware.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

var backup = escalate.Route{
	Name:   "backup",
	URL:    "https://backup.example.net/v1",
	Model:  "another-model",
	Header: http.Header{"Authorization": {"Bearer of another key"}},
}

func newOurs(tb testing.TB, base http.RoundTripper) http.RoundTripper {
	return newStack(tb, backup).Transport(base)
}

// BenchmarkStack is what the whole Stack adds to a call that is served, beside
// what the rivals add.
//
// In the place of a transport ours, the rival and failsafe-go get what an
// http.Client gives its transport. Under a client, ours is the Transport of an
// http.Client, and the rival is used by its own Do with its own kind of request,
// which holds the body as a []byte: the quickest way to use it.
func BenchmarkStack(b *testing.B) {
	for _, answer := range []struct {
		name   string
		header func() http.Header
	}{{"plain", plainAnswer}, {"OpenAI", openAIAnswer}} {
		b.Run("transport/"+answer.name, func(b *testing.B) { benchmarkTransport(b, answer.header) })
		b.Run("client/"+answer.name, func(b *testing.B) { benchmarkClient(b, answer.header) })
	}
}

const stackBlock = 2048

func benchmarkTransport(b *testing.B, header func() http.Header) {
	c := newCall(b)
	base := newMemory(header())
	bare := c.via(b, "bare", base.RoundTrip)
	ours := c.via(b, "ours", newOurs(b, base).RoundTrip)
	rival := c.via(b, "rival", newRival(base).RoundTrip)
	failsafe := c.via(b, "failsafe", newFailsafe(b, base).RoundTrip)

	ns := inTurns(b, stackBlock, bare, ours, rival, failsafe)
	reportAdded(b, ns, bare, ours)
	reportRival(b, ns, bare, rival)
	b.ReportMetric((ns[1]-ns[0])/(ns[3]-ns[0]), "x/failsafe")
}

func benchmarkClient(b *testing.B, header func() http.Header) {
	c := newCall(b)
	base := newMemory(header())
	bare := c.via(b, "bare", (&http.Client{Transport: base}).Do)
	ours := c.via(b, "ours", (&http.Client{Transport: newOurs(b, base)}).Do)
	retryable := newRetryable(base)
	rival := c.via(b, "rival", func(req *http.Request) (*http.Response, error) {
		native := &retryablehttp.Request{Request: req}
		if err := native.SetBody(content); err != nil {
			return nil, err
		}
		return retryable.Do(native)
	})

	ns := inTurns(b, stackBlock, bare, ours, rival)
	reportAdded(b, ns, bare, ours)
	reportRival(b, ns, bare, rival)
}

// reportAdded prints what ours, the second side, adds to bare, the first.
func reportAdded(b *testing.B, ns []float64, bare, ours side) {
	b.Helper()
	reportAllocated(b, ours)
	b.ReportMetric(ns[1], "ns/op")
	b.ReportMetric(ns[1]-ns[0], "ns-added")
	b.ReportMetric(allocsAdded(bare, ours), "allocs-added")
}

// reportRival prints what the rival, the third side, adds, and how ours compares.
func reportRival(b *testing.B, ns []float64, bare, rival side) {
	b.Helper()
	b.ReportMetric(ns[2]-ns[0], "rival-ns-added")
	b.ReportMetric(allocsAdded(bare, rival), "rival-allocs-added")
	b.ReportMetric((ns[1]-ns[0])/(ns[2]-ns[0]), "x/rival")
}

// allocsAdded is rounded down, as testing.B rounds: a collection may empty a pool.
func allocsAdded(bare, s side) float64 {
	without, _ := allocated(bare)
	with, _ := allocated(s)
	return math.Floor(with - without + 0.01)
}

// Of a call that is served the Stack allocates the turn, the request that carries
// it, and no more than two things beside.
func TestStackAddsAtMostFourAllocations(t *testing.T) {
	for name, header := range map[string]http.Header{"plain": plainAnswer(), "OpenAI": openAIAnswer()} {
		c := newCall(t)
		base := newMemory(header)
		s := newStack(t, backup)
		bare := c.via(t, "bare", base.RoundTrip)
		ours := c.via(t, "ours", s.Transport(base).RoundTrip)
		without := testing.AllocsPerRun(1000, func() { bare.run(1) })
		with := testing.AllocsPerRun(1000, func() { ours.run(1) })
		if added := with - without; added > 4 {
			t.Errorf("%s: %v allocations added, want at most 4", name, added)
		}
		for _, k := range s.Stats().Keys {
			if k.Sends != k.Served || k.Sends < 1000 || k.WaitMax != 0 {
				t.Errorf("%s: of %d sends %d were served, the longest wait was %v", name, k.Sends, k.Served, k.WaitMax)
			}
		}
	}
}
