package main

import (
	"net/url"
	"testing"
)

// A base that is taken has a host and nothing but a path after it; as it is
// written then it is taken again, and is the same.
//
// Proved able to fail: on a base with credentials, and on one with an empty query.
func FuzzBaseURL(f *testing.F) {
	for _, s := range []string{
		"https://api.openai.com", "http://127.0.0.1:8080/v1/", "HTTPS://A:443/%2F", "http://[fe80::1%25en0]:1/", "http://", "http://:80", "https:a",
		"https://user:p@a", "https://a?x=1", "https://a?", "https://a#", "https://a/#b", "ftp://a", "http://a:", "http://a b/",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := baseURL(s)
		if err != nil {
			return
		}
		again, err := baseURL(u.String())
		if err != nil || !sameBase(u, again) || !sameBase(again, u) {
			t.Fatalf("%q is %q, and then %v, %v", s, u, again, err)
		}
		bare := *u
		bare.Path, bare.RawPath = "", ""
		if bare.String() != (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() || u.Hostname() == "" {
			t.Errorf("%q is of %q, which has more than a host", u, s)
		}
		reaches(u, "127.0.0.1:80")
	})
}
