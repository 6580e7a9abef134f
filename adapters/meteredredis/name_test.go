package meteredredis

import (
	"math"
	"strings"
	"testing"
)

func TestNamesHaveOneTagAndAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{"a", "b", "a{b}c", "}{", "", "{", "}", "#", "a b", "ab", "A", "ä", "a\x00", strings.Repeat("x", 64),
		strings.Repeat("x", 65), strings.Repeat("x", 10<<10), strings.Repeat("x", 10<<10) + "y", "https://api.openai.com:443", "_", "__"} {
		name := nameOf("metered", key)
		if strings.Count(name, "{") != 1 || strings.Count(name, "}") != 1 || !strings.HasSuffix(name, "}") {
			t.Errorf("%q is named %q", key, name)
		}
		if strings.HasSuffix(name, "{}") {
			t.Errorf("%q has an empty tag, which is none: %q", key, name)
		}
		if len(name) > 128 {
			t.Errorf("a key of %d bytes has a name of %d", len(key), len(name))
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q are both named %q", key, other, name)
		}
		seen[name] = key
	}
}

func FuzzName(f *testing.F) {
	for _, key := range []string{"", "{", "}{", "a{b}c", "#", "x#y"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		name := nameOf("p", key)
		tag := name[strings.IndexByte(name, '{')+1 : len(name)-1]
		if tag == "" || strings.ContainsAny(tag, "{}") || len(name) > 128 {
			t.Errorf("%q is named %q", key, name)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add([]byte{1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 1)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, raw []byte, k int) {
		words := make([]int64, len(raw))
		for i, b := range raw {
			words[i] = int64(int8(b)) * math.MaxInt64 / 127
		}
		r, err := parseReply(words, k&3)
		if err == nil && (r.granted < 0 || r.wait < 0 || r.hold < 0) {
			t.Errorf("%v: %+v", words, r)
		}
	})
}
