package middleware

import (
	"net/http"
	"time"

	"github.com/meteredhttp/meteredhttp/internal/readahead"
)

// What is read of an answer that is thrown away, so that its connection can be
// used again, and what is looked at of a refused answer's body: no more bytes,
// and no longer, than this. RefusedError.Body holds at most peekBytes.
const (
	peekBytes  = 64 << 10
	drainBytes = 64 << 10 // beyond what was peeked at
	drainTime  = 500 * time.Millisecond
)

// peekedBody is an answer's body that has been looked at: the server may still be
// in the middle of sending it.
type peekedBody struct {
	readahead.Body
	slow bool // it has been waited for long enough
}

// peeked returns resp's body as one that can be looked at.
func peeked(resp *http.Response) *peekedBody {
	b, ok := resp.Body.(*peekedBody)
	if !ok {
		b = &peekedBody{Body: readahead.Of(resp.Body)}
	}
	return b
}

// peek reads a prefix of resp.Body, bounded in bytes and time, and puts it
// back. The returned bytes must not be changed.
func peek(resp *http.Response) []byte {
	if resp.Body == http.NoBody {
		return nil
	}
	b := peeked(resp)
	resp.Body = b
	b.fill(peekBytes)
	return b.Head()
}

// discard drains resp.Body within bounds and closes it.
func discard(resp *http.Response) {
	if resp.Body == http.NoBody {
		return
	}
	b := peeked(resp)
	b.fill(len(b.Head()) + drainBytes)
	b.Close()
}

// fill reads ahead until n bytes are here, the body ends, or drainTime is over;
// that is spent once.
func (b *peekedBody) fill(n int) {
	if b.Err() != nil || b.slow || len(b.Head()) >= n {
		return
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	for len(b.Head()) < n && b.Err() == nil {
		if !b.More(min(n-len(b.Head()), 8<<10), timer.C, nil) {
			b.slow = true
			return
		}
	}
}
