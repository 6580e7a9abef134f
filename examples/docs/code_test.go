package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// importable are the packages that a fragment may use, by name. A program states its own imports; they
// must be among these or in the standard library packages that these import.
var importable = map[string]string{
	"bytes": "bytes", "context": "context", "errors": "errors", "fmt": "fmt", "io": "io", "json": "encoding/json",
	"log": "log", "math": "math", "os": "os", "http": "net/http", "slices": "slices", "slog": "log/slog",
	"strconv": "strconv", "strings": "strings", "sync": "sync", "synctest": "testing/synctest", "testing": "testing",
	"time": "time", "url": "net/url",

	"bucket":           "github.com/meteredhttp/meteredhttp/bucket",
	"escalate":         "github.com/meteredhttp/meteredhttp/escalate",
	"middleware":       "github.com/meteredhttp/meteredhttp/middleware",
	"metertest":        "github.com/meteredhttp/meteredhttp/middleware/metertest",
	"retryafter":       "github.com/meteredhttp/meteredhttp/retryafter",
	"dashboard":        "github.com/meteredhttp/meteredhttp/adapters/dashboard",
	"llm":              "github.com/meteredhttp/meteredhttp/adapters/llm",
	"meteredotel":      "github.com/meteredhttp/meteredhttp/adapters/meteredotel",
	"meteredredis":     "github.com/meteredhttp/meteredhttp/adapters/meteredredis",
	"meteredresty":     "github.com/meteredhttp/meteredhttp/adapters/meteredresty",
	"meteredretryable": "github.com/meteredhttp/meteredhttp/adapters/meteredretryable",

	"circuitbreaker": "github.com/failsafe-go/failsafe-go/circuitbreaker",
	"failsafehttp":   "github.com/failsafe-go/failsafe-go/failsafehttp",
	"gobreaker":      "github.com/sony/gobreaker/v2",
	"openai":         "github.com/openai/openai-go/v3",
	"option":         "github.com/openai/openai-go/v3/option",
	"rate":           "golang.org/x/time/rate",
	"ratelimiter":    "github.com/failsafe-go/failsafe-go/ratelimiter",
	"redis":          "github.com/redis/go-redis/v9",
	"resty":          "github.com/go-resty/resty/v2",
	"retryablehttp":  "github.com/hashicorp/go-retryablehttp",
}

// codeContext declares what fragments take for granted.
const codeContext = `package sample

import (
	"context"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

var (
	ctx         context.Context
	req         *http.Request
	limits      []bucket.Limit
	costs       []bucket.Cost
	cost        func(*http.Request) (bucket.Cost, error)
	limiter     bucket.Limiter
	mux         *http.ServeMux
	stack       *middleware.Stack
	transport   http.RoundTripper
	redisClient redis.UniversalClient

	authorize, logging, traced middleware.Middleware
)
`

// compiler type-checks blocks against the export data of the packages.
type compiler struct {
	fset     *token.FileSet
	importer types.Importer
}

func newCompiler(t *testing.T) *compiler {
	t.Helper()
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}}\t{{.Export}}{{end}}")
	for _, path := range importable {
		list.Args = append(list.Args, path)
	}
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	c := &compiler{fset: token.NewFileSet()}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		file, ok := exports[path]
		if !ok {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(file)
	})
	return c
}

// compile returns what a compiler has to say about b, with its lines, but for variables that a fragment
// leaves unused.
func (c *compiler) compile(b block) (faults []string) {
	var lines []string
	for line := range strings.Lines(b.text) {
		if strings.TrimSpace(line) == "..." {
			line = "\n"
		}
		lines = append(lines, line)
	}
	text := strings.Join(lines, "")
	whole, fragment := strings.HasPrefix(firstCode(text), "package "), true
	var head, tail string
	switch {
	case whole:
		fragment = false
	case c.parses("package sample; " + text):
		head = "package sample; " + imports(text)
	default:
		head, tail = "package sample; "+imports(text)+"func _() (_ error) { ", "\nreturn }\n"
		text = discardLiterals(head, text, tail)
	}
	// The text begins on the first line, so that lines are counted as in the block.
	file, err := parser.ParseFile(c.fset, "", head+text+tail, parser.SkipObjectResolution|parser.AllErrors)
	if err != nil {
		var list scanner.ErrorList
		if l, ok := err.(scanner.ErrorList); ok {
			list = l
		}
		for _, e := range list {
			faults = append(faults, at(b, e.Pos.Line, e.Msg))
		}
		return faults
	}
	files := []*ast.File{file}
	if fragment {
		known, err := parser.ParseFile(c.fset, "context", codeContext, parser.SkipObjectResolution)
		if err != nil {
			return []string{err.Error()}
		}
		files = append(files, known)
	}
	config := types.Config{Importer: c.importer, Error: func(err error) {
		e := err.(types.Error)
		if fragment && strings.HasPrefix(e.Msg, "declared and not used") {
			return
		}
		faults = append(faults, at(b, c.fset.Position(e.Pos).Line, e.Msg))
	}}
	_, _ = config.Check("sample", c.fset, files, nil) // its error is among the faults
	return faults
}

