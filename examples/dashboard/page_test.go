package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/meteredhttp/meteredhttp/adapters/dashboard"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A tab is a page in a browser, what its console said, and the hosts that it asked.
type tab struct {
	t    *testing.T
	ctx  context.Context
	said *complaints

	mu    sync.Mutex
	hosts []string
}

// open opens the page of a stack at path; without a browser the test is skipped.
func open(t *testing.T, stack *middleware.Stack) *tab {
	t.Helper()
	addr, stop := serve(t, &scene{stack: stack}, "127.0.0.1:0")
	t.Cleanup(stop)
	ctx, shut, err := browse(context.Background(), 1280, 900)
	if errors.Is(err, errNoBrowser) {
		t.Skip(err)
	}
	t.Cleanup(shut)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx, said: new(complaints)}
	p.said.listen(ctx)
	chromedp.ListenTarget(ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok {
			if u, err := url.Parse(e.Request.URL); err == nil && u.Host != addr {
				p.mu.Lock()
				p.hosts = append(p.hosts, e.Request.URL)
				p.mu.Unlock()
			}
		}
	})
	p.run("it renders", network.Enable(), chromedp.Navigate("http://"+addr+"/debug/metered/"), chromedp.Poll(live, nil))
	return p
}

func (p *tab) run(what string, actions ...chromedp.Action) {
	p.t.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// text is what a script evaluates to.
func (p *tab) text(script string) string {
	p.t.Helper()
	var s string
	p.run(script, chromedp.Evaluate(script, &s))
	return s
}

// wellBehaved says that the page kept to itself.
func (p *tab) wellBehaved() {
	p.t.Helper()
	if all := p.said.take(); len(all) > 0 {
		p.t.Errorf("the console says %q", all)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.hosts) > 0 {
		p.t.Errorf("the page asks other hosts: %q", p.hosts)
	}
}

// stackOf returns a Stack that has sent once for each key.
func stackOf(t *testing.T, keys ...string) *middleware.Stack {
	t.Helper()
	stack, err := middleware.New(middleware.Config{
		Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600), {Unit: bucket.Tokens, Amount: 1_000_000, Per: 24 * time.Hour}}},
		Pace:   middleware.PaceConfig{Key: func(r *http.Request) string { return r.Header.Get("X-Key") }},
	})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: stack.Transport(metertest.New(metertest.Config{}).Transport())}
	for _, key := range keys {
		call(context.Background(), client, key)
	}
	return stack
}

// Keys may come from users of users: none of them becomes markup, none makes the page wider than a phone, and what
// looks like a secret is not on it.
func TestPageOfHostileKeys(t *testing.T) {
	markup := `<img src=x onerror="document.title='owned'"><script>alert(1)</script>`
	p := open(t, stackOf(t, markup, "__proto__", "constructor", strings.Repeat("w", 4000), "sk-proj-T3BlbkFJc2VjcmV0MTIzNDU2",
		"https://user:hunter2@api.test/v1?token=hunter2"))
	p.run("all are there", chromedp.Poll(`document.querySelectorAll("article").length === 6`, nil))
	names := p.text(`[...document.querySelectorAll("h2")].map(e => e.textContent).join("\n")`)
	if !slices.Contains(strings.Split(names, "\n"), markup) {
		t.Errorf("the markup is not shown as it is: %q", names)
	}
	if n := p.text(`String(document.querySelectorAll("main img, main script").length)`); n != "0" {
		t.Errorf("%s elements came from a key", n)
	}
	var html string
	p.run("the whole page", chromedp.OuterHTML("html", &html))
	for _, secret := range []string{"hunter2", "cmV0MTIzNDU2"} {
		if strings.Contains(html, secret) {
			t.Errorf("%q is on the page", secret)
		}
	}
	p.run("a phone", chromedp.EmulateViewport(360, 740), chromedp.Poll(`innerWidth === 360`, nil))
	if wide := p.text(`String(document.documentElement.scrollWidth)`); wide != "360" {
		t.Errorf("at 360 pixels the page is %s wide", wide)
	}
	p.wellBehaved()
}

// The tests that find nothing to complain of would find it: an inline script is not run, and is complained of.
func TestPagePolicyIsEnforced(t *testing.T) {
	p := open(t, stackOf(t, "k"))
	p.run("an inline script, and a picture of another host", chromedp.Evaluate(`{
		const s = document.createElement("script"); s.textContent = "window.ran = true"; document.body.append(s);
		const i = document.createElement("img"); i.src = "http://127.0.0.2:9/x.png"; document.body.append(i); }`, nil),
		chromedp.Poll(`document.body.dataset.seen > 4`, nil))
	if ran := p.text(`String(window.ran)`); ran != "undefined" {
		t.Error("an inline script ran")
	}
	all := strings.Join(p.said.take(), "\n")
	for _, directive := range []string{"script-src", "img-src"} {
		if !strings.Contains(all, directive) {
			t.Errorf("nothing is said of %s: %q", directive, all)
		}
	}
}

