package dashboard

import (
	"embed"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/meteredhttp/meteredhttp/middleware"
)

//go:embed page
var files embed.FS

// policy lets the page use its own files and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// types are the files of the page, by the last part of their path; the page itself has none.
var types = map[string]string{
	"":                  "text/html; charset=utf-8",
	"app.js":            "text/javascript; charset=utf-8",
	"app.css":           "text/css; charset=utf-8",
	"icon.svg":          "image/svg+xml",
	"uPlot.iife.min.js": "text/javascript; charset=utf-8",
	"uPlot.min.css":     "text/css; charset=utf-8",
	"uPlot-LICENSE.txt": "text/plain; charset=utf-8",
}

// Handler returns the page of a Stack. Under whatever prefix it is mounted, its files and its events are beside
// it. At most 64 may watch at a time; one more is told so by a 503. It is safe for concurrent use and holds no
// goroutine while nobody watches.
func Handler(stack *middleware.Stack) http.Handler {
	names := newNames()
	feed := newFeed(func() view { return look(stack, names) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "the dashboard is read only", http.StatusMethodNotAllowed)
			return
		}
		_, name := path.Split(r.URL.Path)
		if name == "events" {
			feed.serve(w, r)
			return
		}
		if r.URL.Path == "" { // mounted without the slash at its end: the files would not be beside it
			http.Redirect(w, r, folder(r), http.StatusMovedPermanently)
			return
		}
		kind, ok := types[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if name == "" {
			name = "index.html"
		}
		text, err := files.ReadFile("page/" + name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		h.Set("Content-Type", kind)
		if r.Method == http.MethodGet {
			w.Write(text)
		}
	})
}

// folder is where the request went, with a slash at its end.
func folder(r *http.Request) string {
	at := "/"
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		at = u.EscapedPath()
	}
	return "/" + strings.Trim(at, "/") + "/"
}
