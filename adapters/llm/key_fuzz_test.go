package llm

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Whatever the URL and the body: Key and an Estimator's Charge name one budget, a
// secret is not in it, and a model that the URL names is in the URL.
//
// Proved able to fail: on a body's model taken where it is named last, on the key
// parameter itself in the key, and on a model of the path cut in its middle.
func FuzzKey(f *testing.F) {
	for _, s := range []struct{ url, body string }{
		{"https://api.openai.com/v1/chat/completions", `{"messages":[{"content":"model"}],"model":"gpt-4o"}`},
		{"https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent?key=s3cret", `{"model":"no"}`},
		{"https://bedrock-runtime.us-east-1.amazonaws.com/model/arn%3Aaws%2Fx/converse", `{}`},
		{"https://x.openai.azure.com/openai/deployments/d1/chat/completions?api-version=1", ``},
		{"https://a/endpoints/1:predict", `[]`},
		{"https://a/models//model/%2F/:", `{}`},
		{"https://a/v1", `{"model":"a","model":"b"}`},
		{"https://a/v1", `{"model":"\u0061\/"}`},
		{"https://a/v1", `{"mod\u0065l":"x"`},
		{"https://a/v1", `{"model":1,"model":"x"}`},
		{"https://a/model/%25%2Fm/?key=%25", `{"model":"\ud800"}`},
	} {
		f.Add(s.url, s.body)
	}
	f.Fuzz(func(t *testing.T, text, body string) {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || counts(u.Path) { // what only counts is charged no tokens, whatever its model
			return
		}
		req, err := http.NewRequest("POST", "https://a/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.URL = u
		key := Key(req)
		var e Estimator
		if c, err := e.Charge(req); err != nil || c.Key != key {
			t.Errorf("the key is %q, charged is %q, %v", key, c.Key, err)
		}
		if model := modelInPath(u); len(model) > maxModel || !strings.Contains(u.Path, model) || model != "" && !strings.HasSuffix(key, " "+model) {
			t.Errorf("the model of %q is %q, and the key %q", text, model, key)
		}
		const secret = "s3cret-of-the-caller"
		with := *u
		with.RawQuery = "key=" + secret
		if req.URL = &with; strings.Contains(Key(req), secret) {
			t.Errorf("the key is %q", Key(req))
		}
	})
}
