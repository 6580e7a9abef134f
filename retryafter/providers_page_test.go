package retryafter

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var providersWrite = flag.Bool("providers.write", false, "TestProvidersPage writes docs/PROVIDERS.md")

const providersPage = "../docs/PROVIDERS.md"

// TestProvidersPage holds docs/PROVIDERS.md to the table: what is read is generated from it, and every
// provider has its notes.
//
//	go test ./retryafter -run ProvidersPage -providers.write
func TestProvidersPage(t *testing.T) {
	known := map[string]bool{}
	for _, p := range pageOrder() {
		known[p.Name] = true
		if n := providerNotes[p.Name]; n.meters == "" || n.configure == "" {
			t.Errorf("%s has no notes", p.Name)
		}
	}
	for name := range providerNotes {
		if !known[name] {
			t.Errorf("there are notes on %s, which is no provider", name)
		}
	}
	want := providersText()
	if *providersWrite {
		if err := os.WriteFile(providersPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(providersPage)
	if err != nil {
		t.Fatal(err)
	}
	if problem := compareProviders(string(got), want); problem != "" {
		t.Errorf("%s\nRun go test ./retryafter -run ProvidersPage -providers.write", problem)
	}
}

func TestProvidersPageIsHeldToTheTable(t *testing.T) {
	want := providersText()
	for name, page := range map[string]string{
		"a provider is missing": strings.Replace(want, "\n## groq\n", "\n", 1),
		"one is invented":       want + "\n## nobody\n",
		"another header":        strings.Replace(want, "X-RateLimit-Remaining-tokens", "X-RateLimit-Left-tokens", 1),
	} {
		if page == want || compareProviders(page, want) == "" {
			t.Errorf("%s: it is not noticed", name)
		}
	}
	if problem := compareProviders(want, want); problem != "" {
		t.Error(problem)
	}
}

// compareProviders says what is wrong with a page.
func compareProviders(got, want string) string {
	named := func(page string) (names []string) {
		for line := range strings.Lines(page) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
				names = append(names, name)
			}
		}
		return names
	}
	here, there := named(got), named(want)
	for _, name := range there {
		if !slices.Contains(here, name) {
			return name + " is not in docs/PROVIDERS.md"
		}
	}
	for _, name := range here {
		if !slices.Contains(there, name) {
			return name + " is in docs/PROVIDERS.md and is no provider"
		}
	}
	is, should := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range should {
		if i >= len(is) || is[i] != should[i] {
			return fmt.Sprintf("docs/PROVIDERS.md, line %d: should be %q", i+1, should[i])
		}
	}
	if len(is) != len(should) {
		return "docs/PROVIDERS.md is too long"
	}
	return ""
}

// pageOrder are all providers: models, clouds, others, and last how unknown hosts are read.
func pageOrder() []Provider {
	return slices.Concat(modelProviders, cloudProviders, apiProviders, []Provider{shapes})
}

func providersText() string {
	var b strings.Builder
	b.WriteString(providersHead)
	for _, p := range pageOrder() {
		writeProvider(&b, p)
	}
	return b.String()
}

const providersHead = `# Providers

What each known provider meters, what of its answers is read, and how to configure for it. What is read is
generated from the table in ` + "`retryafter`" + `, by

    go test ./retryafter -run ProvidersPage -providers.write

Published limits change, and differ by account: take yours from the provider's own page. Every host may be read
as another provider's by ` + "`retryafter.Reader.Hosts`" + `; a provider that is not here is one exported value,
` + "`retryafter.Provider`" + `.

For all of them:

- A wait is read from retry-after-ms, x-ms-retry-after-ms and Retry-After, in this order, before the hints below.
- 429 is rate_limited, 503 and 529 are overloaded, other 5xx are server_error, unless a rule below says otherwise.
  The first rule that holds decides.
- quota_exhausted is not waited out: the backup at once, or the answer.
- "Refills" means a bucket that comes back continuously, where the reset is when it is full again. A window
  comes back at once, at the reset.
- No limits need be configured where limit headers are listed: they are learned from the first answers. Configure
  them all the same where you know them: a crowd that starts at once has no answer yet.

The classes are those of ` + "`retryafter.Class`" + `.
`

