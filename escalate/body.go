package escalate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// field is a top-level field to set, name and value ready as JSON.
type field struct {
	name       string
	key, value json.RawMessage
}

// setBody sets the fields in req's JSON body and renews ContentLength and
// GetBody. A request without a body, or with an empty one, is left alone: a GET
// on a route with a Model is no mistake.
func setBody(req *http.Request, fields []field) error {
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	if coding := strings.TrimSpace(req.Header.Get("Content-Encoding")); coding != "" && !strings.EqualFold(coding, "identity") {
		return fmt.Errorf("%w: it is encoded as %s", ErrNotJSON, coding)
	}
	old, err := io.ReadAll(req.Body)
	if e := req.Body.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("reading the body: %w", err)
	}
	body := old
	if len(old) > 0 {
		if body, err = setFields(old, fields); err != nil {
			body = old // as it was, for whoever looks at the request
		}
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.ContentLength = int64(len(body))
	if len(body) == 0 {
		req.Body, req.GetBody = http.NoBody, func() (io.ReadCloser, error) { return http.NoBody, nil }
	}
	req.TransferEncoding = nil
	if !bytes.Equal(body, old) {
		for _, name := range []string{"Content-Length", "Content-Md5", "Content-Digest", "Repr-Digest", "Digest"} {
			delete(req.Header, name) // of the old body
		}
	}
	return err
}

// setFields returns body, a JSON object, with the top-level fields set. The
// value of a field that is there is replaced where it stands, at each place if
// the name stands there twice; others are added at the end, in the order of
// fields. All other bytes stay as they are: order, white space, unknown fields,
// numbers of any length. body itself is not changed.
func setFields(body []byte, fields []field) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, notJSON(err)
	}
	var (
		out   = make([]byte, 0, len(body)+extra(fields))
		found = make([]bool, len(fields))
		kept  = 0 // body[:kept] is in out
		empty = true
		value json.RawMessage
	)
	for dec.More() {
		empty = false
		key, err := dec.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		if err := dec.Decode(&value); err != nil {
			return nil, notJSON(err)
		}
		for i, f := range fields {
			if f.name == key {
				end := int(dec.InputOffset())
				out = append(out, body[kept:end-len(value)]...)
				out = append(out, f.value...)
				kept, found[i] = end, true
			}
		}
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, notJSON(err)
	}
	brace := int(dec.InputOffset()) - 1
	if rest := bytes.Trim(body[brace+1:], " \t\r\n"); len(rest) > 0 {
		return nil, fmt.Errorf("%w: something follows the object", ErrNotJSON)
	}
	// Added fields go right after the last value, before any white space.
	last := len(bytes.TrimRight(body[:brace], " \t\r\n"))
	out = append(out, body[kept:last]...)
	for i, f := range fields {
		if found[i] {
			continue
		}
		if !empty {
			out = append(out, ',')
		}
		empty = false
		out = append(out, f.key...)
		out = append(out, ':')
		out = append(out, f.value...)
	}
	return append(out, body[last:]...), nil
}

func notJSON(err error) error {
	switch err {
	case nil:
		return ErrNotJSON
	case io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", ErrNotJSON, err)
}

func extra(fields []field) (n int) {
	for _, f := range fields {
		n += len(f.key) + len(f.value) + 2
	}
	return n
}