func TestPageOfRoutesAndLongHolds(t *testing.T) {
	router, err := escalate.New(escalate.Config{
		Primary: escalate.Route{Name: "large", Quota: "large"},
		Backups: []escalate.Route{{Name: "small", Quota: "small", URL: "http://backup.test"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	provider := metertest.New(metertest.Config{})
	provider.Script(metertest.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7200"}}})
	stack, err := middleware.New(middleware.Config{Router: router})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: stack.Transport(provider.Transport())}
	resp, err := client.Get("http://provider.test/")
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()

	stack.Limiter().(*bucket.Local).Hold("small", time.Now().Add(7190*time.Second))

	p := open(t, stack)
	first, second := p.text(`document.querySelectorAll(".route")[0].textContent`), p.text(`document.querySelectorAll(".route")[1].textContent`)
	if !strings.Contains(first, "large") || !strings.Contains(first, "breaker open, rests for 1 h 59 min") || !strings.Contains(first, "opened 1 time, last: ") {
		t.Errorf("the first route is %q", first)
	}
	if !strings.Contains(second, "small") || !strings.Contains(second, "breaker closed") {
		t.Errorf("the second route is %q", second)
	}
	holds := p.text(`[...document.querySelectorAll(".hold")].filter(e => !e.hidden).map(e => e.textContent).join()`)
	if !strings.Contains(holds, "held for 1 h 59 min") {
		t.Errorf("the holds are %q", holds)
	}
	words := p.text(`[...document.querySelectorAll(".health")].map(e => e.textContent).join()`)
	if !strings.HasPrefix(words, "✕ red") || !strings.Contains(words, "✓ green") {
		t.Errorf("the healths are %q", words)
	}
	p.wellBehaved()
}

// Everything can be done by the keyboard, and what has the focus keeps it while the figures come and the order changes.
func TestPageByKeyboard(t *testing.T) {
	stack := stackOf(t, "a", "b", "c", "c", "c")
	p := open(t, stack)
	active := `document.activeElement.id || document.activeElement.getAttribute("aria-label")`
	var order []string
	for range 5 {
		p.run("tab", chromedp.KeyEvent(kb.Tab))
		order = append(order, p.text(active))
	}
	if want := []string{"find", "sort", "a, green", "b, green", "c, green"}; !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
	stack.Limiter().(*bucket.Local).Hold("c", time.Now().Add(time.Minute))
	p.run("sort by what is sent", chromedp.Focus("#sort"), chromedp.KeyEvent("sent"),
		chromedp.Poll(`document.querySelector("h2").textContent === "c"`, nil))
	p.run("back to a key", chromedp.Evaluate(`document.querySelectorAll("article")[1].focus()`, nil))
	before := p.text(active)
	p.run("sorted while it has the focus", chromedp.Evaluate(`{ const s = document.getElementById("sort"); s.value = "health";
		s.dispatchEvent(new Event("change")); window.then = +document.body.dataset.seen }`, nil),
		chromedp.Poll(`document.body.dataset.seen > window.then + 2`, nil))
	if after := p.text(active); after != before {
		t.Errorf("the focus went from %q to %q", before, after)
	}
	p.wellBehaved()
}

// Two hundred keys are drawn, and are found among each other.
func TestPageOfManyKeys(t *testing.T) {
	keys := make([]string, 200)
	for i := range keys {
		keys[i] = "model " + string(rune('a'+i/10)) + string(rune('0'+i%10))
	}
	p := open(t, stackOf(t, keys...))
	p.run("all are drawn", chromedp.Poll(`document.querySelectorAll("article").length === 200 && document.querySelectorAll(".spark canvas").length === 200`, nil))
	p.run("one is found", chromedp.SendKeys("#find", "MODEL T9"), chromedp.Poll(`document.querySelectorAll("article").length === 1`, nil))
	p.run("none is found", chromedp.SendKeys("#find", "no"), chromedp.Poll(`document.querySelectorAll("article").length === 0 && !document.getElementById("none").hidden`, nil))
	p.wellBehaved()
}

// A server that has no place for a viewer, or no page for a while, is asked again.
func TestPageAsksAgain(t *testing.T) {
	if browserPath() == "" {
		t.Skip(errNoBrowser)
	}
	page := dashboard.Handler(stackOf(t, "k"))
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" && asked.Add(1) <= 2 {
			http.Error(w, "full", http.StatusServiceUnavailable)
			return
		}
		page.ServeHTTP(w, r)
	}))
	defer server.Close() // and the connections of the browser, which goes first
	ctx, shut, err := browse(context.Background(), 1280, 900)
	if err != nil {
		t.Fatal(err)
	}
	defer shut()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.Navigate(server.URL+"/"),
		chromedp.Poll(`document.getElementById("link").textContent === "reconnecting" && document.body.classList.contains("stale")`, nil),
		chromedp.Poll(live, nil),
		chromedp.Poll(`document.getElementById("link").textContent === "live" && !document.body.classList.contains("stale")`, nil)); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times", n)
	}
}