func writeProvider(b *strings.Builder, p Provider) {
	n := providerNotes[p.Name]
	fmt.Fprintf(b, "\n## %s\n\n", p.Name)
	hosts := "none of its own: name yours in `Reader.Hosts`"
	if p.Name == shapes.Name {
		hosts = "every host that is none of the above"
	} else if len(p.Hosts) > 0 {
		hosts = codes(p.Hosts)
	}
	fmt.Fprintf(b, "Hosts: %s.\n\n", hosts)
	fmt.Fprintf(b, "It meters %s\n\n", n.meters)
	if len(p.Meters) > 0 {
		b.WriteString("| limit headers | unit | length | comes back |\n|---|---|---|---|\n")
		for _, m := range p.Meters {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", meterHeaders(m), meterUnit(m), meterLength(m), map[bool]string{true: "refills", false: "at the reset"}[m.Refills])
		}
		b.WriteByte('\n')
	}
	var other []string
	if p.Drafts {
		other = append(other, "the RateLimit fields of the IETF drafts")
	}
	if p.ShouldRetry != "" {
		other = append(other, "`"+p.ShouldRetry+"`, which outranks the status")
	}
	if p.BodyHeaders != "" {
		other = append(other, "limit headers in the body's `"+p.BodyHeaders+"`")
	}
	if p.Body != nil {
		other = append(other, "what its body says of costs")
	}
	for i := 0; i < len(p.Hints); {
		h, paths := p.Hints[i], []string{}
		for ; i < len(p.Hints) && h.Path != "" && p.Hints[i].Path != "" && slices.Equal(p.Hints[i].After, h.After); i++ {
			paths = append(paths, p.Hints[i].Path)
		}
		if len(paths) == 0 {
			i++
		}
		other = append(other, hintText(h, paths))
	}
	if len(p.Embedded) > 0 {
		s := "errors in a 200, by " + codes(p.Embedded)
		if len(p.Codes) > 0 {
			var as []string
			for code, status := range p.Codes {
				as = append(as, fmt.Sprintf("`%s` as %d", code, status))
			}
			slices.Sort(as)
			s += " (" + strings.Join(as, ", ") + ")"
		}
		other = append(other, s)
	}
	if len(p.Meters) == 0 {
		other = append(other, "limit headers of the shapes under [generic](#generic)")
	}
	if len(other) > 0 {
		b.WriteString("Also read:\n\n")
		for _, o := range other {
			fmt.Fprintf(b, "- %s\n", o)
		}
		b.WriteByte('\n')
	}
	if len(p.Rules) > 0 {
		b.WriteString("| an answer | is |\n|---|---|\n")
		for _, r := range p.Rules {
			fmt.Fprintf(b, "| %s | %s |\n", ruleText(r), ruleMeaning(r))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "Configuration: %s\n", n.configure)
}

func codes(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }

func meterHeaders(m Meter) string {
	var headers []string
	for _, h := range []string{m.Limit, m.Remaining, m.Used, m.UsedOf, m.Reset, m.Present, m.Interval, m.FillRate} {
		if h != "" {
			headers = append(headers, h)
		}
	}
	s := codes(headers)
	if m.UsedOfKey != "" {
		s += " (`" + m.UsedOfKey + "=`)"
	}
	return s
}

func meterUnit(m Meter) string {
	if m.Name != "" && m.Name != m.Unit {
		return m.Unit + " (" + m.Name + ")"
	}
	return m.Unit
}

func meterLength(m Meter) string {
	switch {
	case m.Per > 0:
		return span(m.Per)
	case m.Interval != "":
		return "as stated"
	}
	return "not stated"
}

func span(d time.Duration) string {
	switch {
	case d%day == 0:
		return fmt.Sprintf("%d d", d/day)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// hintText is of hints that differ in their paths alone.
func hintText(h Hint, paths []string) string {
	if h.Header != "" {
		return "a wait in `" + h.Header + "`"
	}
	s := "a wait in `" + strings.Join(paths, "` or `") + "`"
	if len(h.After) > 0 {
		s += fmt.Sprintf(", after %q", h.After[0])
		for _, phrase := range h.After[1:] {
			s += fmt.Sprintf(" or %q", phrase)
		}
	}
	return s
}

func ruleText(r Rule) string {
	var parts []string
	if len(r.Status) > 0 {
		parts = append(parts, strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Status), " ", " or "), "[]"))
	} else {
		parts = append(parts, "any from 400 on")
	}
	where := r.Paths
	if r.Header != "" {
		where = []string{r.Header}
	}
	if len(where) > 0 {
		of := "`" + strings.Join(where, "` or `") + "`"
		switch {
		case len(r.Is) > 0:
			of += " is `" + strings.Join(r.Is, "` or `") + "`"
		case len(r.Contains) > 0:
			quoted := make([]string, len(r.Contains))
			for i, c := range r.Contains {
				quoted[i] = fmt.Sprintf("%q", c)
			}
			of += " contains " + strings.Join(quoted, " or ")
		default:
			of += " is there"
		}
		parts = append(parts, of)
	}
	if r.HintOver > 0 {
		parts = append(parts, "a hint above "+span(r.HintOver))
	}
	return strings.Join(parts, ", ")
}

func ruleMeaning(r Rule) string {
	s := r.Class.String()
	switch r.Retry {
	case Again:
		s += ", retryable"
	case Never:
		s += ", never retried"
	}
	if r.Floor > 0 {
		s += ", at least " + span(r.Floor)
	}
	return s
}
