package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

// How many of the agents are served depends on the jitter, and on the order in which
// their calls arrive.
var demonstrated = regexp.MustCompile(`^A sidecar for an API of 60 requests per minute. A call may wait 3s for its budget.

one call                     200
a stream of 4 events         200, as they were sent
refused once, for a second   200, sent 2 times
60 agents at once            [3-5]\d served; \d+ refused by the sidecar, Retry-After \d+( to \d+)? s; 0 by the API
refused for 5 minutes        200, served by the backup: true
stopped within a stream      200, 5 of 5 events; another call is taken: false
$`)

func TestTheDemonstration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := demonstrate(t.Context(), &out, inMemory); err != nil {
			t.Error(err)
		}
		if got := out.String(); !demonstrated.MatchString(got) {
			t.Errorf("printed\n%s\nwant\n%s", got, demonstrated)
		}
	})
}

func noEnv(string) string { return "" }

func TestABadCommandLineIsNamedAndEndsInStatus2(t *testing.T) {
	const up = "https://api.example.com"
	for _, c := range []struct {
		args []string
		env  string
		want string
	}{
		{nil, "", "-upstream is missing"},
		{[]string{"-upstream", "api.example.com"}, "", "-upstream: "},
		{[]string{"-upstream", "ftp://api.example.com"}, "", "does not begin with http"},
		{[]string{"-upstream", "https://"}, "", "names no host"},
		{[]string{"-upstream", "https://:443"}, "", "names no host"},
		{[]string{"-upstream", "https://a:b@api.example.com"}, "", "credentials come from the callers"},
		{[]string{"-upstream", up + "?x=1"}, "", "more than a path"},
		{[]string{"-upstream", "https://%zz"}, "", "-upstream: "},
		{[]string{"-upstream", "http://127.0.0.1:8080"}, "", "is the sidecar itself"},
		{[]string{"-upstream", "http://LOCALHOST:8080/v1"}, "", "-upstream is the sidecar itself"},
		{[]string{"-upstream", "http://127.0.0.1", "-listen", ":80"}, "", "-upstream is the sidecar itself"},
		{[]string{"-upstream", up, "-backup", "http://localhost:8080"}, "", "-backup is the sidecar itself"},
		{[]string{"-upstream", up, "-provider", "nobody"}, "", "-provider: "},
		{[]string{"-upstream", up, "-rpm", "-1"}, "", "-rpm is -1"},
		{[]string{"-upstream", up, "-tpm", "-1"}, "", "-tpm is -1"},
		{[]string{"-upstream", up, "-rpm", "many"}, "", `invalid value "many"`},
		{[]string{"-upstream", up, "-wait", "0s"}, "", "-wait is 0s"},
		{[]string{"-upstream", up, "-listen", "8080"}, "", "must be host:port"},
		{[]string{"-upstream", up, "-listen", "localhost:http3"}, "", "must be host:port"},
		{[]string{"-upstream", up, "-listen", "localhost:70000"}, "", "must be host:port"},
		{[]string{"-upstream", up, "-backup", "backup"}, "", "-backup: "},
		{[]string{"-upstream", up, "-backup", up}, "", "quota"},
		{[]string{"-upstream", up, "-backup", "HTTPS://API.example.com:443/"}, "", "quota"},
		{[]string{"-upstream", up, "-backup", "https://b.example.com"}, "bad name: secret", "SIDECAR_BACKUP_HEADER is not"},
		{[]string{"-upstream", up, "-backup", "https://b.example.com"}, "Name: secret\nX: y", "SIDECAR_BACKUP_HEADER is not"},
		{[]string{"-upstream", up}, "X-Api-Key: secret", "SIDECAR_BACKUP_HEADER without -backup"},
		{[]string{"-upstream", up, "-backup-model", "m"}, "", "-backup-model without -backup"},
		{[]string{"-upstream", up, "-backup", "https://b.example.com"}, "secret", "SIDECAR_BACKUP_HEADER"},
		{[]string{"-demo", "-rpm", "5"}, "", "-demo goes alone"},
		{[]string{"-speed", "9"}, "", "not defined: -speed"},
		{[]string{"-upstream", up, "now"}, "", `unexpected argument "now"`},
	} {
		var stdout, stderr bytes.Buffer
		status := command(t.Context(), c.args, func(string) string { return c.env }, &stdout, &stderr)
		if status != 2 {
			t.Errorf("%q: status %d, want 2", c.args, status)
		}
		if !strings.Contains(stderr.String(), c.want) || strings.Contains(stderr.String(), "secret") {
			t.Errorf("%q: stderr is %q, want %q in it", c.args, stderr.String(), c.want)
		}
		if stdout.Len() > 0 {
			t.Errorf("%q: stdout is %q, want nothing", c.args, stdout.String())
		}
	}
}

func TestHelpIsNoError(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := command(t.Context(), []string{"-h"}, noEnv, &stdout, &stderr); status != 0 {
		t.Errorf("status %d, want 0", status)
	}
	for _, flag := range []string{"-listen", "-upstream", "-provider", "-rpm", "-tpm", "-wait", "-backup", "-backup-model", "-demo"} {
		if !strings.Contains(stderr.String(), "  "+flag) {
			t.Errorf("no %s in\n%s", flag, stderr.String())
		}
	}
}

func TestAnAddressInUseIsNamedAndEndsInStatus1(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var stderr bytes.Buffer
	args := []string{"-upstream", "https://api.example.com", "-listen", l.Addr().String()}
	if status := command(t.Context(), args, noEnv, io.Discard, &stderr); status != 1 || !strings.Contains(stderr.String(), "address already in use") {
		t.Errorf("status %d, stderr %q", status, stderr.String())
	}
}

func TestAnInterruptEndsItInSuccess(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var stdout, stderr bytes.Buffer
	args := []string{"-upstream", "https://api.example.com", "-listen", "127.0.0.1:0"}
	if status := command(ctx, args, noEnv, &stdout, &stderr); status != 0 || !strings.Contains(stdout.String(), "is https://api.example.com") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout.String(), stderr.String())
	}
}
