package main

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// sameBase reports whether requests to a and to b are the same: case, a default
// port and slashes at the end make no difference.
func sameBase(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b) &&
		strings.TrimRight(a.EscapedPath(), "/") == strings.TrimRight(b.EscapedPath(), "/")
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	}
	return "80"
}

// reaches reports whether a request to u comes to who listens on address, as far
// as their names tell.
func reaches(u *url.URL, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != portOf(u) {
		return false
	}
	name := strings.TrimSuffix(u.Hostname(), ".")
	to, toErr := netip.ParseAddr(name)
	on, onErr := netip.ParseAddr(host)
	to, on = to.Unmap(), on.Unmap()
	here := strings.EqualFold(name, "localhost") || toErr == nil && (to.IsLoopback() || to.IsUnspecified())
	switch {
	case host == "" || onErr == nil && on.IsUnspecified(): // all addresses of this host
		return here
	case strings.EqualFold(host, "localhost"):
		return here
	case strings.EqualFold(name, "localhost") || toErr == nil && to.IsUnspecified():
		return onErr == nil && on.IsLoopback()
	case onErr == nil && toErr == nil:
		return on == to
	}
	return strings.EqualFold(host, name)
}

// headerName reports whether s is a token, as RFC 9110, section 5.6.2, has it.
func headerName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func headerValue(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