func at(b block, line int, message string) string {
	return fmt.Sprintf("%s, line %d of the block: %s", b.where, line, message)
}

func (c *compiler) parses(source string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	return err == nil
}

// firstCode is the first line that is neither blank nor a comment.
func firstCode(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			return line
		}
	}
	return ""
}

// imports are the import declarations for the packages that text names.
func imports(text string) string {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), func(token.Position, string) {}, 0)
	var names []string
	var before, name string
	for {
		_, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.PERIOD && name != "" && before != "." && !slices.Contains(names, name) {
			names = append(names, name)
		}
		before, name = name, ""
		switch tok {
		case token.IDENT:
			name = lit
		case token.PERIOD:
			before, name = ".", ""
			if _, tok, _ := s.Scan(); tok == token.EOF {
				return ""
			}
		}
	}
	var out string
	for _, n := range names {
		if path, ok := importable[n]; ok {
			out += fmt.Sprintf("import %q; ", path)
		}
	}
	return out
}

// discardLiterals assigns composite literals that stand alone, as examples of a configuration, to the
// blank identifier.
func discardLiterals(head, text, tail string) string {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", head+text+tail, parser.SkipObjectResolution)
	if err != nil {
		return text
	}
	var offsets []int
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.ExprStmt); ok {
			if _, ok := s.X.(*ast.CompositeLit); ok {
				offsets = append(offsets, fset.Position(s.Pos()).Offset-len(head))
			}
		}
		return true
	})
	slices.Sort(offsets)
	for _, o := range slices.Backward(offsets) {
		text = text[:o] + "_ = " + text[o:]
	}
	return text
}

func TestCodeCompiles(t *testing.T) {
	c := newCompiler(t)
	n := 0
	for _, p := range pages(t) {
		blocks, _ := p.blocks()
		for _, b := range blocks {
			if b.language != "go" {
				continue
			}
			n++
			for _, fault := range c.compile(b) {
				t.Error(fault)
			}
		}
	}
	t.Logf("%d blocks", n)
	if n < 14 {
		t.Errorf("only %d blocks of Go were found", n)
	}
}

func TestBrokenCodeIsFound(t *testing.T) {
	c := newCompiler(t)
	for name, test := range map[string]struct{ code, fault string }{
		"a fragment":              {"stack, err := middleware.New(middleware.Config{})\n...\n_ = stack.Stats()\nreturn err", ""},
		"a literal alone":         {"bucket.Config{Limits: limits}", ""},
		"declarations":            {"func wait(d time.Duration) { time.Sleep(d) }", ""},
		"a program":               {"package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(1) }", ""},
		"a function that is gone": {"middleware.NewStack(middleware.Config{})", "line 1 of the block: undefined: middleware.NewStack"},
		"a field that is gone":    {"\nbucket.Config{Limit: limits}", "line 2 of the block: unknown field Limit"},
		"a wrong type":            {"bucket.Config{MaxWait: \"30s\"}", "cannot use \"30s\""},
		"a missing result":        {"stack := middleware.New(middleware.Config{})", "assignment mismatch"},
		"a name of nobody's":      {"fmt.Println(nobody)", "undefined: nobody"},
		"no Go":                   {"if {", "line 1 of the block: missing condition"},
		"an unused variable":      {"package main\n\nfunc main() { a := 1 }", "declared and not used: a"},
		"an unused import":        {"package main\n\nimport \"fmt\"\n\nfunc main() {}", "\"fmt\" imported and not used"},
		"a program's typo":        {"package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Printn(1) }", "undefined: fmt.Printn"},
	} {
		blocks, _ := sample("```go\n" + test.code + "\n```").blocks()
		faults := strings.Join(c.compile(blocks[0]), "\n")
		if !strings.Contains(faults, test.fault) || test.fault == "" && faults != "" {
			t.Errorf("%s: %q, want %q", name, faults, test.fault)
		}
	}
}
