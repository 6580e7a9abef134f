package escalate

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// request is a caller's request as the middleware hands it over: a clone of its
// own with a body that can be replayed.
func request(t testing.TB, method, url, body string, header ...string) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

// rewriter is a Router whose backup is route.
func rewriter(t testing.TB, route Route) *Router {
	t.Helper()
	if route.Name == "" && route.Quota == "" {
		route.Name = "B"
	}
	return newRouter(t, Settings{}, route)
}

func TestRewriteURL(t *testing.T) {
	for name, tc := range map[string]struct{ base, url, want, host string }{
		"no URL keeps the request's":         {"", "https://p.example/v1/chat?a=1", "https://p.example/v1/chat?a=1", "p.example"},
		"scheme, host and port":              {"http://b.example:8080", "https://p.example/v1/chat", "http://b.example:8080/v1/chat", "b.example:8080"},
		"query kept":                         {"https://b.example", "https://p.example/v1?a=1&b=%20&a=2", "https://b.example/v1?a=1&b=%20&a=2", "b.example"},
		"prefix":                             {"https://b.example/openai", "https://p.example/v1/chat", "https://b.example/openai/v1/chat", "b.example"},
		"prefix with a slash":                {"https://b.example/openai/", "https://p.example/v1/chat/", "https://b.example/openai/v1/chat/", "b.example"},
		"slash alone":                        {"https://b.example/", "https://p.example/", "https://b.example/", "b.example"},
		"empty path":                         {"https://b.example", "https://p.example", "https://b.example", "b.example"},
		"prefix, empty path":                 {"https://b.example/x", "https://p.example", "https://b.example/x", "b.example"},
		"escaped path":                       {"https://b.example/a%2Fb", "https://p.example/models/x%2Fy%20z", "https://b.example/a%2Fb/models/x%2Fy%20z", "b.example"},
		"base's query is added":              {"https://b.example?api-version=2", "https://p.example/v1?a=1", "https://b.example/v1?a=1&api-version=2", "b.example"},
		"base's query wins":                  {"https://b.example?api-version=2", "https://p.example/v1?api-version=1", "https://b.example/v1?api-version=2", "b.example"},
		"caller's query credentials go":      {"https://b.example", "https://p.example/v1?KEY=s&a=1&api-key=s&access_token=s&alt=sse", "https://b.example/v1?a=1&alt=sse", "b.example"},
		"base's own key stays":               {"https://b.example?key=ours", "https://p.example/v1?key=theirs", "https://b.example/v1?key=ours", "b.example"},
		"user information goes":              {"https://b.example", "https://u:p@p.example/v1", "https://b.example/v1", "b.example"},
		"same origin in other words":         {"https://P.example:443/x", "https://p.example/v1?key=s", "https://P.example:443/x/v1?key=s", "P.example:443"},
		"another scheme is another origin":   {"http://p.example", "https://p.example/v1?key=s", "http://p.example/v1", "p.example"},
		"another port is another origin":     {"https://p.example:8443", "https://p.example/v1?key=s", "https://p.example:8443/v1", "p.example:8443"},
		"an IPv6 host":                       {"https://[::1]:8443/x", "https://p.example/v1", "https://[::1]:8443/x/v1", "[::1]:8443"},
		"a key with an escaped name is seen": {"https://b.example", "https://p.example/v1?k%65y=s", "https://b.example/v1", "b.example"},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(t, "GET", tc.url, "")
			if err := rewriter(t, Route{URL: tc.base}).Rewrite(1, req); err != nil {
				t.Fatal(err)
			}
			if got := req.URL.String(); got != tc.want || req.Host != tc.host {
				t.Errorf("%s, Host %s; want %s, Host %s", got, req.Host, tc.want, tc.host)
			}
		})
	}
}

func TestAnOpaqueURLCannotBeMoved(t *testing.T) {
	req := request(t, "GET", "https://p.example/v1", "")
	req.URL.Opaque = "//p.example/v1%2F"
	if err := rewriter(t, Route{URL: "https://b.example"}).Rewrite(1, req); err == nil {
		t.Error("it was")
	}
}

