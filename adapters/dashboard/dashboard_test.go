package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
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
		if took := time.Since(began); took != 10*time.Second || histories != 2 {
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
	n := newNames()
	for key, want := range map[string]string{
		"":                                      "",
		"plain":                                 "plain",
		"two words":                             "two words",
		"team@corp.test":                        "team@corp.test",
		"https://api.test:443":                  "https://api.test:443",
		"https://api.test:443#9f8e7d6c5b4a3f2e": "https://api.test:443#9f8e7d6c5b4a3f2e", // by KeyByCredential
		"https://generativelanguage.googleapis.com:443": "https://generativelanguage.googleapis.com:443",
		"meta-llama-3.1-70b-instruct-turbo":             "meta-llama-3.1-70b-instruct-turbo",
		"0190a6f2-7c1d-7d0e-9c51-0b1f0e3c2a11":          "0190a6f2-7c1d-7d0e-9c51-0b1f0e3c2a11",
		"https://user:hunter2@api.test/v1?token=x":      "https://api.test/v1 #",
		"https://user:p%zz@hun@api.test":                "https://api.test #", // no URL, for url.Parse
		"user:hunter2@api.test":                         "api.test #",
		"https://api.test/v1?key=hunter2":               "https://api.test/v1 #",
		"https://api.test/v1?key=hunter2#part":          "https://api.test/v1#part #",
		"https://api.test/#access_token=hunter2":        "https://api.test/ #",
		"Bearer hunter2":                                "Bearer … #",
		"prod basic aHVudGVyMg==":                       "prod basic … #",
		"sk-proj-T3BlbkFJc2VjcmV0MTIzNDU2":              "sk-proj-T3Bl… #",
		strings.Repeat("ä", 500):                        strings.Repeat("ä", 56) + "… #",
		"bad\xffbytes":                                  "bad�bytes #",
	} {
		got := n.of(key)
		if name, marked := strings.CutSuffix(want, " #"); marked {
			if mark, ok := strings.CutPrefix(got, name+" #"); !ok || len(mark) != 8 {
				t.Errorf("%q is shown as %q, want %q and a mark", key, got, want)
			}
			if other := newNames().of(key); other == got {
				t.Errorf("%q has the same mark for everybody", key)
			}
		} else if got != want {
			t.Errorf("%q is shown as %q", key, got)
		}
		if got != n.of(key) {
			t.Errorf("%q changes its name", key)
		}
	}
	if a, b := n.of("https://a:1@api.test"), n.of("https://b:2@api.test"); a == b {
		t.Errorf("two keys are both %q", a)
	}
}

// Of very many keys those that are worst off are shown, and all are counted.
func TestDashboardBoundsItsKeys(t *testing.T) {
	all := make([]middleware.KeyStats, 3*mostKeys)
	for i := range all {
		all[i] = middleware.KeyStats{Key: fmt.Sprintf("k%05d", i), Sends: int64(i)}
	}
	all[0].Wasted5 = 0.5
	all[1].Budget.HeldFor = time.Second
	all[2].Budget.Queued = 1
	keys := worst(all)
	if len(keys) != mostKeys || keys[0] != &all[0] || keys[1] != &all[1] || keys[2] != &all[2] || keys[3] != &all[2*mostKeys+3] {
		t.Errorf("%d keys, from %s, %s, %s, %s on", len(keys), keys[0].Key, keys[1].Key, keys[2].Key, keys[3].Key)
	}
	stack := stackOf(t, mostKeys+50, nil)
	v := look(stack, newNames())
	if v.Total != mostKeys+50 || len(v.Keys) != mostKeys || v.Health[middleware.Green] != mostKeys+50 {
		t.Errorf("%d of %d keys, %v", len(v.Keys), v.Total, v.Health)
	}
}

// A limiter of the user's may tell nonsense; the rest of the view is told nevertheless.
func TestDashboardLeavesNonsenseOut(t *testing.T) {
	k := keyOf(&middleware.KeyStats{Key: "k", Budget: bucket.KeyStats{Levels: []bucket.Level{
		{Available: math.NaN(), Capacity: 1}, {Available: 1, Capacity: math.Inf(1)}, {Available: 1, Capacity: 2},
	}}}, newNames())
	if len(k.Levels) != 1 || k.Levels[0].Capacity != 2 {
		t.Errorf("%+v", k.Levels)
	}
}

// Whoever takes nothing of what he is told loses his place, whatever a server's WriteTimeout is; whoever takes it
// keeps it.
func TestDashboardGivesUpOnADeafViewer(t *testing.T) {
	for name, deaf := range map[string]bool{"deaf": true, "listening": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFeed(func() view { return view{} })
				here, there := net.Pipe()
				server := &http.Server{WriteTimeout: 3 * time.Second, Handler: http.HandlerFunc(f.serve)}
				go server.Serve(&oneListener{conn: there})
				fmt.Fprint(here, "GET /events HTTP/1.1\r\nHost: a.test\r\n\r\n")
				if !deaf {
					go io.Copy(io.Discard, here)
				}
				viewers := func() int {
					synctest.Wait()
					f.mu.Lock()
					defer f.mu.Unlock()
					return len(f.viewers)
				}
				if n := viewers(); n != 1 {
					t.Fatalf("%d watch", n)
				}
				time.Sleep(patience + 3*every)
				if n := viewers(); (n == 0) != deaf {
					t.Errorf("%d watch", n)
				}
				here.Close()
				server.Close()
				time.Sleep(3 * every)
				if n := viewers(); n != 0 || f.running {
					t.Errorf("%d watch, running is %t", n, f.running)
				}
			})
		})
	}
}

// oneListener accepts one connection.
type oneListener struct{ conn net.Conn }

func (l *oneListener) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	c := l.conn
	l.conn = nil
	return c, nil
}
func (*oneListener) Close() error   { return nil }
func (*oneListener) Addr() net.Addr { return &net.TCPAddr{} }

// However many come at once, the Stack is looked at once a second.
func TestDashboardSharesItsLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		f := newFeed(func() view { looks++; return view{} })
		for range 100 {
			f.first()
		}
		time.Sleep(every)
		f.first()
		if looks != 2 {
			t.Errorf("%d looks", looks)
		}
	})
}

// BenchmarkUpdate is what two hundred keys cost a second, whoever watches: its ns/op over 10^9 is the share of a core.
func BenchmarkUpdate(b *testing.B) {
	stack := stackOf(b, 200, nil)
	f := newFeed(func() view { return look(stack, newNames()) })
	n := 0
	size := 0
	for b.Loop() {
		n++
		size = len(f.render(n%slot == 0))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e7, "%core")
	b.ReportMetric(float64(size), "bytes")
}
