package llm

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/meteredhttp/meteredhttp/retryafter"
)

// frame is where in a message of Amazon's event stream framing the tap is: a
// prelude of the length of the whole and of the headers and a checksum, the
// headers, the payload, a checksum. The checksums are the SDK's business.
type frame struct {
	at      uint32 // bytes of the message seen
	total   uint32
	headers uint32
	prelude [preludeSize]byte
	lost    bool // it is no such stream
}

const (
	preludeSize  = 12
	checksumSize = 4
	maxFrame     = 32 << 20
)

// framed follows Amazon's event stream: payloads are documents, and an exception
// among them has its name in the headers.
func (t *tap) framed(p []byte) {
	f := &t.frame
	for len(p) > 0 && !f.lost {
		var n uint32
		switch payload := preludeSize + f.headers; {
		case f.at < preludeSize:
			n = uint32(copy(f.prelude[f.at:], p))
			if f.at+n == preludeSize {
				f.total, f.headers = binary.BigEndian.Uint32(f.prelude[:]), binary.BigEndian.Uint32(f.prelude[4:])
				f.lost = f.total > maxFrame || f.headers > f.total || f.total-f.headers < preludeSize+checksumSize
				t.sample = t.sample[:0]
				t.follow.reset()
			}
		case f.at < payload:
			n = min(payload-f.at, uint32(min(len(p), maxFrame)))
			t.keep(p[:n])
			if f.at+n == payload {
				t.exception()
			}
		case f.at < f.total-checksumSize:
			n = min(f.total-checksumSize-f.at, uint32(min(len(p), maxFrame)))
			t.follow.feed(p[:n])
		default:
			n = min(f.total-f.at, uint32(min(len(p), maxFrame)))
			if f.at+n == f.total {
				*f = frame{}
				p = p[n:]
				continue
			}
		}
		f.at += n
		p = p[n:]
	}
}

// exception looks for the name of an exception in the headers of a message,
// which are in the sample.
func (t *tap) exception() {
	_, value, ok := bytes.Cut(t.sample, []byte(":exception-type\x07"))
	if !ok || len(value) < 2 {
		return
	}
	n := int(binary.BigEndian.Uint16(value))
	if value = value[2:]; n > len(value) {
		return
	}
	switch strings.ToLower(string(value[:n])) {
	case "throttlingexception":
		t.late = retryafter.Signal{Class: retryafter.RateLimited, Retryable: true}
	case "serviceunavailableexception", "modelnotreadyexception":
		t.late = retryafter.Signal{Class: retryafter.Overloaded, Retryable: true}
	case "servicequotaexceededexception":
		t.late = retryafter.Signal{Class: retryafter.QuotaExhausted}
	case "internalserverexception", "modelstreamerrorexception", "modeltimeoutexception":
		t.late = retryafter.Signal{Class: retryafter.ServerError}
	}
}
