package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func noEnv(string) string { return "" }

// file writes text to a file of the test's.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatIsWrongIsNamedAndEndsInStatus2(t *testing.T) {
	good := file(t, "jobs.csv", "id,tokens\na,1\n")
	to := []string{"-url", "http://127.0.0.1:1/"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "-jobs is missing"},
		{[]string{"-jobs", good}, "-url is missing"},
		{[]string{"-jobs", good, "-url", "api.example.com"}, "must be http:// or https://"},
		{append(to, "-jobs", good, "-rpm", "-1"), "must not be negative"},
		{append(to, "-jobs", good, "-burst", "2m"), "-burst is 2m0s"},
		{append(to, "-jobs", good, "-headroom", "1.5"), "-headroom is 1.5"},
		{append(to, "-jobs", good, "-headroom", "NaN"), "-headroom is NaN"},
		{append(to, "-jobs", good, "-workers", "0"), "-workers is 0"},
		{append(to, "-jobs", good, "-results", good), "must be three files"},
		{append(to, "-jobs", good, "now"), `unexpected argument "now"`},
		{[]string{"-demo", "-rpm", "5"}, "-demo goes alone"},
		{append(to, "-jobs", good+".no"), "no such file"},
		{append(to, "-jobs", file(t, "a.csv", "")), "it is empty"},
		{append(to, "-jobs", file(t, "a.csv", "id,tokens\n")), "no jobs"},
		{append(to, "-jobs", file(t, "a.csv", "id,tokens\na,1\nb,-2\n")), "line 3: tokens is -2"},
	} {
		var stdout, stderr bytes.Buffer
		if status := command(t.Context(), c.args, noEnv, &stdout, &stderr); status != 2 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: status %d, stderr %q, want %q in it", c.args, status, stderr.String(), c.want)
		}
		if stdout.Len() > 0 {
			t.Errorf("%q: stdout is %q", c.args, stdout.String())
		}
	}
}

func TestASecretThatIsWrongIsNotShown(t *testing.T) {
	for _, header := range []string{"sk-secret", ": sk-secret", "A B: sk-secret", "A: sk-secret\r\nB: c"} {
		var stdout, stderr bytes.Buffer
		args := []string{"-jobs", "jobs.csv", "-url", "http://127.0.0.1:1/"}
		status := command(t.Context(), args, func(string) string { return header }, &stdout, &stderr)
		if status != 2 || strings.Contains(stderr.String(), "secret") || !strings.Contains(stderr.String(), "BATCH_HEADER") {
			t.Errorf("%q: status %d, stderr %q", header, status, stderr.String())
		}
	}
}

func TestHelpIsNoError(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := command(t.Context(), []string{"-h"}, noEnv, &stdout, &stderr); status != 0 || !strings.Contains(stderr.String(), "-resend") {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
}

func TestAPlanSendsNothing(t *testing.T) {
	jobs := file(t, "jobs.csv", "id,tokens\na,10\nb,10\nc,10\n")
	var stdout, stderr bytes.Buffer
	args := []string{"-jobs", jobs, "-plan", "-rpd", "2", "-headroom", "1", "-latency", "1s"}
	if status := command(t.Context(), args, noEnv, &stdout, &stderr); status != 0 {
		t.Fatalf("status %d, stderr %q", status, stderr.String())
	}
	for _, want := range []string{"3 jobs of 30 tokens", "limit of 2 requests per day is spent after 2 jobs", `1 are left, from "c" on`, "12h0m0s"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}

func TestAnInterruptEndsItInStatus130(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var stdout, stderr bytes.Buffer
	args := []string{"-jobs", file(t, "jobs.csv", "id,tokens\na,1\n"), "-url", "http://127.0.0.1:1/"}
	if status := command(ctx, args, noEnv, &stdout, &stderr); status != 130 || !strings.Contains(stderr.String(), "resumes") {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
}
