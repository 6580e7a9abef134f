package llm

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"

	"github.com/meteredhttp/meteredhttp/middleware"
)

// Key names the budget of a request: the origin, a hash of the credential (in a
// header as middleware.KeyByCredential looks for it, or Google's key parameter),
// and the model, since that is what providers set their limits by. It fits
// middleware.PaceConfig.Key; an Estimator's Charge has it already, without a
// second look at the body.
//
// The model is taken from the URL where the provider has it there (Gemini,
// Vertex, Bedrock, Azure), else from the body, which is read from GetBody up to
// where the model is named.
func Key(req *http.Request) string {
	model := modelInPath(req.URL)
	if model == "" && hasBody(req) && !strings.HasPrefix(req.Header.Get("Content-Type"), "multipart/") {
		l := look{scanner: scanner{window: make([]byte, windowSize)}, modelOnly: true}
		l.open(req)
		model = l.model
	}
	return keyOf(req, model)
}

func keyOf(req *http.Request, model string) string {
	key := middleware.KeyByCredential(req)
	if strings.Contains(req.URL.RawQuery, "key=") && !strings.Contains(key, "#") {
		if v := req.URL.Query().Get("key"); v != "" {
			sum := sha256.Sum256([]byte("key\x00" + v))
			key += "#" + hex.EncodeToString(sum[:8])
		}
	}
	if model == "" {
		return key
	}
	return key + " " + model
}

// maxModel is how long a model's name may be in a URL: as long as Bedrock's.
const maxModel = 2048

// modelInPath returns the model that a URL names, or "". Bedrock's may be an ARN
// with a slash in it, which is escaped.
func modelInPath(u *url.URL) string {
	for _, p := range [...]struct{ before, after string }{
		{"/models/", ":"},      // Gemini, Vertex
		{"/model/", "/"},       // Bedrock
		{"/deployments/", "/"}, // Azure
		{"/endpoints/", ":"},   // Vertex
	} {
		path, escaped := u.Path, u.RawPath != "" && p.after == "/"
		if escaped {
			path = u.EscapedPath()
		}
		if _, rest, ok := strings.Cut(path, p.before); ok {
			if model, _, ok := strings.Cut(rest, p.after); ok && model != "" && len(model) <= maxModel {
				if plain, err := url.PathUnescape(model); escaped && err == nil {
					return plain
				}
				return model
			}
		}
	}
	return ""
}
