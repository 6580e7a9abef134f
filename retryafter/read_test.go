package retryafter

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// tracked is a body that counts what is done to it.
type tracked struct {
	io.Reader
	read   int
	closed int
}

func (b *tracked) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *tracked) Close() error { b.closed++; return nil }

func answer(host string, status int, h http.Header, body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: status, Header: h, Body: &tracked{Reader: body},
		Request: &http.Request{URL: &url.URL{Scheme: "https", Host: host, Path: "/v1"}},
	}
}

func mustRead(t *testing.T, resp *http.Response, want string) {
	t.Helper()
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != want {
		t.Errorf("body %.80q, %v; want %.80q", got, err, want)
	}
}

func TestReadPutsTheBodyBackByteForByte(t *testing.T) {
	head := `{"error":{"type":"insufficient_quota","message":"`
	for _, test := range []struct {
		name string
		body string
		wrap func(io.Reader) io.Reader
	}{
		{"an empty body", "", nil},
		{"a short body", head + `"}}`, nil},
		{"a body byte by byte", head + `"}}`, iotest.OneByteReader},
		{"a body whose end comes with its data", head + `"}}`, iotest.DataErrReader},
		{"a body of exactly the limit", head + strings.Repeat("x", BodyLimit-len(head)), nil},
		{"a body one byte over", head + strings.Repeat("x", BodyLimit-len(head)+1), nil},
		{"a large body", head + strings.Repeat("x", 10*BodyLimit), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r io.Reader = strings.NewReader(test.body)
			if test.wrap != nil {
				r = test.wrap(r)
			}
			resp := answer("api.openai.com", 429, header(), r)
			body := resp.Body.(*tracked)
			sig := Read(resp, noon)
			if body.read > BodyLimit {
				t.Errorf("%d bytes were read", body.read)
			}
			if want := len(test.body) > 0; (sig.Class == QuotaExhausted) != want {
				t.Errorf("class %v", sig.Class)
			}
			mustRead(t, resp, test.body)
			if body.closed != 0 {
				t.Error("the body was closed")
			}
			resp.Body.Close()
			if body.closed != 1 {
				t.Errorf("Close reached the body %d times", body.closed)
			}
		})
	}
}

// endless never ends and never fails.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '['
	}
	return len(p), nil
}

func TestReadOfAnEndlessBodyIsBounded(t *testing.T) {
	resp := answer("api.openai.com", 429, header(), endless{})
	body := resp.Body.(*tracked)
	if sig := Read(resp, noon); sig.Class != RateLimited {
		t.Errorf("%+v", sig)
	}
	if body.read > BodyLimit {
		t.Errorf("%d bytes were read", body.read)
	}
}

func TestReadPutsAFaultBackWhereItWas(t *testing.T) {
	cut := errors.New("connection reset")
	resp := answer("api.openai.com", 429, header(), io.MultiReader(strings.NewReader(`{"error":{"type":"insufficient_quota"`), iotest.ErrReader(cut)))
	if sig := Read(resp, noon); sig.Class != QuotaExhausted {
		t.Errorf("%+v", sig)
	}
	got, err := io.ReadAll(resp.Body)
	if string(got) != `{"error":{"type":"insufficient_quota"` || !errors.Is(err, cut) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestReadNeverTouchesASuccessBody(t *testing.T) {
	for _, status := range []int{101, 200, 206, 304} {
		resp := answer("api.openai.com", status, openAIHeader(), strings.NewReader(`{"error":{"type":"insufficient_quota"}}`))
		body := resp.Body
		if sig := Read(resp, noon); sig.Class != OK || len(sig.Windows) != 2 {
			t.Errorf("%d: %+v", status, sig)
		}
		if resp.Body != body || body.(*tracked).read != 0 {
			t.Errorf("%d: the body was touched", status)
		}
	}
}

func TestReadLeavesTheBodyOfAnUnknownHostAlone(t *testing.T) {
	resp := answer("api.example.com", 429, header("Retry-After", "3"), iotest.ErrReader(errors.New("must not be read")))
	body := resp.Body
	if sig := Read(resp, noon); sig.Class != RateLimited || !sig.HasHint || resp.Body != body {
		t.Errorf("%+v", sig)
	}
}

func TestReadOfAnAnswerWithoutRequestOrBody(t *testing.T) {
	if sig := Read(&http.Response{StatusCode: 429}, noon); sig.Class != RateLimited {
		t.Errorf("%+v", sig)
	}
	resp := answer("api.openai.com", 429, nil, bytes.NewReader(nil))
	resp.Body = http.NoBody
	if sig := Read(resp, noon); sig.Class != RateLimited || resp.Body != http.NoBody {
		t.Errorf("%+v", sig)
	}
}
