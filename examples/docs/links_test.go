package docs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// deadLinks are the relative links of p that lead nowhere.
func deadLinks(p page, all []page) []string {
	var dead []string
	for _, l := range p.links() {
		if strings.Contains(l.target, "://") || strings.HasPrefix(l.target, "mailto:") {
			continue
		}
		file, anchor, hasAnchor := strings.Cut(l.target, "#")
		to := p.path
		if file != "" {
			to = path.Join(path.Dir(p.path), file)
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil {
				dead = append(dead, fmt.Sprintf("%s: %s: there is no such file", l.where, l.target))
				continue
			}
		}
		if !hasAnchor {
			continue
		}
		found := false
		for _, other := range append(all, p) {
			found = found || other.path == to && other.anchors()[anchor]
		}
		if !found {
			dead = append(dead, fmt.Sprintf("%s: %s: there is no such headline", l.where, l.target))
		}
	}
	return dead
}

func TestLinksResolve(t *testing.T) {
	all := pages(t)
	n := 0
	for _, p := range all {
		n += len(p.links())
		for _, dead := range deadLinks(p, all) {
			t.Error(dead)
		}
	}
	if n < 6 {
		t.Errorf("only %d links were found", n)
	}
}

func TestDeadLinksAreFound(t *testing.T) {
	p := sample(strings.Join([]string{
		"# The first one",
		"[good](README.md) and [good](#the-first-one), `[code](nowhere.md)`, [web](https://example.com/x)",
		"[bad](docs/nowhere.md)",
		"[bad](#the-second-one)",
		"![bad](README.md#no-such-headline)",
		"[ref]: nowhere.txt",
		"```",
		"# The second one", "[fenced](nowhere.md)",
		"```",
	}, "\n"))
	dead := deadLinks(p, pages(t))
	if len(dead) != 4 {
		t.Errorf("found %q, want the four bad ones", dead)
	}
}