// The first provider's key is sent to the second (kcolemangt/llm-router#13,
// higress-group/higress#3619).
func TestFieldReport_H2(t *testing.T) {
	secrets := []string{
		"Authorization", "Bearer P-secret", "Proxy-Authorization", "Basic P-secret", "Cookie", "session=P-secret",
		"X-Api-Key", "P-secret", "Api-Key", "P-secret", "X-Goog-Api-Key", "P-secret", "OpenAI-Organization", "P-secret",
		"OpenAI-Project", "P-secret", "X-Amz-Security-Token", "P-secret", "Helicone-Auth", "Bearer P-secret",
		"Ocp-Apim-Subscription-Key", "P-secret", "Cf-Access-Client-Secret", "P-secret",
	}
	public := []string{
		"Anthropic-Version", "2023-06-01", "Anthropic-Beta", "x", "Content-Type", "application/json",
		"Idempotency-Key", "once", "Traceparent", "00-1-2-3",
	}
	caller := request(t, "POST", "https://p.example/v1/chat?key=P-secret", `{"model":"p"}`, append(secrets, public...)...)
	caller.Header["x-api-key"] = []string{"P-secret"} // written past Header.Set
	r := rewriter(t, Route{URL: "https://b.example", Model: "b", Header: http.Header{"authorization": {"Bearer B"}},
		RequireCredential: true})
	clone := caller.Clone(t.Context())
	clone.Body, _ = caller.GetBody()
	clone.Trailer = http.Header{"X-Api-Key": {"P-secret"}, "X-Sum": nil}
	if err := r.Rewrite(1, clone); err != nil {
		t.Fatal(err)
	}
	want := http.Header{"Authorization": {"Bearer B"}}
	for i := 0; i < len(public); i += 2 {
		want.Set(public[i], public[i+1])
	}
	if diff := cmp.Diff(want, clone.Header); diff != "" {
		t.Errorf("headers at B (-want +got):\n%s", diff)
	}
	if clone.URL.String() != "https://b.example/v1/chat" || clone.Host != "b.example" {
		t.Errorf("%s, Host %s", clone.URL, clone.Host)
	}
	if diff := cmp.Diff(http.Header{"X-Sum": nil}, clone.Trailer); diff != "" {
		t.Errorf("trailers at B (-want +got):\n%s", diff)
	}
	for range 2 { // GetBody is the rewriter's
		body, _ := clone.GetBody()
		if b, _ := io.ReadAll(body); string(b) != `{"model":"b"}` {
			t.Errorf("body %s", b)
		}
	}
	for i := 0; i < len(secrets); i += 2 { // no change of the caller's request
		if caller.Header.Get(secrets[i]) != secrets[i+1] {
			t.Errorf("the caller's %s was changed", secrets[i])
		}
	}
	if caller.URL.String() != "https://p.example/v1/chat?key=P-secret" {
		t.Errorf("the caller's URL was changed: %s", caller.URL)
	}
}

func TestCredentialsStayOnTheSameOrigin(t *testing.T) {
	req := request(t, "GET", "https://p.example/v1?key=s", "", "Authorization", "Bearer s", "Cookie", "c=1")
	if err := rewriter(t, Route{URL: "https://p.example", Header: http.Header{"X-Tier": {"batch"}}}).Rewrite(1, req); err != nil {
		t.Fatal(err)
	}
	if req.Header.Get("Authorization") == "" || req.Header.Get("Cookie") == "" || req.URL.RawQuery != "key=s" {
		t.Errorf("%v %s", req.Header, req.URL)
	}
}

func TestRequireCredential(t *testing.T) {
	for name, tc := range map[string]struct {
		header http.Header
		query  string
		hook   func(*http.Request) error
		want   bool
	}{
		"none":                     {nil, "", nil, false},
		"authorization":            {http.Header{"Authorization": {"Bearer k"}}, "", nil, true},
		"an unset variable":        {http.Header{"Authorization": {"Bearer "}}, "", nil, false},
		"x-api-key":                {http.Header{"x-api-key": {"k"}}, "", nil, true},
		"an empty x-api-key":       {http.Header{"x-api-key": {""}}, "", nil, false},
		"api-key":                  {http.Header{"api-key": {"k"}}, "", nil, true},
		"key in the query":         {nil, "?key=k", nil, true},
		"an empty key":             {nil, "?key=", nil, false},
		"an organization is none":  {http.Header{"OpenAI-Organization": {"o"}}, "", nil, false},
		"from the hook":            {nil, "", func(r *http.Request) error { r.Header.Set("Authorization", "Bearer k"); return nil }, true},
		"the hook took it away":    {http.Header{"Authorization": {"Bearer k"}}, "", func(r *http.Request) error { r.Header = nil; return nil }, false},
		"the route takes it away":  {http.Header{"Authorization": nil}, "", nil, false},
		"of several, one is empty": {http.Header{"Authorization": {""}, "Api-Key": {"k"}}, "", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := rewriter(t, Route{URL: "https://b.example" + tc.query, Header: tc.header, Rewrite: tc.hook, RequireCredential: true})
			err := r.Rewrite(1, request(t, "GET", "https://p.example/", "", "Authorization", "Bearer p"))
			if got := err == nil; got != tc.want || err != nil && !errors.Is(err, ErrNoCredential) {
				t.Errorf("error %v, want a credential found: %v", err, tc.want)
			}
		})
	}
}

