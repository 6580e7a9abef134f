package metertest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// get sends one request of a cost and reads the answer.
func get(t *testing.T, rt http.RoundTripper, tokens string) (*http.Response, string) {
	t.Helper()
	req, _ := http.NewRequest("POST", "https://api.example.com/v1", strings.NewReader(`{"model":"m-1"}`))
	if tokens != "" {
		req.Header.Set(TokensHeader, tokens)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(all)
}

// names are the headers that every answer has.
var names = map[string]bool{"Date": true, "Content-Type": true, "Content-Length": true}

func checkHeaders(t *testing.T, what string, got http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if g := got.Get(name); g != value {
			t.Errorf("%s: %s is %q, want %q", what, name, g, value)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && !names[name] {
			t.Errorf("%s: unexpected header %s: %s", what, name, got.Get(name))
		}
	}
}

// The bubble's clock begins at 2000-01-01T00:00:00Z. The provider takes 2 requests
// and 1000 tokens a minute, from buckets; each call costs 600 tokens.
func TestDialectsOnServedAndRefusedAnswers(t *testing.T) {
	type answer struct {
		status  int
		headers map[string]string
		body    []string // pieces of it
	}
	for _, c := range []struct {
		dialect         Dialect
		served, refused answer
		tooLarge        answer // 2000 tokens
		killed          answer // SetStatus(529)
	}{
		{
			dialect: Bare,
			served:  answer{200, nil, []string{"ok"}},
			refused: answer{429, map[string]string{"Retry-After": "12"}, []string{"tokens"}},
			// Waiting does not help, so no Retry-After.
			tooLarge: answer{429, nil, nil},
			killed:   answer{529, nil, []string{"Overloaded"}},
		},
		{
			dialect: OpenAI,
			served: answer{200, map[string]string{
				"X-Ratelimit-Limit-Requests": "2", "X-Ratelimit-Remaining-Requests": "1", "X-Ratelimit-Reset-Requests": "30s",
				"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "400", "X-Ratelimit-Reset-Tokens": "36s",
			}, []string{`"total_tokens":600`, `"model":"m-1"`}},
			refused: answer{429, map[string]string{
				"Retry-After":                "12",
				"X-Ratelimit-Limit-Requests": "2", "X-Ratelimit-Remaining-Requests": "1", "X-Ratelimit-Reset-Requests": "30s",
				"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "400", "X-Ratelimit-Reset-Tokens": "36s",
			}, []string{`"type":"tokens"`, `"code":"rate_limit_exceeded"`, "Limit 1000, Used 600, Requested 600. Please try again in 12s."}},
			tooLarge: answer{429, map[string]string{
				"X-Ratelimit-Limit-Requests": "2", "X-Ratelimit-Remaining-Requests": "1", "X-Ratelimit-Reset-Requests": "30s",
				"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "400", "X-Ratelimit-Reset-Tokens": "36s",
			}, []string{"Request too large", "Limit 1000, Requested 2000"}},
			killed: answer{529, nil, []string{`"code":"server_is_overloaded"`}},
		},
		{
			dialect: Anthropic,
			served: answer{200, map[string]string{
				"Anthropic-Ratelimit-Requests-Limit": "2", "Anthropic-Ratelimit-Requests-Remaining": "1", "Anthropic-Ratelimit-Requests-Reset": "2000-01-01T00:00:30Z",
				"Anthropic-Ratelimit-Tokens-Limit": "1000", "Anthropic-Ratelimit-Tokens-Remaining": "0", "Anthropic-Ratelimit-Tokens-Reset": "2000-01-01T00:00:36Z",
			}, []string{`"input_tokens":600`}},
			refused: answer{429, map[string]string{
				"Retry-After": "12", "Request-Id": "req_metertest",
				"Anthropic-Ratelimit-Requests-Limit": "2", "Anthropic-Ratelimit-Requests-Remaining": "1", "Anthropic-Ratelimit-Requests-Reset": "2000-01-01T00:00:30Z",
				"Anthropic-Ratelimit-Tokens-Limit": "1000", "Anthropic-Ratelimit-Tokens-Remaining": "0", "Anthropic-Ratelimit-Tokens-Reset": "2000-01-01T00:00:36Z",
			}, []string{`"type":"error"`, `"type":"rate_limit_error"`}},
			tooLarge: answer{429, map[string]string{
				"Request-Id":                         "req_metertest",
				"Anthropic-Ratelimit-Requests-Limit": "2", "Anthropic-Ratelimit-Requests-Remaining": "1", "Anthropic-Ratelimit-Requests-Reset": "2000-01-01T00:00:30Z",
				"Anthropic-Ratelimit-Tokens-Limit": "1000", "Anthropic-Ratelimit-Tokens-Remaining": "0", "Anthropic-Ratelimit-Tokens-Reset": "2000-01-01T00:00:36Z",
			}, nil},
			killed: answer{529, map[string]string{"Request-Id": "req_metertest"}, []string{`"type":"overloaded_error"`}},
		},
		{
			dialect:  Gemini,
			served:   answer{200, nil, []string{`"totalTokenCount":600`}},
			refused:  answer{429, nil, []string{`"status":"RESOURCE_EXHAUSTED"`, `"retryDelay":"12s"`, `"quotaId":"GenerateContentInputTokensPerModelPerMinute"`, `"quotaValue":"1000"`, "Please retry in 12s."}},
			tooLarge: answer{429, nil, []string{"QuotaFailure"}},
			killed:   answer{529, nil, []string{`"status":"UNAVAILABLE"`}},
		},
		{
			dialect: GitHub,
			served: answer{200, map[string]string{
				"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Used": "1", "X-Ratelimit-Reset": "946684830", "X-Ratelimit-Resource": "core",
			}, nil},
			refused: answer{403, map[string]string{
				"Retry-After":       "12",
				"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Used": "1", "X-Ratelimit-Reset": "946684830", "X-Ratelimit-Resource": "core",
			}, []string{"secondary rate limit"}},
			tooLarge: answer{403, map[string]string{
				"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Used": "1", "X-Ratelimit-Reset": "946684830", "X-Ratelimit-Resource": "core",
			}, nil},
			killed: answer{529, nil, []string{`"message":"Overloaded"`}},
		},
		{
			dialect: IETF,
			served: answer{200, map[string]string{
				"Ratelimit":        `"requests";r=1;t=30, "tokens";r=400;t=1`,
				"Ratelimit-Policy": `"requests";q=2;w=60, "tokens";q=1000;w=60;qu="tokens"`,
			}, nil},
			refused: answer{429, map[string]string{
				"Retry-After":      "12",
				"Ratelimit":        `"requests";r=1;t=30, "tokens";r=400;t=1`,
				"Ratelimit-Policy": `"requests";q=2;w=60, "tokens";q=1000;w=60;qu="tokens"`,
			}, []string{"http-problem-types#quota-exceeded", `"violated-policies":["tokens"]`}},
			tooLarge: answer{429, map[string]string{
				"Ratelimit":        `"requests";r=1;t=30, "tokens";r=400;t=1`,
				"Ratelimit-Policy": `"requests";q=2;w=60, "tokens";q=1000;w=60;qu="tokens"`,
			}, nil},
			killed: answer{529, nil, []string{"temporary-reduced-capacity"}},
		},
	} {
		t.Run(c.dialect.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{Requests: 2, Tokens: 1000, Dialect: c.dialect})
				rt := p.Transport()
				see := func(what, tokens string, want answer) {
					t.Helper()
					resp, body := get(t, rt, tokens)
					if resp.StatusCode != want.status {
						t.Errorf("%s: status %d, want %d", what, resp.StatusCode, want.status)
					}
					checkHeaders(t, what, resp.Header, want.headers)
					for _, piece := range want.body {
						if !strings.Contains(body, piece) {
							t.Errorf("%s: no %s in %s", what, piece, body)
						}
					}
					if ct := resp.Header.Get("Content-Type"); strings.Contains(ct, "json") != json.Valid([]byte(body)) {
						t.Errorf("%s: %s, but the body is %s", what, ct, body)
					}
				}
				see("served", "600", c.served)
				see("refused", "600", c.refused)
				see("too large", "2000", c.tooLarge)
				p.SetStatus(529)
				see("killed", "1", c.killed)
				p.SetStatus(0)
				see("alive again", "600", c.refused)
			})
		})
	}
}

