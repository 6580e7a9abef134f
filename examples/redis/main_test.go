package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if orders := os.Getenv(workerEnv); orders != "" { // the tests re-execute themselves, as the program does
		os.Exit(work(context.Background(), orders, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestFleetSharesABudgetAndSurvivesACrash(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("there is no redis-server on this machine")
	}
	var out, errs bytes.Buffer
	if status := command(context.Background(), []string{"-span", "4s", "-workers", "3", "-goroutines", "8"}, &out, &errs); status != 0 {
		t.Errorf("status %d: %s\n%s", status, errs.String(), out.String())
	}
	for _, want := range []string{"killed", "started again", "joint", "Without sharing"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	t.Log("\n" + out.String())
}

func TestBadCommandLines(t *testing.T) {
	for _, args := range [][]string{{"-workers", "0"}, {"-span", "1s"}, {"-nonsense"}, {"more"}} {
		var errs bytes.Buffer
		if status := command(context.Background(), args, &errs, &errs); status != 2 || errs.Len() == 0 {
			t.Errorf("%v: status %d, %q", args, status, errs.String())
		}
	}
	var errs bytes.Buffer
	if status := command(context.Background(), []string{"-redis", "http://x"}, &errs, &errs); status != 1 {
		t.Errorf("a URL that is no engine's: status %d, %s", status, errs.String())
	}
}
