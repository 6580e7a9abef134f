package escalate

import (
	"net/http"
	"net/url"
	"strings"
)

// A header's part in a credential, by its canonical name.
type secrecy uint8

const (
	public     secrecy = iota
	private            // tells the origin who the caller is; not for another one
	credential         // and is enough to be let in
)

// secrecyOf knows the headers in which clients send keys: those of HTTP itself
// (RFC 9110, RFC 6265), of the model providers, and of the gateways in front of
// them, some by the end of their name. anthropic-version and anthropic-beta are
// public: they say how to read the request, and a backup that speaks Anthropic
// needs them.
func secrecyOf(name string) secrecy {
	switch name {
	case "Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Private-Token",
		"X-Auth-Token", "X-Access-Token", "Ocp-Apim-Subscription-Key":
		return credential
	case "Proxy-Authorization", "Cookie", "Openai-Organization", "Openai-Project",
		"X-Goog-User-Project", "X-Amz-Security-Token", "X-Auth-Key", "X-Auth-Email":
		return private
	}
	for _, end := range []string{"-Api-Key", "-Apikey", "-Auth-Token", "-Access-Token", "-Subscription-Key"} {
		if strings.HasSuffix(name, end) {
			return credential
		}
	}
	for _, end := range []string{"-Authorization", "-Auth", "-Secret", "-Client-Secret"} {
		if strings.HasSuffix(name, end) {
			return private
		}
	}
	return public
}

// secretParameter reports whether a query parameter carries a credential: Google
// and Azure keys, OAuth tokens, the signatures of presigned URLs. Names are in
// lower case.
func secretParameter(name string) bool {
	switch name {
	case "key", "api-key", "api_key", "apikey", "token", "access_token", "access-token", "auth_token",
		"subscription-key", "client_secret", "sig", "signature", "auth":
		return true
	}
	return strings.HasPrefix(name, "x-amz-") || strings.HasPrefix(name, "x-goog-")
}

// parameter returns the name in "name=value" of a raw query.
func parameter(pair string) string {
	name, _, _ := strings.Cut(pair, "=")
	if plain, err := url.QueryUnescape(name); err == nil {
		return plain
	}
	return name
}

// filterQuery returns the raw query without the parameters that drop names,
// all others as they were.
func filterQuery(raw string, drop func(pair string) bool) string {
	if raw == "" {
		return ""
	}
	var kept []string
	for _, pair := range strings.Split(raw, "&") {
		if !drop(pair) {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}

// strip takes the caller's credentials out of a request that leaves its origin.
func strip(req *http.Request) {
	for name := range req.Header {
		if secrecyOf(http.CanonicalHeaderKey(name)) != public {
			delete(req.Header, name)
		}
	}
	for name := range req.Trailer {
		if secrecyOf(http.CanonicalHeaderKey(name)) != public {
			delete(req.Trailer, name)
		}
	}
	req.URL.User = nil
	req.URL.RawQuery = filterQuery(req.URL.RawQuery, func(pair string) bool {
		return secretParameter(strings.ToLower(parameter(pair)))
	})
}

// secrets is what a request carried before the Rewrite hook of its route.
type secrets struct {
	header map[string]string
	user   *url.Userinfo
	query  map[string]bool // raw pairs
}

func secretsOf(req *http.Request) secrets {
	s := secrets{user: req.URL.User, header: make(map[string]string), query: make(map[string]bool)}
	for name, values := range req.Header {
		if secrecyOf(http.CanonicalHeaderKey(name)) != public {
			s.header[name] = strings.Join(values, "\n")
		}
	}
	filterQuery(req.URL.RawQuery, func(pair string) bool {
		if secretParameter(strings.ToLower(parameter(pair))) {
			s.query[pair] = true
		}
		return false
	})
	return s
}

// stripKept takes out of req those of s that the hook left as they were.
func (s secrets) stripKept(req *http.Request, set http.Header) {
	for name, values := range s.header {
		if _, routes := set[name]; !routes && strings.Join(req.Header[name], "\n") == values {
			delete(req.Header, name)
		}
	}
	if s.user != nil && req.URL.User != nil && *s.user == *req.URL.User {
		req.URL.User = nil
	}
	req.URL.RawQuery = filterQuery(req.URL.RawQuery, func(pair string) bool { return s.query[pair] })
}

// hasCredential reports whether req carries something to be let in with.
func hasCredential(req *http.Request) bool {
	for name, values := range req.Header {
		if secrecyOf(http.CanonicalHeaderKey(name)) != credential {
			continue
		}
		for _, v := range values {
			switch strings.ToLower(strings.TrimSpace(v)) {
			case "", "bearer", "basic", "token": // an environment variable that is not set
			default:
				return true
			}
		}
	}
	if req.URL.User != nil {
		return true
	}
	found := false
	filterQuery(req.URL.RawQuery, func(pair string) bool {
		_, value, _ := strings.Cut(pair, "=")
		found = found || value != "" && secretParameter(strings.ToLower(parameter(pair)))
		return false
	})
	return found
}
