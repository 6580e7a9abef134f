package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Names of keys are no longer than a line, in runes; of longer ones the head is shown.
const (
	longestName = 72
	nameHead    = 56
)

// names turns keys into what may be shown of them. Keys of which something is hidden end in a mark, so that two of
// them never look alike. The marks are salted: nobody can try secrets out on them.
type names struct{ salt [16]byte }

func newNames() *names {
	n := new(names)
	rand.Read(n.salt[:])
	return n
}

// of returns key without credentials and parameters, as far as one can see that they are, and not too long.
func (n *names) of(key string) string {
	name := strings.ToValidUTF8(key, "�")
	name = withoutUserinfo(name)
	name = withoutParameters(name)
	name = withoutTokens(name)
	if runes := []rune(name); len(runes) > longestName {
		name = string(runes[:nameHead]) + "…"
	}
	if name == key {
		return key
	}
	sum := sha256.Sum256(append(n.salt[:len(n.salt):len(n.salt)], key...))
	return name + " #" + hex.EncodeToString(sum[:4])
}

// withoutUserinfo cuts what stands before the host: https://user:password@host, also without https:, and
// user:password@host.
func withoutUserinfo(name string) string {
	scheme, rest, ok := strings.Cut(name, "//")
	if !ok {
		if at := strings.LastIndexByte(name, '@'); at >= 0 && strings.Contains(name[:at], ":") {
			return name[at+1:]
		}
		return name
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	return scheme + "//" + rest[strings.LastIndexByte(rest[:end], '@')+1:]
}

// withoutParameters cuts a URL's query, and a fragment of the query's form.
func withoutParameters(name string) string {
	if !strings.Contains(name, "://") {
		return name
	}
	path, fragment, _ := strings.Cut(name, "#")
	path, _, _ = strings.Cut(path, "?")
	if fragment == "" || strings.Contains(fragment, "=") {
		return path
	}
	return path + "#" + fragment
}

var (
	scheme = regexp.MustCompile(`(?i)\b(bearer|basic)\s+\S.*`)
	run    = regexp.MustCompile(`[A-Za-z0-9]{20,}`)
)

// withoutTokens cuts what follows the scheme of an Authorization, and all but the beginning of what looks like a
// token: twenty letters and digits or more, mixed. The hash of KeyByCredential has sixteen.
func withoutTokens(name string) string {
	name = scheme.ReplaceAllString(name, "$1 …")
	return run.ReplaceAllStringFunc(name, func(r string) string {
		if !strings.ContainsAny(r, "0123456789") || strings.Trim(r, "0123456789") == "" {
			return r
		}
		return r[:4] + "…"
	})
}
