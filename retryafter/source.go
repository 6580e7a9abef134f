package retryafter

import (
	"cmp"
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// Source is a provider made ready for reading: what [Reader.For] returns for a
// host. It never changes and may be used concurrently; whoever reads many
// answers of one host keeps it.
type Source struct {
	name        string
	meters      []*meter
	drafts      bool
	gates       []gate
	shouldRetry string
	rules       []rule
	headerHints []Hint
	bodyHints   []hint
	embedded    [][]string
	codes       map[string]int
	bodyHeaders []string
	header      func(*Signal, http.Header, time.Time)
	body        func(*Signal, any)
}

// Name is the provider's name, "generic" for a host that nobody declared.
func (s *Source) Name() string { return s.name }

// ReadsBody reports whether the body of an answer with this status can change
// what it means. It is always false below 400: a success body is not touched.
func (s *Source) ReadsBody(status int) bool {
	return status >= 400 && (len(s.rules) > 0 || len(s.bodyHints) > 0 || s.bodyHeaders != nil || s.body != nil)
}

// meter is a Meter with its names in canonical form, and with the Meters that
// fill it in.
type meter struct {
	Meter
	gate       string // "" for one that only fills in
	simple     bool   // it is stated by Remaining, Limit and Reset
	quantities bool   // it declares more than Reset and Present
	shared     bool   // another window has this unit
	fill       *meter // the next of the same window
}

// gate is a header by whose presence windows are known: without it the rest is
// not looked for.
type gate struct {
	header   string
	families Families // bit 0: the drafts, bit n+1: meter n
}

// addGates lists the gates of all meters, and the drafts' own.
func (s *Source) addGates() {
	add := func(header string, family int) {
		for i := range s.gates {
			if s.gates[i].header == header {
				s.gates[i].families |= 1 << family
				return
			}
		}
		s.gates = append(s.gates, gate{header, 1 << family})
	}
	if s.drafts {
		add("Ratelimit", 0)
		add("Ratelimit-Remaining", 0)
	}
	for i, m := range s.meters {
		for f := m; f != nil; f = f.fill {
			if f.gate != "" {
				add(cmp.Or(f.sign, f.gate), i+1)
			}
		}
	}
}

// rule is a Rule made ready: names canonical, paths split, texts lower case.
type rule struct {
	Rule
	paths [][]string
}

// hint is a Hint in a body, made ready.
type hint struct {
	Hint
	path []string
}

// newSource makes p ready. A provider without meters is read by the shapes of
// generic, which may be nil.
func newSource(p *Provider, generic *Source) *Source {
	s := &Source{
		name:        p.Name,
		drafts:      p.Drafts,
		shouldRetry: textproto.CanonicalMIMEHeaderKey(p.ShouldRetry),
		header:      p.Header,
		body:        p.Body,
		codes:       make(map[string]int, len(p.Codes)),
	}
	for word, status := range p.Codes {
		s.codes[strings.ToLower(word)] = status
	}
	for _, path := range p.Embedded {
		s.embedded = append(s.embedded, splitPath(path))
	}
	if p.BodyHeaders != "" {
		s.bodyHeaders = splitPath(p.BodyHeaders)
	}
	for _, r := range p.Rules {
		r.Header = textproto.CanonicalMIMEHeaderKey(r.Header)
		r.Is, r.Contains = lower(r.Is), lower(r.Contains)
		ready := rule{Rule: r}
		for _, path := range r.Paths {
			ready.paths = append(ready.paths, splitPath(path))
		}
		s.rules = append(s.rules, ready)
	}
	for _, h := range p.Hints {
		h.After = lower(h.After)
		if h.Header != "" {
			h.Header = textproto.CanonicalMIMEHeaderKey(h.Header)
			s.headerHints = append(s.headerHints, h)
		} else {
			s.bodyHints = append(s.bodyHints, hint{h, splitPath(h.Path)})
		}
	}
	if len(p.Meters) == 0 && generic != nil {
		s.meters, s.drafts = generic.meters, s.drafts || generic.drafts
		s.gates = generic.gates
		return s
	}
	for _, m := range p.Meters {
		s.addMeter(newMeter(m))
	}
	for _, m := range s.meters {
		m.simple = m.Remaining != "" && m.Limit != "" && m.Reset != "" &&
			m.Used+m.UsedOf+m.Interval == "" && m.fill == nil
	}
	s.addGates()
	return s
}

func newMeter(m Meter) *meter {
	for _, name := range []*string{&m.sign, &m.Limit, &m.Remaining, &m.Used, &m.UsedOf, &m.Reset, &m.Present, &m.Interval, &m.FillRate} {
		*name = textproto.CanonicalMIMEHeaderKey(*name)
	}
	ready := &meter{Meter: m, quantities: m.Limit != "" || m.Remaining != "" || m.Used != "" || m.UsedOf != ""}
	for _, name := range []string{m.Remaining, m.UsedOf, m.Limit, m.Used, m.Present, m.Reset} {
		if name != "" {
			ready.gate = name
			break
		}
	}
	return ready
}

// addMeter appends m, or lets it fill in the earlier one of the same window.
func (s *Source) addMeter(m *meter) {
	for _, have := range s.meters {
		if have.Unit != m.Unit {
			continue
		}
		if have.Name != m.Name {
			have.shared, m.shared = true, true
			continue
		}
		if !m.quantities && have.quantities {
			m.gate = ""
		}
		for have.fill != nil {
			have = have.fill
		}
		have.fill = m
		return
	}
	s.meters = append(s.meters, m)
}

// first returns a header's first line, "" where it is absent.
func first(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func splitPath(path string) []string {
	if path == "" {
		return []string{}
	}
	return strings.Split(path, ".")
}

func lower(words []string) []string {
	var out []string
	for _, w := range words {
		out = append(out, strings.ToLower(w))
	}
	return out
}
