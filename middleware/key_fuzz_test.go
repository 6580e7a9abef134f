package middleware_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/meteredhttp/meteredhttp/middleware"
)

// The key of an origin names one budget: it is the same however case and the
// default port are spelt, and its own key is itself.
func FuzzKeyByOrigin(f *testing.F) {
	for _, s := range []string{"https://API.example.com", "http://a:80/x", "https://[::1]:443", "http://[fe80::1%25en0]/", "ws://a:", "http://a:http", "//", "x://:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme == "" {
			return
		}
		key := func(u *url.URL) string { return middleware.KeyByOrigin(&http.Request{URL: u}) }
		k := key(u)
		upper := *u
		lower := strings.ToLower(u.Host)
		if upper.Host = strings.ToUpper(u.Host); strings.ToLower(upper.Host) == lower && key(&upper) != k {
			t.Errorf("%q has the key %q, in capitals %q", text, k, key(&upper))
		}
		scheme, host, ok := strings.Cut(k, "://")
		if !ok || key(&url.URL{Scheme: scheme, Host: host}) != k {
			t.Errorf("%q has the key %q, and that %q", text, k, key(&url.URL{Scheme: scheme, Host: host}))
		}
	})
}
