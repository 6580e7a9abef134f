package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// onLoopback returns the URL of a sidecar on loopback, before an upstream there.
func onLoopback(t *testing.T, upstream http.Handler, change func(*options)) string {
	t.Helper()
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	o := toProvider(t)
	o.upstream = upstreamAt(t, server.URL)
	if change != nil {
		change(&o)
	}
	transport := newTransport()
	t.Cleanup(transport.CloseIdleConnections)
	p, err := newProxy(o, transport, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := loopback()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- serve(ctx, l, p) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// curl runs it, and returns what it printed.
func curl(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	out, err := exec.CommandContext(t.Context(), path, append([]string{"-sS", "--max-time", "60", "--noproxy", "*"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("curl: %v\n%s", err, out)
	}
	return string(out)
}

func TestCurl(t *testing.T) {
	p := metertest.New(metertest.Config{Dialect: metertest.OpenAI})
	url := onLoopback(t, p, func(o *options) { o.rpm, o.wait = 5, time.Second }) // a burst of 4, and no waiting
	if out := curl(t, "-i", "-d", `{"model":"m"}`, url+"/v1/chat/completions"); !strings.Contains(out, "200 OK") {
		t.Errorf("a call: %s", out)
	}
	p.Script(metertest.Answer{Status: 200, Events: events(3, 0)})
	if out := curl(t, "-N", "-d", `{"model":"m"}`, url+"/v1/chat/completions"); strings.Count(out, "data:") != 3 {
		t.Errorf("a stream: %s", out)
	}
	if out := curl(t, "-i", "-H", "Expect: 100-continue", "--data-binary", strings.Repeat("x", 100_000), url+"/v1/files"); !strings.Contains(out, "200 OK") {
		t.Errorf("a long call: %s", out)
	}
	curl(t, "-d", "{}", url)
	out := curl(t, "-i", "-d", `{"model":"m"}`, url+"/v1/chat/completions")
	if !strings.Contains(out, "429 Too Many Requests") || !strings.Contains(out, "\r\nRetry-After: ") || !strings.Contains(out, `"code":"no_budget"`) {
		t.Errorf("a refusal: %s", out)
	}
	if p.Hits() != 4 {
		t.Errorf("%d calls reached the provider, want 4", p.Hits())
	}
}

// An upstream that switches protocols, as a realtime API does to WebSocket.
func TestASwitchedProtocolPassesBothWays(t *testing.T) {
	url := onLoopback(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" || r.Header.Get("Connection") != "Upgrade" {
			http.Error(w, "no upgrade", http.StatusBadRequest)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		line, err := rw.ReadString('\n')
		if err != nil {
			t.Error(err)
		}
		fmt.Fprint(rw, "you said "+line)
		rw.Flush()
	}), nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/realtime", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d", resp.StatusCode)
	}
	fmt.Fprintln(resp.Body.(io.Writer), "hello")
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "you said hello\n" {
		t.Errorf("read %q, %v", line, err)
	}
}
