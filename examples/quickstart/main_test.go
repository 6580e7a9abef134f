package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// What main prints is what is promised.
func Example() {
	main()
	// Output: 20 sent, 20 served, health green
}

func TestReadmeShowsThisProgram(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	program, err := shown(string(source))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no README.md")
	}
	if err != nil {
		t.Fatal(err)
	}
	block, ok := goBlockWith(string(readme), "middleware.New(")
	if !ok {
		t.Skip("README.md has no Go block with middleware.New")
	}
	if block != program {
		t.Errorf("README.md shows\n%s\nbut quickstart is\n%s", block, program)
	}
}

// shown is what stands between the markers of a source, moved to the margin.
func shown(source string) (string, error) {
	_, rest, begun := strings.Cut(source, "\t// README begin\n")
	program, _, ended := strings.Cut(rest, "\t// README end\n")
	if !begun || !ended {
		return "", errors.New("the markers README begin and README end are missing")
	}
	lines := strings.SplitAfter(program, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "\t")
	}
	return strings.Join(lines, ""), nil
}

// goBlockWith is the first Go block of a Markdown text that contains word.
func goBlockWith(markdown, word string) (string, bool) {
	for {
		_, rest, ok := strings.Cut(markdown, "```go\n")
		if !ok {
			return "", false
		}
		block, rest, ok := strings.Cut(rest, "```")
		if !ok {
			return "", false
		}
		if strings.Contains(block, word) {
			return block, true
		}
		markdown = rest
	}
}

func TestTheFirstBlockOfAReadmeThatBuildsAStackIsFound(t *testing.T) {
	const readme = "```sh\nmiddleware.New(\n```\n```go\nother\n```\n\n```go\nmiddleware.New(1)\n```\n```go\nmiddleware.New(2)\n```\n"
	if got, ok := goBlockWith(readme, "middleware.New("); !ok || got != "middleware.New(1)\n" {
		t.Errorf("found %q, %v", got, ok)
	}
	if got, ok := goBlockWith("```go\nother\n```\n", "middleware.New("); ok {
		t.Errorf("found %q where there is none", got)
	}
}
