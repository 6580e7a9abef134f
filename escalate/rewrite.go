package escalate

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Rewrite makes req, a caller's request, one for route i. req must be a clone
// that nobody else uses, down to its URL and headers, with a body that has not
// been read. In this order:
//
//  1. URL: scheme and host are replaced and Host is set, the prefix goes before
//     the path, the query is kept. On a change of origin (scheme, host or port)
//     the caller's credentials are taken out: Authorization,
//     Proxy-Authorization, Cookie, x-api-key, api-key, x-goog-api-key,
//     OpenAI-Organization, OpenAI-Project and the like, user information, and
//     query parameters such as key, api-key and access_token.
//     anthropic-version, anthropic-beta and Idempotency-Key stay. Then the
//     parameters of the route's own query are set.
//  2. Header is set.
//  3. Model and Body are set in the JSON body, everything else in it kept byte
//     for byte; ContentLength and GetBody are renewed. A request without a body
//     stays without; a body that is no JSON object is ErrNotJSON.
//  4. Rewrite, the hook, runs. If it is the hook that moves the request to
//     another origin, credentials that it left as they were are taken out, but
//     for headers that the route's Header sets.
//  5. With RequireCredential, a request without one is ErrNoCredential.
//
// After an error req is half made and must not be sent. Whatever Rewrite
// returns, req.Body, as it is then, is the caller's to close.
func (r *Router) Rewrite(i int, req *http.Request) error {
	if !r.has(i) {
		return ErrNoRoute
	}
	c := r.routes[i]
	if c.plain {
		return nil
	}
	if err := c.rewrite(req); err != nil {
		return &routeError{c.Name, err}
	}
	return nil
}

// routeError says on which route a rewrite failed.
type routeError struct {
	route string
	err   error
}

func (e *routeError) Error() string {
	return fmt.Sprintf("escalate: route %q: %s", e.route, strings.TrimPrefix(e.err.Error(), "escalate: "))
}

func (e *routeError) Unwrap() error { return e.err }

func (c *route) rewrite(req *http.Request) error {
	if req == nil || req.URL == nil {
		return errors.New("the request has no URL")
	}
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	if c.base != nil {
		if err := c.rebase(req); err != nil {
			return err
		}
	}
	for name := range req.Header { // names written past Header.Set
		if canonical := http.CanonicalHeaderKey(name); canonical != name {
			if _, set := c.header[canonical]; set {
				delete(req.Header, name)
			}
		}
	}
	for name, values := range c.header {
		if len(values) == 0 {
			delete(req.Header, name)
			continue
		}
		req.Header[name] = slices.Clone(values)
	}
	if c.setHost {
		req.Host = c.host
	}
	if len(c.fields) > 0 {
		if err := setBody(req, c.fields); err != nil {
			return err
		}
	}
	if c.Route.Rewrite != nil {
		if err := c.hook(req); err != nil {
			return err
		}
	}
	if c.RequireCredential && !hasCredential(req) {
		return ErrNoCredential
	}
	return nil
}

// rebase moves req to the route's base.
func (c *route) rebase(req *http.Request) error {
	u := req.URL
	if u.Opaque != "" {
		return errors.New("a request with an opaque URL cannot be moved to another base")
	}
	if originOf(u) != c.origin {
		strip(req)
	}
	u.Scheme, u.Host, req.Host = c.base.Scheme, c.base.Host, c.base.Host
	u.Path, u.RawPath = joinPath(c.base, u)
	if c.base.RawQuery != "" {
		u.RawQuery = filterQuery(u.RawQuery, func(pair string) bool { return c.query[parameter(pair)] })
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += c.base.RawQuery
	}
	return nil
}

// joinPath puts base's path before u's, with one slash between, and keeps what
// is escaped in either.
func joinPath(base, u *url.URL) (path, raw string) {
	join := func(a, b string) string {
		switch {
		case b == "":
			return a
		case a == "":
			if !strings.HasPrefix(b, "/") {
				return "/" + b
			}
			return b
		}
		return strings.TrimSuffix(a, "/") + "/" + strings.TrimPrefix(b, "/")
	}
	path = join(base.Path, u.Path)
	if base.RawPath != "" || u.RawPath != "" {
		raw = join(base.EscapedPath(), u.EscapedPath())
	}
	return path, raw
}

// hook runs the user's Rewrite.
func (c *route) hook(req *http.Request) error {
	before, had := originOf(req.URL), secretsOf(req)
	var failed error
	if err := guard("Rewrite", func() { failed = c.Route.Rewrite(req) }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if req.URL == nil {
		return errors.New("the Rewrite hook left no URL")
	}
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	if originOf(req.URL) != before {
		had.stripKept(req, c.header)
	}
	return nil
}
