package middleware

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
)

// originKey is the default key of a budget: scheme://host:port in lower case,
// with the scheme's port where the URL names none, so that HOST:443 and host
// share a budget.
func originKey(scheme, host string) string {
	scheme, host = strings.ToLower(scheme), strings.ToLower(host)
	name, port, err := net.SplitHostPort(host)
	if err != nil || port == "" {
		name, port = strings.TrimSuffix(host, ":"), ""
		name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	}
	if strings.ContainsAny(name, "[]") { // no host at all
		return scheme + "://" + host
	}
	if port == "" {
		switch scheme {
		case "https":
			port = "443"
		case "http":
			port = "80"
		default:
			return scheme + "://" + host
		}
	}
	return scheme + "://" + net.JoinHostPort(name, port)
}

// KeyByOrigin is the default PaceConfig.Key: the lower-case scheme://host:port
// of the request's URL.
func KeyByOrigin(req *http.Request) string {
	return originKey(req.URL.Scheme, req.URL.Host)
}

// KeyByCredential is a PaceConfig.Key for clients that use several accounts at
// one provider: the origin, and a hash of the credential in Authorization,
// x-api-key, api-key or x-goog-api-key. The credential itself is in no key.
func KeyByCredential(req *http.Request) string {
	key := KeyByOrigin(req)
	for _, name := range [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
		if v := req.Header.Get(name); v != "" {
			sum := sha256.Sum256([]byte(name + "\x00" + v))
			return key + "#" + hex.EncodeToString(sum[:8])
		}
	}
	return key
}
