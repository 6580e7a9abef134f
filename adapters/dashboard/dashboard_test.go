package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stackOf returns a Stack that has sent to so many keys.
func stackOf(t testing.TB, keys int, router *escalate.Router) *middleware.Stack {
	t.Helper()
	stack, err := middleware.New(middleware.Config{
		Router: router,
		Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600), bucket.PerMinute(bucket.Tokens, 100_000)}},
		Pace:   middleware.PaceConfig{Key: func(r *http.Request) string { return r.URL.Query().Get("key") }},
	})
	if err != nil {
		t.Fatal(err)
	}
	rt := stack.Transport(metertest.New(metertest.Config{}).Transport())
	for i := range keys {
		req, _ := http.NewRequest("GET", fmt.Sprintf("http://provider.test/?key=model-%03d", i), nil)
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return stack
}

func get(t *testing.T, h http.Handler, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

func TestDashboardServesItsFiles(t *testing.T) {
	mux := http.NewServeMux()
	h := Handler(stackOf(t, 1, nil))
	mux.Handle("/debug/metered/", http.StripPrefix("/debug/metered", h))
	total := 0
	for name, kind := range types {
		w := get(t, mux, "GET", "/debug/metered/"+name)
		if w.Code != 200 || w.Header().Get("Content-Type") != kind || w.Header().Get("Content-Security-Policy") != policy ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%q: %d %v", name, w.Code, w.Header())
		}
		total += w.Body.Len()
		if head := get(t, mux, "HEAD", "/debug/metered/"+name); head.Code != 200 || head.Body.Len() != 0 {
			t.Errorf("HEAD of %q: %d, %d bytes", name, head.Code, head.Body.Len())
		}
	}
	if total > 200_000 {
		t.Errorf("the page has %d bytes, at most 200,000 are allowed", total)
	}
	for _, name := range []string{"secret", "../handler.go", "page/app.js/x", "index.html"} {
		if w := get(t, mux, "GET", "/debug/metered/"+name); w.Code == 200 {
			t.Errorf("%q: %d", name, w.Code)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if w := get(t, mux, method, "/debug/metered/"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	// Mounted without a slash.
	bare := http.NewServeMux()
	bare.Handle("/metered", http.StripPrefix("/metered", h))
	if w := get(t, bare, "GET", "/metered"); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != "/metered/" {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
}

// Nothing in the page comes from another host, and nothing in it is inline, which the policy would not run.
func TestDashboardKeepsToItsPolicy(t *testing.T) {
	for name := range types {
		if strings.HasPrefix(name, "uPlot") {
			continue
		}
		if name == "" {
			name = "index.html"
		}
		text, err := files.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for what, bad := range map[string]string{
			"another host": `https?://[a-z]`, "an inline handler": `\son[a-z]+="`, "an inline style": `\sstyle="|<style`,
			"an inline script": `<script>|javascript:`, "markup from data": `innerHTML|insertAdjacentHTML|document\.write|eval\(`,
		} {
			found := regexp.MustCompile(bad).FindAll(text, -1)
			for _, f := range found {
				if name == "icon.svg" && what == "another host" { // the namespace
					continue
				}
				t.Errorf("%s has %s: %s", name, what, f)
			}
		}
	}
}

// events reads the feed's events.
func events(t *testing.T, body io.Reader) func() view {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<22)
	return func() view {
		t.Helper()
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var v view
				if err := json.Unmarshal([]byte(text), &v); err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
		t.Fatal("the feed has ended")
		return view{}
	}
}

// pipeWriter is a ResponseWriter whose body can be read while it is written.
type pipeWriter struct {
	*io.PipeWriter
	header http.Header
}

func (w pipeWriter) Header() http.Header { return w.header }
func (pipeWriter) WriteHeader(int)       {}
func (pipeWriter) Flush()                {}

func TestDashboardFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router, err := escalate.New(escalate.Config{Primary: escalate.Route{Name: "big"},
			Backups: []escalate.Route{{Name: "small", Quota: "small", URL: "http://backup.test"}}})
		if err != nil {
			t.Fatal(err)
		}
		stack := stackOf(t, 1, router)
		h := Handler(stack)
		ctx, cancel := context.WithCancel(context.Background())
		r, w := io.Pipe()
		done := make(chan bool)
		header := http.Header{}
		go func() {
			h.ServeHTTP(pipeWriter{w, header}, httptest.NewRequest("GET", "/events", nil).WithContext(ctx))
			close(done)
		}()
		next := events(t, r)
		first := next()
		if len(first.Keys) != 1 || len(first.Keys[0].History) != 90 || len(first.Keys[0].Levels) != 2 || first.Keys[0].Health != "green" ||
			len(first.Routes) != 2 || first.Routes[0].State != "closed" {
			t.Errorf("%+v", first)
		}
		if header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%v", header)
		}
		key := stack.Stats().Keys[0].Key
		stack.Limiter().(*bucket.Local).Hold(key, time.Now().Add(20*time.Second))
		began := time.Now()
		histories := 0
		last := int64(21_000)
		for range 10 {
			v := next()
			if k := v.Keys[0]; k.Held <= 0 || k.Held >= last {
				t.Errorf("held for %d ms, before it was %d", k.Held, last)
			} else {
				last = k.Held
			}
			if v.Keys[0].History != nil {
				histories++
			}
		}
		if took := time.Since(began); took != 10*time.Second || histories != 1 {
			t.Errorf("ten views in %v, %d with histories", took, histories)
		}
		cancel()
		<-done
		r.Close()
		time.Sleep(2 * time.Second) // the goroutine goes with the last viewer
	})
}

func TestDashboardBoundsItsViewers(t *testing.T) {
	f := newFeed(func() view { return view{} })
	for range mostViewers {
		f.viewers[make(chan []byte)] = true
	}
	w := httptest.NewRecorder()
	f.serve(w, httptest.NewRequest("GET", "/events", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d", w.Code)
	}
}

func TestDashboardShowsNoSecrets(t *testing.T) {
	for key, want := range map[string]string{
		"https://user:pass@api.test/v1?token=x": "https://api.test/v1",
		"plain":                                 "plain",
		"https://api.test:443#9f8e":             "https://api.test:443#9f8e",
		"":                                      "",
	} {
		if got := shown(key); got != want {
			t.Errorf("%q is shown as %q, want %q", key, got, want)
		}
	}
	long := strings.Repeat("ä", 500)
	if got := shown(long); len([]rune(got)) > 80 || got == shown(long+"x") {
		t.Errorf("%q", got)
	}
}

// BenchmarkUpdate is what two hundred keys cost a second, whoever watches: its ns/op over 10^9 is the share of a core.
func BenchmarkUpdate(b *testing.B) {
	stack := stackOf(b, 200, nil)
	f := newFeed(func() view { return look(stack) })
	n := 0
	size := 0
	for b.Loop() {
		n++
		size = len(f.render(n%slot == 0))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e7, "%core")
	b.ReportMetric(float64(size), "bytes")
}
