package escalate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Route is one model at one provider: how a request is rewritten for it, with
// which credentials, and which quota it draws on. Every field may be left out;
// a Route that only has a Name or a Quota sends requests as they are.
//
// See [Router.Rewrite] for the order in which the fields act and for what is
// taken out of a request that leaves its origin.
type Route struct {
	// Name is for people: errors, statistics, OnStateChange. Empty means Quota.
	Name string

	// Quota is the key of what this route draws on, the bucket's and the
	// breaker's. No two routes of a Router may share one: that would be the same
	// model tried again in disguise. Empty means the origin of URL, a slash and
	// Name, or whichever of the two there is. Name two credentials of one
	// provider apart, and two models with limits of their own.
	Quota string

	// URL is the new base of requests, "https://host[:port][/prefix][?query]".
	// Scheme and host replace the request's, the prefix goes before its path, and
	// the query's parameters replace its parameters of the same name and are
	// added to the others. Empty keeps the request's own URL.
	URL string

	// Header is set on the request: each name replaces all values that were
	// there, and a name without values is removed. Host sets Request.Host.
	Header http.Header

	// Model, if not empty, is the value for the field "model" of a JSON body.
	Model string

	// Body has top-level fields to set in a JSON body; a nil value sets null.
	// Values are marshalled once, by New.
	Body map[string]any

	// Rewrite, if not nil, runs after all the above on a request that is its own
	// to change: a clone with its own header map. It may replace the body, and
	// must then set Body, GetBody and ContentLength together. Its error, or its
	// panic as a *PanicError, is Rewrite's. It is called from many goroutines.
	Rewrite func(*http.Request) error

	// RequireCredential refuses a request that carries no credential once it has
	// been rewritten: no Authorization, x-api-key, api-key or other key header,
	// and no key in the query. An empty value is none, nor is "Bearer " followed
	// by nothing.
	RequireCredential bool
}

// route is a Route made ready.
type route struct {
	Route
	base    *url.URL        // nil: keep the request's
	origin  string          // of base
	query   map[string]bool // parameter names in base's query
	host    string          // Header's Host
	setHost bool
	header  http.Header // Header with canonical names
	fields  []field     // Model and Body
	plain   bool
}

// compile checks r and makes it ready.
func compile(r Route) (*route, error) {
	c := &route{Route: r, header: make(http.Header, len(r.Header))}
	if r.URL != "" {
		if err := c.parseURL(); err != nil {
			return nil, fmt.Errorf("escalate: route %q: bad URL: %w", r.label(), err)
		}
	}
	for name, values := range r.Header {
		if err := checkHeader(name, values); err != nil {
			return nil, fmt.Errorf("escalate: route %q: %w", r.label(), err)
		}
		canonical := http.CanonicalHeaderKey(name)
		if canonical == "Host" {
			c.setHost = true
			if len(values) > 0 {
				c.host = values[0]
			}
			continue
		}
		if _, twice := c.header[canonical]; twice {
			return nil, fmt.Errorf("escalate: route %q: header %s is set twice", r.label(), canonical)
		}
		c.header[canonical] = slices.Clone(values)
	}
	if err := c.compileFields(); err != nil {
		return nil, fmt.Errorf("escalate: route %q: %w", r.label(), err)
	}
	if c.Quota == "" {
		switch {
		case c.base == nil:
			c.Quota = c.Name
		case c.Name == "":
			c.Quota = c.origin
		default:
			c.Quota = c.origin + "/" + c.Name
		}
	}
	if c.Quota == "" {
		return nil, errors.New("escalate: a route needs a Name, a Quota or a URL")
	}
	if c.Name == "" {
		c.Name = c.Quota
	}
	c.plain = c.base == nil && len(r.Header) == 0 && len(c.fields) == 0 &&
		r.Rewrite == nil && !r.RequireCredential
	// The user's maps are not kept: he may go on using them.
	c.Header, c.Body = r.Header.Clone(), nil
	if len(r.Body) > 0 {
		c.Body = make(map[string]any, len(r.Body))
		for k, v := range r.Body {
			c.Body[k] = v
		}
	}
	return c, nil
}

// label names r in an error, before its quota is known. Not by its URL, which
// may hold a key.
func (r Route) label() string {
	if r.Name != "" {
		return r.Name
	}
	return r.Quota
}

func (c *route) parseURL() error {
	u, err := url.Parse(c.URL)
	if err != nil {
		// Without url.Error's copy of the URL: it may hold a key.
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}
		return err
	}
	u.Scheme = strings.ToLower(u.Scheme)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("scheme is neither http nor https")
	case u.Opaque != "" || u.Hostname() == "":
		return errors.New("no host")
	case u.User != nil:
		return errors.New("user information belongs in Header")
	case u.Fragment != "":
		return errors.New("it has a fragment")
	}
	c.base, c.origin = u, originOf(u)
	if u.RawQuery != "" {
		c.query = make(map[string]bool)
		for _, pair := range strings.Split(u.RawQuery, "&") {
			c.query[parameter(pair)] = true
		}
	}
	return nil
}

func (c *route) compileFields() error {
	body := c.Body
	if c.Model != "" {
		if _, twice := body["model"]; twice {
			return errors.New(`both Model and Body["model"] are set`)
		}
		body = map[string]any{"model": c.Model}
		for k, v := range c.Body {
			body[k] = v
		}
	}
	for name, value := range body {
		raw, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("body field %q: %w", name, err)
		}
		key, err := json.Marshal(name)
		if err != nil {
			return fmt.Errorf("body field %q: %w", name, err)
		}
		c.fields = append(c.fields, field{name: name, key: key, value: raw})
	}
	slices.SortFunc(c.fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return nil
}

// checkHeader refuses what net/http would refuse at each send (RFC 9110,
// sections 5.1 and 5.5).
func checkHeader(name string, values []string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	}) {
		return fmt.Errorf("%q is not a header name", name)
	}
	for _, v := range values {
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return fmt.Errorf("header %s has a control character in its value", name)
		}
	}
	return nil
}

// originOf returns scheme://host:port in lower case, the port always there.
func originOf(u *url.URL) string {
	scheme, host, port := strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		switch scheme {
		case "http":
			port = "80"
		case "https":
			port = "443"
		}
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