func TestHeader(t *testing.T) {
	req := request(t, "GET", "https://p.example/", "", "A", "1", "A", "2", "B", "1", "C", "1")
	req.Header["a"] = []string{"raw"}
	values := []string{"x", "y"}
	route := Route{Header: http.Header{"a": values, "B": nil, "host": {"virtual.example"}}}
	r := rewriter(t, route)
	if err := r.Rewrite(1, req); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(http.Header{"A": {"x", "y"}, "C": {"1"}}, req.Header); diff != "" || req.Host != "virtual.example" {
		t.Errorf("Host %s, (-want +got):\n%s", req.Host, diff)
	}
	req.Header["A"][0] = "changed" // not the route's own slice
	values[1] = "changed"
	again := request(t, "GET", "https://p.example/", "")
	if err := r.Rewrite(1, again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"x", "y"}, again.Header["A"]); diff != "" {
		t.Errorf("the second request (-want +got):\n%s", diff)
	}
}

func TestRewriteHook(t *testing.T) {
	boom := errors.New("boom")
	t.Run("runs last and may replace the body", func(t *testing.T) {
		r := rewriter(t, Route{URL: "https://b.example", Model: "b", Header: http.Header{"X": {"1"}}, Rewrite: func(req *http.Request) error {
			body, err := io.ReadAll(req.Body)
			if err != nil || string(body) != `{"model":"b"}` || req.Header.Get("X") != "1" || req.URL.Host != "b.example" {
				t.Errorf("the hook sees %s, %v, %v", body, req.Header, req.URL)
			}
			req.Body = io.NopCloser(strings.NewReader("other"))
			req.ContentLength = 5
			return nil
		}})
		req := request(t, "POST", "https://p.example/", `{"model":"p"}`)
		if err := r.Rewrite(1, req); err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(req.Body); string(b) != "other" || req.ContentLength != 5 {
			t.Errorf("body %s", b)
		}
	})
	t.Run("its error is Rewrite's", func(t *testing.T) {
		r := rewriter(t, Route{Rewrite: func(*http.Request) error { return boom }})
		if err := r.Rewrite(1, request(t, "GET", "https://p.example/", "")); !errors.Is(err, boom) {
			t.Error(err)
		}
	})
	t.Run("its panic is an error", func(t *testing.T) {
		r := rewriter(t, Route{Rewrite: func(*http.Request) error { panic(boom) }})
		err := r.Rewrite(1, request(t, "GET", "https://p.example/", ""))
		var p *PanicError
		if !errors.As(err, &p) || p.Hook != "Rewrite" || !errors.Is(err, boom) {
			t.Error(err)
		}
	})
	t.Run("it may leave no URL", func(t *testing.T) {
		r := rewriter(t, Route{Rewrite: func(req *http.Request) error { req.URL = nil; return nil }})
		if err := r.Rewrite(1, request(t, "GET", "https://p.example/", "")); err == nil {
			t.Error("no error")
		}
	})
	t.Run("moving to another origin, it does not take the caller's credentials along", func(t *testing.T) {
		r := rewriter(t, Route{Header: http.Header{"Cookie": {"kept=1"}}, Rewrite: func(req *http.Request) error {
			req.URL.Host = "b.example"
			req.Header.Set("X-Api-Key", "B")
			q := req.URL.Query()
			q.Set("token", "B")
			req.URL.RawQuery = q.Encode()
			return nil
		}})
		req := request(t, "GET", "https://u:p@p.example/?key=P&a=1", "", "Authorization", "Bearer P", "X-Api-Key", "P", "Cookie", "P=1", "A", "1")
		if err := r.Rewrite(1, req); err != nil {
			t.Fatal(err)
		}
		want := http.Header{"X-Api-Key": {"B"}, "Cookie": {"kept=1"}, "A": {"1"}}
		if diff := cmp.Diff(want, req.Header); diff != "" || req.URL.String() != "https://b.example/?a=1&token=B" {
			t.Errorf("%s (-want +got):\n%s", req.URL, diff)
		}
	})
}

func TestRewriteWithoutAURL(t *testing.T) {
	r := rewriter(t, Route{URL: "https://b.example"})
	if err := r.Rewrite(1, &http.Request{}); err == nil {
		t.Error("no error")
	}
	req := request(t, "GET", "https://p.example/", "")
	req.Header = nil
	if err := r.Rewrite(1, req); err != nil {
		t.Error(err)
	}
}

