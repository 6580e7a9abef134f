package retryafter

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Reader reads what servers say about waiting. The zero Reader knows the
// providers of the package's table; every other host is read by its statuses and
// by the shapes of its headers alone. A Reader may be used concurrently while
// nobody changes its fields.
type Reader struct {
	// Providers come before the table. One with the name of a provider in the
	// table stands in for it, on that provider's hosts too.
	Providers []Provider
	// Hosts says which provider a host speaks, by its name: a proxy's for
	// instance. It comes before everything else. Keys are as in Provider.Hosts;
	// one with a port ("localhost:8080") means that port only.
	Hosts map[string]string
}

// Validate reports the first thing in r that cannot be used: a provider without
// a name or with a name twice, a host that is no host, a host that speaks a
// provider that is not known, or what would be ignored in silence: a meter that
// can never state anything or a field of it that is never read, a hint that is
// never reached, a rule that can never hold.
func (r Reader) Validate() error {
	names := map[string]bool{}
	for i := range r.Providers {
		p := &r.Providers[i]
		if err := p.validate(); err != nil {
			return err
		}
		if names[p.Name] {
			return fmt.Errorf("retryafter: two providers are named %q", p.Name)
		}
		names[p.Name] = true
	}
	for host, name := range r.Hosts {
		if !validHost(host) {
			return fmt.Errorf("retryafter: Reader.Hosts: %q is not a host", host)
		}
		if !names[name] && table().names[name] == nil {
			return fmt.Errorf("retryafter: Reader.Hosts: %q speaks %q, which is not a known provider", host, name)
		}
	}
	return nil
}

// For returns the reading of one host, which may carry a port. It does not
// allocate where r declares nothing for the host; otherwise it makes the
// provider ready anew, so callers that see a host often keep the Source.
func (r Reader) For(host string) *Source {
	t := table()
	if len(r.Providers) == 0 && len(r.Hosts) == 0 {
		return t.find(host)
	}
	host = strings.ToLower(host)
	bare := hostname(host)
	if name, ok := r.speaks(host, bare); ok {
		return r.named(name, t)
	}
	best := -1
	var p *Provider
	for i := range r.Providers {
		for _, pattern := range r.Providers[i].Hosts {
			if n := match(strings.ToLower(pattern), bare); n > best {
				best, p = n, &r.Providers[i]
			}
		}
	}
	if p != nil {
		return newSource(p, t.generic)
	}
	s := t.find(bare)
	for i := range r.Providers {
		if r.Providers[i].Name == s.name {
			return newSource(&r.Providers[i], t.generic)
		}
	}
	return s
}

// speaks looks a host up in r.Hosts: as it is, without its port, then by the
// longest pattern.
func (r Reader) speaks(host, bare string) (name string, ok bool) {
	best := -1
	for pattern, speaks := range r.Hosts {
		pattern = strings.ToLower(pattern)
		n := match(pattern, bare)
		if pattern == host {
			n = exact + 1
		}
		if n > best || n == best && n >= 0 && speaks < name {
			best, name = n, speaks
		}
	}
	return name, best >= 0
}

func (r Reader) named(name string, t *index) *Source {
	for i := range r.Providers {
		if r.Providers[i].Name == name {
			return newSource(&r.Providers[i], t.generic)
		}
	}
	if s := t.names[name]; s != nil {
		return s
	}
	return t.generic
}

// Windows is For(host).Windows(dst, h, now).
func (r Reader) Windows(dst []Window, host string, h http.Header, now time.Time) []Window {
	return r.For(host).Windows(dst, h, now)
}

// Classify is For(host).Classify(status, h, body, now).
func (r Reader) Classify(host string, status int, h http.Header, body []byte, now time.Time) Signal {
	return r.For(host).Classify(status, h, body, now)
}

