package meteredretryable

import (
	"bytes"
	"io"
	"reflect"
)

// inMemory returns a GetBody for a body that lies in memory as retryablehttp
// keeps them, io.NopCloser over a *bytes.Reader, or nil. A request that comes
// through StandardClient has none, if its body had none, but retryablehttp has
// read all of it. So it need not be copied again, and may be of any length.
// (net/http looks through io.NopCloser in the same way: see isKnownInMemoryReader.)
func inMemory(body io.ReadCloser) func() (io.ReadCloser, error) {
	v := reflect.ValueOf(body)
	if v.Type() != reflect.TypeOf(io.NopCloser((*bytes.Reader)(nil))) {
		return nil
	}
	r, ok := v.Field(0).Interface().(*bytes.Reader)
	if !ok || r == nil {
		return nil
	}
	start := *r
	return func() (io.ReadCloser, error) {
		r := start
		return io.NopCloser(&r), nil
	}
}
