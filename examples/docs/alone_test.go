package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/meteredhttp/meteredhttp"

// thirdParty are the packages of other modules that a program of a scratch module outside of the workspace
// pulls in when it imports path.
func thirdParty(t *testing.T, path string) []string {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod":  "module scratch\n\ngo 1.25.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + here + "\n",
		"main.go": "package main\n\nimport _ \"" + path + "\"\n\nfunc main() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("build", "-o", filepath.Join(dir, "scratch"), ".")
	var others []string
	for line := range strings.Lines(run("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")) {
		p := strings.TrimSpace(line)
		if p != "" && p != "scratch" && p != module && !strings.HasPrefix(p, module+"/") {
			others = append(others, p)
		}
	}
	slices.Sort(others)
	return others
}

// A program pulls in no more than it asks for, as the go command gives it to people outside of the workspace.
func TestAProgramPullsInNoMoreThanItMust(t *testing.T) {
	breaker := []string{"github.com/sony/gobreaker/v2"}
	for path, want := range map[string][]string{
		"bucket":               nil,
		"retryafter":           nil,
		"middleware/metertest": nil,
		"escalate":             breaker,
		"middleware":           breaker,
		"adapters/llm":         breaker,
		"adapters/dashboard":   breaker,
	} {
		if got := thirdParty(t, module+"/"+path); !slices.Equal(got, want) {
			t.Errorf("%s pulls in %q, want %q", path, got, want)
		}
	}
	if got := thirdParty(t, module+"/adapters/meteredresty"); !slices.Contains(got, "github.com/go-resty/resty/v2") {
		t.Errorf("adapters/meteredresty pulls in %q, and not resty: nothing is looked at", got)
	}
}