func TestPlain(t *testing.T) {
	for name, tc := range map[string]struct {
		route Route
		want  bool
	}{
		"a name":       {Route{Name: "x"}, true},
		"a quota":      {Route{Quota: "x"}, true},
		"an empty map": {Route{Name: "x", Header: http.Header{}, Body: map[string]any{}}, true},
		"a URL":        {Route{URL: "https://b.example"}, false},
		"a header":     {Route{Name: "x", Header: http.Header{"A": nil}}, false},
		"a host":       {Route{Name: "x", Header: http.Header{"Host": {"h"}}}, false},
		"a model":      {Route{Name: "x", Model: "m"}, false},
		"a body field": {Route{Name: "x", Body: map[string]any{"a": nil}}, false},
		"a hook":       {Route{Name: "x", Rewrite: func(*http.Request) error { return nil }}, false},
		"a credential": {Route{Name: "x", RequireCredential: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, Settings{}, tc.route)
			if r.Plain(1) != tc.want {
				t.Errorf("Plain = %v", !tc.want)
			}
			req := request(t, "POST", "https://p.example/", `not json`, "Authorization", "x")
			before := req.Clone(t.Context())
			if err := r.Rewrite(0, req); err != nil || !cmp.Equal(before.Header, req.Header) || *before.URL != *req.URL {
				t.Errorf("a plain route changed the request: %v", err)
			}
		})
	}
}

// A paid POST keeps its key on the backup (Comfy-Org/ComfyUI#16204,
// pleaseai/shunt#126): the router's half.
func TestFieldReport_F5(t *testing.T) {
	r := rewriter(t, Route{URL: "https://b.example", Model: "b"})
	req := request(t, "POST", "https://p.example/v1", `{}`, "Idempotency-Key", "once")
	if err := r.Rewrite(1, req); err != nil || req.Header.Get("Idempotency-Key") != "once" {
		t.Errorf("%v, %v", err, req.Header)
	}
}

func TestSetBody(t *testing.T) {
	t.Run("renews length and replay", func(t *testing.T) {
		req := request(t, "POST", "https://p.example/", `{"model":"a-long-name"}`, "Content-Digest", "x", "Content-Length", "23")
		req.TransferEncoding = []string{"chunked"}
		closed := false
		req.Body = closer{req.Body, func() { closed = true }}
		if err := rewriter(t, Route{Model: "b"}).Rewrite(1, req); err != nil {
			t.Fatal(err)
		}
		first, _ := io.ReadAll(req.Body)
		again, _ := req.GetBody()
		second, _ := io.ReadAll(again)
		if string(first) != `{"model":"b"}` || !bytes.Equal(first, second) || req.ContentLength != int64(len(first)) || !closed || len(req.Header) != 0 || req.TransferEncoding != nil {
			t.Errorf("%s, %s, length %d, closed %v, %v", first, second, req.ContentLength, closed, req.Header)
		}
	})
	t.Run("no body stays none", func(t *testing.T) {
		for _, body := range []io.ReadCloser{nil, http.NoBody, io.NopCloser(strings.NewReader(""))} {
			req := request(t, "GET", "https://p.example/models", "")
			req.Body = body
			if err := rewriter(t, Route{Model: "b"}).Rewrite(1, req); err != nil || req.ContentLength != 0 {
				t.Errorf("%v", err)
			}
		}
	})
	for name, body := range map[string]string{
		"text": "hello", "an array": `[{"model":"a"}]`, "a string": `"x"`, "null": "null", "white space": " ",
		"cut off": `{"model":`, "cut off in a string": `{"a":"b`, "cut off after a value": `{"a":1`, "two objects": `{}{}`,
		"a trailing comma": `{"a":1,}`, "multipart": "--x\r\n", "no colon": `{"a" 1}`,
	} {
		t.Run(name+" is an error", func(t *testing.T) {
			req := request(t, "POST", "https://p.example/", body)
			err := rewriter(t, Route{Model: "b"}).Rewrite(1, req)
			if !errors.Is(err, ErrNotJSON) || !strings.HasPrefix(err.Error(), `escalate: route "B": body is not a JSON object`) {
				t.Errorf("%v", err)
			}
			if left, _ := io.ReadAll(req.Body); string(left) != body {
				t.Errorf("the body became %q", left)
			}
		})
	}
	t.Run("an encoded body is an error", func(t *testing.T) {
		req := request(t, "POST", "https://p.example/", "\x1f\x8b", "Content-Encoding", "gzip")
		if err := rewriter(t, Route{Model: "b"}).Rewrite(1, req); !errors.Is(err, ErrNotJSON) || !strings.Contains(err.Error(), "gzip") {
			t.Errorf("%v", err)
		}
	})
	t.Run("identity is no encoding", func(t *testing.T) {
		req := request(t, "POST", "https://p.example/", "{}", "Content-Encoding", "identity")
		if err := rewriter(t, Route{Model: "b"}).Rewrite(1, req); err != nil {
			t.Error(err)
		}
	})
	t.Run("a body that fails is an error", func(t *testing.T) {
		req := request(t, "POST", "https://p.example/", "x")
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), failing{}))
		if err := rewriter(t, Route{Model: "b"}).Rewrite(1, req); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v", err)
		}
	})
}

type closer struct {
	io.Reader
	close func()
}

func (c closer) Close() error { c.close(); return nil }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
