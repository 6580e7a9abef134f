package dashboard

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever a key is: what is shown of it is text, not long, the same each time,
// and of a URL neither the user nor the parameters.
//
// Proved able to fail: on a name cut in bytes, on a user cut at the first at sign,
// and on a query that stays before a fragment.
func FuzzName(f *testing.F) {
	for _, s := range []string{
		"", "plain", "https://api.test:443#9f8e7d6c5b4a3f2e", "https://user:hunter2@api.test/v1?token=x#part", "https://a@b@c/", "https://api.test/?a#b=c",
		"user:hunter2@api.test", "Bearer hunter2", "sk-proj-T3BlbkFJc2VjcmV0MTIzNDU2", strings.Repeat("ä", 500), "bad\xffbytes", "x://", "://@", "a://?@b", "//@://", "//user:hunter2@api.test/", "x" + strings.Repeat("ä", 500),
	} {
		f.Add(s)
	}
	n := newNames()
	f.Fuzz(func(t *testing.T, key string) {
		shown := n.of(key)
		if again := n.of(key); again != shown || !utf8.ValidString(shown) {
			t.Fatalf("%q is shown as %q, and as %q", key, shown, again)
		}
		name := shown
		if shown != key {
			name = shown[:max(strings.LastIndex(shown, " #"), 0)]
			if len(shown) != len(name)+len(" #01234567") {
				t.Fatalf("%q is shown as %q, without a mark", key, shown)
			}
		}
		if utf8.RuneCountInString(name) > longestName {
			t.Errorf("%q is shown as %q, which is long", key, shown)
		}
		if !strings.Contains(key, "://") {
			return
		}
		if u, err := url.Parse(name); err == nil && (u.User != nil || u.RawQuery != "") {
			t.Errorf("of %q is shown %q", key, shown)
		}
	})
}
