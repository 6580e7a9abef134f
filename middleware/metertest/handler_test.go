package metertest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"
)

func mustURL(t *testing.T) *url.URL {
	t.Helper()
	u, err := url.Parse("https://a.test/")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// serve puts p behind a real server and returns a client of it.
func serve(t *testing.T, p *Provider) (*http.Client, string) {
	t.Helper()
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s.Client(), s.URL
}

func TestTheHandlerMetersAndSpeaksAsTheTransportDoes(t *testing.T) {
	p := New(Config{Requests: 1, Meter: RollingWindow, Per: time.Hour, Dialect: OpenAI})
	client, url := serve(t, p)
	for i, want := range []int{200, 429} {
		resp, err := client.Post(url+"/v1?q=1", "application/json", strings.NewReader(`{"model":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want || resp.Header.Get("X-Ratelimit-Remaining-Requests") != "0" {
			t.Errorf("answer %d: %d %v %s, %v", i, resp.StatusCode, resp.Header, body, err)
		}
		if want == 429 && (resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "rate_limit_exceeded")) {
			t.Errorf("refused with %v %s", resp.Header, body)
		}
	}
	if e := p.Ledger()[0]; !e.Admitted || e.Path != "/v1" || e.Query != "q=1" || e.Model != "m" || e.BodyLen != 13 || "http://"+e.Host != url {
		t.Errorf("noted as %+v", e)
	}
}

func TestTheHandlersFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer Answer
		cut    bool   // no answer at all
		want   string // of the body
		err    error  // of its reading; nil with bad means any
		bad    bool
	}{
		{"dial error", Answer{Fault: DialError}, true, "", nil, true},
		{"reset before", Answer{Fault: ResetBefore}, true, "", nil, true},
		{"reset after", Answer{Fault: ResetAfter}, true, "", syscall.ECONNRESET, true},
		{"reset during body", Answer{Status: 200, Body: "12345678", Fault: ResetDuringBody}, false, "1234", nil, true},
		{"promises more", Answer{Status: 200, Body: "1234", Length: 9}, false, "1234", io.ErrUnexpectedEOF, true},
		{"promises less", Answer{Status: 200, Body: "12345678", Length: 3}, false, "123", nil, false},
		{"early", Answer{Status: 413, Body: "no", Early: true}, false, "no", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, url := serve(t, New(Config{Script: []Answer{c.answer}}))
			resp, err := client.Post(url, "text/plain", strings.NewReader("payload"))
			if c.cut {
				if err == nil || c.err != nil && !errors.Is(err, c.err) {
					t.Fatalf("%v, %v; want a connection that was cut", resp, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			// A reset may overtake bytes that were sent before it.
			if string(got) != c.want && c.err == nil && c.bad && strings.HasPrefix(c.want, string(got)) {
				got = []byte(c.want)
			}
			if string(got) != c.want || (err != nil) != c.bad || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestTheHandlerHangsUntilTheClientGoes(t *testing.T) {
	for _, fault := range []Fault{Hang, HangDuringBody} {
		arrived := make(chan bool, 1)
		p := New(Config{
			Script: []Answer{{Status: 200, Body: "12345678", Fault: fault}},
			Cost:   func(*http.Request, []byte) int64 { arrived <- true; return 0 },
		})
		client, url := serve(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
		if fault == Hang {
			go func() {
				<-arrived
				cancel()
			}()
			if _, err := client.Do(req); !errors.Is(err, context.Canceled) {
				t.Errorf("%v: %v", fault, err)
			}
			continue
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		io.ReadFull(resp.Body, make([]byte, 4))
		cancel()
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: %v", fault, err)
		}
		resp.Body.Close()
	}
}

func TestTheHandlerFlushesEachEventAndSendsTrailers(t *testing.T) {
	p := New(Config{Script: []Answer{
		{Status: 200, Events: []Event{{0, SSE("", "1")}, {0, SSE("", "2")}, {time.Hour, SSE("", "3")}}},
		{Status: 200, Body: "ok", Trailer: http.Header{"X-Sum": {"42"}}, Header: http.Header{"Date": nil}},
		{Status: 200, Body: "endless", Endless: true},
	}})
	client, url := serve(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"data: 1\n", "\n", "data: 2\n", "\n"} { // and not an hour later
		if line, err := lines.ReadString('\n'); line != want || err != nil {
			t.Errorf("%q, %v; want %q", line, err, want)
		}
	}
	cancel()
	resp.Body.Close()

	resp, err = client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.Trailer.Get("X-Sum") != "42" || resp.Header.Get("Date") != "" {
		t.Errorf("trailer %v, header %v", resp.Trailer, resp.Header)
	}

	resp, err = client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(io.Discard, resp.Body, 1<<20); n != 1<<20 {
		t.Errorf("endless: %d, %v", n, err)
	}
	resp.Body.Close()
}
