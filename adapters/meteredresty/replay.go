package meteredresty

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/go-resty/resty/v2"
)

// replay keeps the body of a call whole through resty's attempts. Resty makes
// the HTTP request anew each time; of a body that it reads from an io.Reader
// the first attempt leaves nothing, or part of it, for the next. But it keeps
// the bytes of the newest attempt, in the GetBody of the HTTP request.
type replay struct {
	reader  any // the Request's Body, as it was at first
	instead any // what stands in its place until the attempt is sent

	mu   sync.Mutex // for form: a hedge above may send twice at once
	form form
}

// form is a multipart body, which resty reads from readers of its own.
type form struct {
	getBody     func() (io.ReadCloser, error)
	contentType string
	size        int64
}

// again prepares r for another attempt: if its Body is the reader of the first
// attempt, and nobody has rewound it, what that attempt sent takes its place.
func (p *replay) again(r *resty.Request) error {
	last := r.RawRequest
	body, ok := r.Body.(io.Reader)
	if !ok || !same(r.Body, p.reader) || last == nil || last.GetBody == nil {
		return nil
	}
	if b, ok := body.(interface{ Len() int }); ok && last.ContentLength > 0 && int64(b.Len()) >= last.ContentLength {
		return nil
	}
	rc, err := last.GetBody()
	if err != nil {
		return fmt.Errorf("meteredresty: the request's body cannot be sent again: %w", err)
	}
	p.instead = &replayed{rc}
	if last.ContentLength > 0 { // as before, a body of known length
		defer rc.Close()
		b, err := io.ReadAll(rc)
		if err != nil {
			return fmt.Errorf("meteredresty: the request's body cannot be sent again: %w", err)
		}
		p.instead = bytes.NewReader(b)
	}
	r.Body = p.instead
	return nil
}

type replayed struct{ io.ReadCloser }

// finish forgets what was kept, and gives r its Body back.
func (p *replay) finish(r *resty.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restore(r)
	p.form = form{}
}

// restore gives r its Body back: hooks know what it is.
func (p *replay) restore(r *resty.Request) {
	if p.instead != nil && same(r.Body, p.instead) {
		r.Body = p.reader
	}
	p.instead = nil
}

// same reports whether a and b are one reader, as far as that can be told.
func same(a, b any) bool {
	if a == nil || b == nil || reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	return !reflect.TypeOf(a).Comparable() || a == b
}

// outgoing returns req with the whole body. That is req itself, unless it is
// another attempt at a multipart body whose parts have been read up meanwhile.
func (c *call) outgoing(req *http.Request) (*http.Request, error) {
	if !c.loops {
		return req, nil // there is no other attempt
	}
	p := &c.replay
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restore(c.request)
	contentType := req.Header.Get("Content-Type")
	if req.Body == nil || req.GetBody == nil || !multipart(contentType) {
		return req, nil
	}
	if p.form.getBody == nil {
		p.form = form{req.GetBody, contentType, req.ContentLength}
		return req, nil
	}
	if req.ContentLength >= p.form.size {
		return req, nil
	}
	body, err := p.form.getBody()
	req.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("meteredresty: the request's body cannot be sent again: %w", err)
	}
	r := req.WithContext(req.Context())
	r.Header = req.Header.Clone()
	r.Header.Set("Content-Type", p.form.contentType)
	r.Body, r.GetBody, r.ContentLength = body, p.form.getBody, p.form.size
	return r, nil
}

func multipart(contentType string) bool {
	const name = "multipart/form-data"
	return len(contentType) >= len(name) && strings.EqualFold(contentType[:len(name)], name)
}
