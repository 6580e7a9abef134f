package retryafter

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"
)

// validHost reports whether s can name a host, or be a pattern of hosts.
func validHost(s string) bool {
	s = strings.Replace(s, "*", "", 1)
	return s != "" && !strings.ContainsAny(s, "/* \t@?#")
}

// validate reports the first thing in p that cannot be used.
func (p *Provider) validate() error {
	if p.Name == "" {
		return errors.New("retryafter: Provider.Name must not be empty")
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("retryafter: provider %q: "+format, append([]any{p.Name}, args...)...)
	}
	for _, host := range p.Hosts {
		if !validHost(host) || strings.HasSuffix(hostname(host), ":") || hostname(host) != host {
			return bad("%q is not a host", host)
		}
	}
	if p.ShouldRetry != "" && !validHeader(p.ShouldRetry) {
		return bad("ShouldRetry: %q is not a header's name", p.ShouldRetry)
	}
	if len(p.Meters) > 60 {
		return bad("more than 60 meters")
	}
	for i := range p.Meters {
		if fault := p.faultOfMeter(i); fault != "" {
			return bad("meter %d (%s) %s", i, p.Meters[i].Unit, fault)
		}
	}
	for i := range p.Rules {
		if fault := p.Rules[i].fault(); fault != "" {
			return bad("rule %d %s", i, fault)
		}
	}
	for i := range p.Hints {
		if fault := p.Hints[i].fault(); fault != "" {
			return bad("hint %d %s", i, fault)
		}
	}
	for word, status := range p.Codes {
		if status < 100 || status > 999 {
			return bad("code %q: %d is not a status", word, status)
		}
	}
	if len(p.Codes) > 0 && len(p.Embedded) == 0 {
		return bad("Codes are looked up for Embedded, which is empty")
	}
	return nil
}

// faultOfMeter says why the meter cannot state what it declares, "" if it can.
func (p *Provider) faultOfMeter(i int) string {
	m := &p.Meters[i]
	amounts := m.Limit+m.Remaining+m.Used+m.UsedOf != ""
	for _, name := range []string{m.Limit, m.Remaining, m.Used, m.UsedOf, m.Reset, m.Present, m.Interval, m.FillRate} {
		if name != "" && !validHeader(name) {
			return fmt.Sprintf("reads %q, which is not a header's name", name)
		}
	}
	switch {
	case m.Unit == "":
		return "has no Unit"
	case m.Per < 0 || m.IntervalUnit < 0:
		return "has a negative length"
	case m.Format > Date:
		return "has an unknown Format"
	case !amounts && m.Reset+m.Present == "":
		return "reads no header that states a window: Remaining, Limit, UsedOf, Reset or Present"
	case m.UsedOf != "" && m.Limit+m.Used != "":
		return "has Limit or Used beside UsedOf, which states both"
	case m.UsedOf == "" && m.UsedOfKey != "":
		return "has a UsedOfKey without UsedOf"
	case m.Used != "" && m.Limit+m.Remaining == "":
		return "has Used without Limit or Remaining, which leaves what remains unknown"
	case m.Present != "" && amounts:
		return "has Present beside amounts, which show by themselves that the window is there: write two meters"
	case m.Format != Auto && m.Reset == "":
		return "has a Format without Reset; it is Reset's alone"
	case m.Interval == "" && (m.IntervalUnit != 0 || m.FillRate != ""):
		return "has IntervalUnit or FillRate without Interval"
	}
	limit := false
	for j := range p.Meters[:i+1] {
		e := &p.Meters[j]
		if e.Unit != m.Unit || e.Name != m.Name {
			continue
		}
		limit = limit || e.Limit+e.UsedOf != "" || e.Used != "" && e.Remaining != ""
		if j < i && e.Limit+e.Remaining+e.Used+e.UsedOf != "" && !amounts && m.Reset+m.Interval == "" {
			return fmt.Sprintf("adds nothing to meter %d, which is of the same window: give it a Unit or Name of its own", j)
		}
	}
	if m.FillRate != "" && !limit {
		return "has a FillRate without a limit that it could fill"
	}
	return ""
}

// fault says why the rule can never hold, or cannot be used; "" if it can.
func (r *Rule) fault() string {
	switch {
	case r.Class == OK || r.Class > Other:
		return "must give a class other than OK"
	case r.Retry > Never:
		return "has an unknown Retry"
	case r.HintOver < 0 || r.Floor < 0:
		return "has a negative duration"
	case r.Header != "" && len(r.Paths) > 0:
		return "looks at a header and at the body: write two rules"
	case r.Header == "" && len(r.Paths) == 0 && len(r.Is)+len(r.Contains) > 0:
		return "does not say where to look"
	case r.Header != "" && !validHeader(r.Header):
		return fmt.Sprintf("looks at %q, which is not a header's name", r.Header)
	}
	for _, status := range r.Status {
		switch {
		case status < 100 || status > 999:
			return fmt.Sprintf("has status %d, which is not a status", status)
		case status < 400:
			return fmt.Sprintf("has status %d, which is no error: Embedded finds the errors of such answers", status)
		}
	}
	return ""
}

// fault says why the hint can never be read; "" if it can.
func (h *Hint) fault() string {
	for _, phrase := range h.After {
		if phrase == "" {
			return "has an empty phrase in After"
		}
	}
	switch {
	case h.Format > Date:
		return "has an unknown Format"
	case h.Header == "" && h.Path == "":
		return "does not say where to look: in a Header or at a Path of the body"
	case h.Header != "" && h.Path != "":
		return "looks at a header and at the body: write two hints"
	case len(h.After) > 0 && h.Format != Auto && h.Format != Duration:
		return "has a Format beside After, which finds durations with units only"
	case h.Header == "":
		return ""
	case !validHeader(h.Header):
		return fmt.Sprintf("looks at %q, which is not a header's name", h.Header)
	}
	switch name := textproto.CanonicalMIMEHeaderKey(h.Header); name {
	case "Retry-After", "Retry-After-Ms", "X-Ms-Retry-After-Ms":
		if len(h.After) > 0 {
			break
		}
		switch h.Format {
		case Seconds, Milliseconds, UnixSeconds, UnixMilliseconds:
			return fmt.Sprintf("gives numbers in %s another meaning, but they are read by the standard's first: Provider.Header can overrule it", name)
		}
	}
	return ""
}

// validHeader reports whether s is a token, as a header's name must be (RFC
// 9110, section 5.6.2).
func validHeader(s string) bool {
	for i := range len(s) {
		if c := s[i]; c|0x20-'a' >= 26 && c-'0' > 9 && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
