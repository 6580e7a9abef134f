package main

import (
	"errors"
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
	if err != nil {
		t.Fatal(err)
	}
	block, ok := blockFromHere(string(readme))
	if !ok {
		t.Fatalf("README.md has no Go block below %q", origin)
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

// origin stands above the block of the README that comes from this program.
const origin = "<!-- from examples/quickstart/main.go -->\n"

// blockFromHere is the Go block of a Markdown text that stands below origin.
func blockFromHere(markdown string) (string, bool) {
	_, rest, _ := strings.Cut(markdown, origin)
	rest, isGo := strings.CutPrefix(rest, "```go\n")
	block, _, closed := strings.Cut(rest, "```")
	return block, isGo && closed
}

func TestOnlyTheBlockBelowItsOriginIsCompared(t *testing.T) {
	const other = "```go\nother\n```\n\n"
	if got, ok := blockFromHere(other + origin + "```go\nthis\n```\n" + other); !ok || got != "this\n" {
		t.Errorf("found %q, %v", got, ok)
	}
	for _, none := range []string{"", other, origin, origin + "text\n" + other, origin + "```sh\nthis\n```\n", origin + "```go\nthis\n"} {
		if got, ok := blockFromHere(none); ok {
			t.Errorf("found %q in %q", got, none)
		}
	}
}
