package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the repository, seen from here.
const root = "../.."

// page is one Markdown file.
type page struct {
	path  string // from the root
	lines []string
}

// pages are the Markdown files of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		all = append(all, page{filepath.ToSlash(rel), strings.Split(string(text), "\n")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("only %d Markdown files: is %s the repository?", len(all), root)
	}
	return all
}

// block is a fenced block.
type block struct {
	where    string // file and line of the first line within
	language string
	text     string
}

// blocks are the fenced blocks of p; prose are its lines with the blocks blanked out.
func (p page) blocks() (blocks []block, prose []string) {
	var open *block
	var fence string
	for i, line := range p.lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case open == nil && strings.HasPrefix(trimmed, "```"):
			fence = trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
			language, _, _ := strings.Cut(strings.TrimLeft(trimmed, "`"), " ")
			open = &block{where: fmt.Sprintf("%s:%d", p.path, i+2), language: language}
		case open != nil && trimmed == fence:
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.text += line + "\n"
		default:
			prose = append(prose, line)
			continue
		}
		prose = append(prose, "")
	}
	if open != nil {
		blocks = append(blocks, *open) // and its text is the rest of the page
	}
	return blocks, prose
}

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)`)
	refTarget  = regexp.MustCompile(`^\s*\[[^\]]+\]:\s+(\S+)`)
	headline   = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*\s*$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}\p{M}_ -]`)
)

// link is a target and where it stands.
type link struct{ where, target string }

func (p page) links() []link {
	_, prose := p.blocks()
	var all []link
	for i, line := range prose {
		line = inlineCode.ReplaceAllString(line, "``")
		for _, m := range append(linkTarget.FindAllStringSubmatch(line, -1), refTarget.FindAllStringSubmatch(line, -1)...) {
			all = append(all, link{fmt.Sprintf("%s:%d", p.path, i+1), m[1]})
		}
	}
	return all
}

// anchors are the names that GitHub gives the headlines of p.
func (p page) anchors() map[string]bool {
	_, prose := p.blocks()
	names := map[string]bool{}
	for _, line := range prose {
		m := headline.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		text := regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		name := strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		unique := name
		for n := 1; names[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", name, n)
		}
		names[unique] = true
	}
	return names
}

// row is a row of a table, its cells by the heads of their columns, in lower case.
type row struct {
	where string
	cells map[string]string
}

// rows are those of all tables of p.
func (p page) rows() []row {
	_, prose := p.blocks()
	split := func(line string) []string {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			return nil
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		return cells
	}
	var all []row
	var heads []string
	for i, line := range prose {
		cells := split(line)
		switch {
		case cells == nil:
			heads = nil
		case heads == nil:
			heads = cells
		case strings.Trim(line, "|-: ") == "": // the rule under the heads
		default:
			r := row{fmt.Sprintf("%s:%d", p.path, i+1), map[string]string{}}
			for k, cell := range cells {
				if k < len(heads) {
					r.cells[strings.ToLower(heads[k])] = cell
				}
			}
			all = append(all, r)
		}
	}
	return all
}

// sample is a page that is not in the repository.
func sample(text string) page { return page{"sample.md", strings.Split(text, "\n")} }