func TestGitHubRefusesForWantOfRequestsWithoutRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := New(Config{Requests: 1, Per: time.Hour, Meter: FixedWindow, Dialect: GitHub}).Transport()
		get(t, rt, "")
		resp, body := get(t, rt, "")
		if resp.StatusCode != 403 || !strings.Contains(body, "API rate limit exceeded") {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		checkHeaders(t, "refused", resp.Header, map[string]string{
			"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Used": "1", "X-Ratelimit-Reset": "946688400", "X-Ratelimit-Resource": "core",
		})
	})
}

func TestTheHintHasItsForm(t *testing.T) {
	for _, c := range []struct {
		form RetryAfter
		want map[string]string
	}{
		{Seconds, map[string]string{"Retry-After": "2"}},
		{Millis, map[string]string{"Retry-After": "2", "Retry-After-Ms": "1334"}},
		{Date, map[string]string{"Retry-After": "Sat, 01 Jan 2000 00:00:02 GMT"}},
		{NoHint, nil},
		{Zero, map[string]string{"Retry-After": "0"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			// 45 a minute: one comes back after 1.333... s.
			rt := New(Config{Requests: 45, RequestBurst: 1, RetryAfter: c.form}).Transport()
			get(t, rt, "")
			resp, _ := get(t, rt, "")
			checkHeaders(t, "refused", resp.Header, c.want)
		})
	}
}

func TestFailuresAreValidInEveryDialect(t *testing.T) {
	for d := Bare; d <= IETF; d++ {
		for _, status := range []int{200, 400, 401, 402, 403, 404, 409, 413, 429, 499, 500, 502, 503, 504, 529} {
			c := d.failure(status)
			if c.status != status || d != Bare && !json.Valid([]byte(c.body)) {
				t.Errorf("%v %d: %d %s", d, status, c.status, c.body)
			}
		}
	}
}