// Read is For(host).Read(resp, now), where the host is the one that the request
// was sent to.
func (r Reader) Read(resp *http.Response, now time.Time) Signal {
	host := ""
	if resp.Request != nil && resp.Request.URL != nil {
		host = resp.Request.URL.Host
	}
	return r.For(host).Read(resp, now)
}

// Classify says what an answer means: see [Source.Classify]. It is the zero
// Reader's.
func Classify(host string, status int, h http.Header, body []byte, now time.Time) Signal {
	return Reader{}.Classify(host, status, h, body, now)
}

// Read says what an answer means: see [Source.Read]. It is the zero Reader's.
func Read(resp *http.Response, now time.Time) Signal { return Reader{}.Read(resp, now) }

// index is the table made ready.
type index struct {
	names   map[string]*Source
	domains map[string][]entry // by the last two labels of the host
	generic *Source
}

// entry is one host, or pattern of hosts, of the table. The hosts of a domain
// come before its patterns, longer patterns before shorter ones.
type entry struct {
	start, end string // around the star; a host is all start
	pattern    bool
	source     *Source
}

// table makes the providers of the package ready, once. Nothing changes it later.
var table = sync.OnceValue(func() *index {
	generic := newSource(&shapes, nil)
	t := &index{
		names:   map[string]*Source{generic.name: generic},
		domains: map[string][]entry{},
		generic: generic,
	}
	for _, list := range [][]Provider{modelProviders, cloudProviders, apiProviders} {
		for i := range list {
			s := newSource(&list[i], generic)
			t.names[s.name] = s
			for _, host := range list[i].Hosts {
				domain := host[domainAt(host):]
				start, end, pattern := strings.Cut(host, "*")
				t.domains[domain] = append(t.domains[domain], entry{start, end, pattern, s})
			}
		}
	}
	for _, entries := range t.domains {
		slices.SortStableFunc(entries, func(a, b entry) int {
			switch {
			case a.pattern && !b.pattern:
				return 1
			case b.pattern && !a.pattern:
				return -1
			}
			return len(b.start) + len(b.end) - len(a.start) - len(a.end)
		})
	}
	return t
})

// domainAt returns where the last two labels of a host begin, and -1 for one
// that is not in plain form: with a port, a final dot or a capital in them.
func domainAt(host string) int {
	dots := 0
	for i := len(host) - 1; i >= 0; i-- {
		switch c := host[i]; {
		case c == '.':
			if i == len(host)-1 {
				return -1
			}
			if dots++; dots == 2 {
				return i + 1
			}
		case c == ':' || c-'A' < 26:
			return -1
		}
	}
	return 0
}

// find returns the source of a host.
func (t *index) find(host string) *Source {
	at := domainAt(host)
	if at < 0 {
		host = strings.ToLower(hostname(host))
		at = max(domainAt(host), 0)
	}
	entries := t.domains[host[at:]]
	if len(entries) == 0 {
		return t.generic
	}
	for i := range at {
		if host[i]-'A' < 26 {
			host = strings.ToLower(host)
			break
		}
	}
	for i := range entries {
		e := &entries[i]
		if !e.pattern && e.start == host || e.pattern && len(host) >= len(e.start)+len(e.end) &&
			strings.HasSuffix(host, e.end) && strings.HasPrefix(host, e.start) {
			return e.source
		}
	}
	return t.generic
}

// exact is what match returns for a host itself: more than for any pattern.
const exact = 1 << 16

// match returns how well a pattern fits a host, -1 where it does not.
func match(pattern, host string) int {
	if start, end, ok := strings.Cut(pattern, "*"); ok {
		n := len(start) + len(end)
		if len(host) >= n && strings.HasPrefix(host, start) && strings.HasSuffix(host, end) {
			return n
		}
		return -1
	}
	if pattern == host {
		return exact
	}
	return -1
}

// hostname cuts the port and a final dot off a host.
func hostname(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && (strings.IndexByte(host, ':') == i || host[i-1] == ']') {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}
