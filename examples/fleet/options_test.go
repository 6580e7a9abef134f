package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestABadCommandLineIsNamedAndEndsInStatus2(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-jobs", "0"}, "-jobs is 0, must be from 1"},
		{[]string{"-jobs", "-5"}, "-jobs is -5"},
		{[]string{"-jobs", "100001"}, "to 100000"},
		{[]string{"-jobs", "many"}, `invalid value "many"`},
		{[]string{"-workers", "0"}, "-workers is 0"},
		{[]string{"-workers", "1001"}, "to 1000"},
		{[]string{"-seed", "-1"}, `invalid value "-1"`},
		{[]string{"-out", filepath.Join(t.TempDir(), "no", "such", "folder.svg")}, "-out: "},
		{[]string{"-out", t.TempDir()}, "-out: "},
		{[]string{"-speed", "9"}, "not defined: -speed"},
		{[]string{"now"}, `unexpected argument "now"`},
	} {
		var stdout, stderr bytes.Buffer
		if status := command(t.Context(), c.args, &stdout, &stderr); status != 2 {
			t.Errorf("%q: status %d, want 2", c.args, status)
		}
		if !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: stderr is %q, want %q in it", c.args, stderr.String(), c.want)
		}
		if stdout.Len() > 0 {
			t.Errorf("%q: stdout is %q, want nothing", c.args, stdout.String())
		}
	}
}

func TestHelpIsNoError(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := command(t.Context(), []string{"-h"}, &stdout, &stderr); status != 0 {
		t.Errorf("status %d, want 0", status)
	}
	for _, flag := range []string{"-jobs", "-workers", "-seed", "-out", "-v"} {
		if !strings.Contains(stderr.String(), "  "+flag) {
			t.Errorf("no %s in\n%s", flag, stderr.String())
		}
	}
}

func TestLookingWhetherAFileIsWritableLeavesItAsItWas(t *testing.T) {
	name := filepath.Join(t.TempDir(), "picture.svg")
	if err := writable(name); err != nil {
		t.Errorf("a new file: %v", err)
	}
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("a new file was left behind: %v", err)
	}
	if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writable(name); err != nil {
		t.Errorf("an old file: %v", err)
	}
	if got, err := os.ReadFile(name); string(got) != "old" {
		t.Errorf("the old file is now %q, %v", got, err)
	}
}
