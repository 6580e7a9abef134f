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

// The program as it is started, on loopback and in real time, with few jobs.
func TestTheProgramInMiniatureEndsInSuccess(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "small.svg")
	var stdout, stderr bytes.Buffer
	status := command(t.Context(), []string{"-jobs", "40", "-workers", "20", "-out", picture, "-v"}, &stdout, &stderr)
	if status != 0 {
		t.Errorf("status %d\n%s%s", status, stdout.String(), stderr.String())
	}
	for _, want := range []string{"40 jobs", "naive", "paced", "wasted share", "The picture is in " + picture, "served after", "0 were lost"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in the output:\n%s", want, stdout.String())
		}
	}
	if !strings.Contains(stderr.String(), "msg=rerouted") {
		t.Errorf("-v logged no reroute:\n%s", stderr.String())
	}
	if svg, err := os.ReadFile(picture); err != nil || !bytes.Contains(svg, []byte("</svg>")) {
		t.Errorf("the picture is %q, %v", svg, err)
	}
}

func TestAnInterruptEndsTheProgramInStatus130(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	picture := filepath.Join(t.TempDir(), "none.svg")
	var stdout, stderr bytes.Buffer
	if status := command(ctx, []string{"-out", picture}, &stdout, &stderr); status != 130 {
		t.Errorf("status %d, want 130", status)
	}
	if got := stderr.String(); got != "fleet: interrupted\n" {
		t.Errorf("stderr is %q", got)
	}
	if _, err := os.Stat(picture); !os.IsNotExist(err) {
		t.Errorf("a picture was left behind: %v", err)
	}
}
