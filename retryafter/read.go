package retryafter

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// BodyLimit is how much of an error body is looked at, in bytes.
const BodyLimit = 64 << 10

// Read says what an answer means, as [Source.Classify] does. Of an error body
// it reads at most BodyLimit bytes, and only where the provider's bodies say
// anything; it puts them back, so that resp.Body still gives every byte and its
// Close still closes. It never touches the body of an answer below 400.
//
// Reading waits as long as the server takes to send: bounds in time are the
// caller's, by the request's context or by closing the body.
func (s *Source) Read(resp *http.Response, now time.Time) Signal {
	var prefix []byte
	if s.ReadsBody(resp.StatusCode) && resp.Body != nil && resp.Body != http.NoBody {
		prefix = peek(resp)
	}
	return s.Classify(resp.StatusCode, resp.Header, prefix, now)
}

// peek returns the beginning of the answer's body and leaves the body whole.
func peek(resp *http.Response) []byte {
	buf := bytes.NewBuffer(make([]byte, 0, 512))
	_, err := buf.ReadFrom(io.LimitReader(resp.Body, BodyLimit))
	if err != nil {
		// The fault comes up again where it came up: after what could be read.
		resp.Body = &replayed{io.MultiReader(bytes.NewReader(buf.Bytes()), failing{err}), resp.Body}
	} else {
		resp.Body = &replayed{io.MultiReader(bytes.NewReader(buf.Bytes()), resp.Body), resp.Body}
	}
	return buf.Bytes()
}

// replayed is a body whose beginning has been read.
type replayed struct {
	io.Reader
	body io.Closer
}

func (r *replayed) Close() error { return r.body.Close() }

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
