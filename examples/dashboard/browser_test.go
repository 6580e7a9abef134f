package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/meteredhttp/meteredhttp/adapters/dashboard"
)

// serve serves the page of a scene at an address, and returns how to stop it.
func serve(t *testing.T, s *scene, addr string) (string, func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.StripPrefix("/debug/metered", dashboard.Handler(s.stack))}
	go server.Serve(l)
	return l.Addr().String(), func() { server.Close() }
}

// complaints are what the browser's console says: errors, and what the policy forbids.
type complaints struct {
	mu  sync.Mutex
	all []string
}

func (c *complaints) listen(ctx context.Context) {
	chromedp.ListenTarget(ctx, func(event any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			c.all = append(c.all, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError {
				c.all = append(c.all, "console.error")
			}
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.LevelError {
				c.all = append(c.all, e.Entry.Text)
			}
		}
	})
}

func (c *complaints) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

func TestPageInABrowser(t *testing.T) {
	s, err := newScene()
	if err != nil {
		t.Fatal(err)
	}
	work, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.run(work, 0) })
	defer wg.Wait()
	defer end()
	addr, stop := serve(t, s, "127.0.0.1:0")

	ctx, shut, err := browse(context.Background(), 1280, 900)
	if errors.Is(err, errNoBrowser) {
		stop()
		t.Skip(err)
	}
	defer shut()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	said := new(complaints)
	said.listen(ctx)

	run := func(what string, actions ...chromedp.Action) {
		t.Helper()
		if err := chromedp.Run(ctx, actions...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	run("it renders", chromedp.Navigate("http://"+addr+"/debug/metered/"), chromedp.Poll(live, nil),
		chromedp.Poll(`document.querySelectorAll("article").length === 4`, nil))
	var word string
	run("a health is a word", chromedp.Text("article .health", &word))
	if !strings.Contains(word, "green") && !strings.Contains(word, "red") && !strings.Contains(word, "amber") {
		t.Errorf("health is %q", word)
	}
	run("figures move", chromedp.Poll(`(() => { const now = document.querySelector("article [data-fact=sends]").textContent;
		window.first ??= now; return now !== window.first })()`, nil))
	run("sparklines are drawn", chromedp.Poll(`document.querySelectorAll("article .spark canvas").length === 4`, nil))
	run("a hold counts down", chromedp.Poll(`[...document.querySelectorAll(".hold")].some(e => !e.hidden && e.textContent.startsWith("held for"))`, nil),
		chromedp.Poll(`(() => { const e = [...document.querySelectorAll(".hold")].find(e => !e.hidden); if (!e) return false;
		const s = parseFloat(e.textContent.slice(9)); window.most = Math.max(window.most ?? 0, s); return s < window.most - 0.5 })()`, nil))
	run("the keyboard reaches the keys", chromedp.Focus("#find"), chromedp.KeyEvent("paced"),
		chromedp.Poll(`document.querySelectorAll("article").length === 1`, nil),
		chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.Poll(`document.activeElement.tagName === "ARTICLE"`, nil),
		chromedp.Evaluate(`document.getElementById("find").value = ""; document.getElementById("find").dispatchEvent(new Event("input"))`, nil))
	var wide int
	run("it fits a phone", chromedp.EmulateViewport(360, 740), chromedp.Sleep(200*time.Millisecond),
		chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide))
	if wide > 360 {
		t.Errorf("at 360 pixels the page is %d wide", wide)
	}
	if dir := os.Getenv("DASHBOARD_PICTURES"); dir != "" {
		picture := func(name string) chromedp.Action {
			return chromedp.ActionFunc(func(ctx context.Context) error {
				var b []byte
				if err := chromedp.FullScreenshot(&b, 100).Do(ctx); err != nil {
					return err
				}
				return os.WriteFile(filepath.Join(dir, name), b, 0o644)
			})
		}
		run("pictures", picture("phone.png"), chromedp.EmulateViewport(1280, 800), chromedp.Sleep(time.Second), picture("light.png"),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}),
			chromedp.Sleep(time.Second), picture("dark.png"))
	}
	if all := said.take(); len(all) > 0 {
		t.Errorf("the console says %q", all)
	}

	stop()
	run("it says that the server is gone", chromedp.Poll(`document.getElementById("link").textContent === "reconnecting"`, nil))
	_, stop = serve(t, s, addr)
	defer stop()
	run("it reconnects", chromedp.Evaluate(`window.before = +document.body.dataset.seen`, nil),
		chromedp.Poll(`document.getElementById("link").textContent === "live" && document.body.dataset.seen > window.before`, nil))
	for _, text := range said.take() {
		if !strings.Contains(text, "ERR_") { // of the connection that was refused meanwhile
			t.Errorf("the console says %q", text)
		}
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, args := range [][]string{{"-for", "-1s"}, {"-png", "x.png"}, {"more"}, {"-nonsense"}} {
		if status := command(context.Background(), args, t.Output(), t.Output()); status != 2 {
			t.Errorf("%v: status %d", args, status)
		}
	}
}
