package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/chromedp/chromedp"
)

var errNoBrowser = errors.New("there is no Chromium on this machine")

// browserPath is the Chromium of this machine, or "".
func browserPath() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// browse starts a headless Chromium of a window's size, which ends with the context that it returns.
func browse(ctx context.Context, width, height int, more ...chromedp.ExecAllocatorOption) (context.Context, context.CancelFunc, error) {
	path := browserPath()
	if path == "" {
		return nil, nil, errNoBrowser
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(width, height),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true))
	allocated, stop := chromedp.NewExecAllocator(ctx, append(options, more...)...)
	tab, shut := chromedp.NewContext(allocated, chromedp.WithErrorf(func(string, ...any) {}))
	return tab, func() { shut(); stop() }, nil
}

// live is what the page has when figures have come.
const live = `document.querySelectorAll("article").length > 0 && document.body.dataset.seen > 2`

// screenshot writes a picture of the page.
func screenshot(ctx context.Context, url, file string) error {
	ctx, stop, err := browse(ctx, 1280, 900)
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var picture []byte
	if err := chromedp.Run(ctx, chromedp.Navigate(url), chromedp.Poll(live, nil), chromedp.FullScreenshot(&picture, 100)); err != nil {
		return err
	}
	return os.WriteFile(file, picture, 0o644)
}
