package bench

import (
	"bytes"
	"io"
	"net/http"
)

// memory is a transport that answers from memory. It reads the request's body to
// its end and closes it, as a transport does, and allocates nothing: its answer
// is one that it made before, so it must not be used by two calls at once.
type memory struct {
	header  http.Header
	resp    http.Response
	body    replay
	scratch [2048]byte
}

func newMemory(header http.Header) *memory {
	return &memory{header: header, body: replay{content: []byte(`{"id":"1","usage":{"total_tokens":750}}`)}}
}

func (m *memory) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		if err := drain(req.Body, m.scratch[:]); err != nil {
			return nil, err
		}
	}
	m.body.rewind()
	m.resp = http.Response{
		Status: "200 OK", StatusCode: http.StatusOK,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: m.header, Body: &m.body, ContentLength: int64(len(m.body.content)), Request: req,
	}
	return &m.resp, nil
}

// drain reads body to its end and closes it.
func drain(body io.ReadCloser, scratch []byte) error {
	for {
		if _, err := body.Read(scratch); err != nil {
			if closeErr := body.Close(); err == io.EOF {
				return closeErr
			}
			return err
		}
	}
}

// replay is a body that can be used again.
type replay struct {
	bytes.Reader
	content []byte
}

func (r *replay) rewind()      { r.Reset(r.content) }
func (r *replay) Close() error { return nil }

// The headers of an answer, without limits and with OpenAI's.
func plainAnswer() http.Header {
	return http.Header{
		"Content-Type": {"application/json"},
		"Date":         {"Tue, 01 Jul 2025 12:00:00 GMT"},
		"X-Request-Id": {"req_0123456789abcdef0123456789abcdef"},
	}
}

func openAIAnswer() http.Header {
	h := plainAnswer()
	h["X-Ratelimit-Limit-Requests"] = []string{"1000000000000"}
	h["X-Ratelimit-Limit-Tokens"] = []string{"1000000000000000"}
	h["X-Ratelimit-Remaining-Requests"] = []string{"999999999999"}
	h["X-Ratelimit-Remaining-Tokens"] = []string{"999999999999250"}
	h["X-Ratelimit-Reset-Requests"] = []string{"6ms"}
	h["X-Ratelimit-Reset-Tokens"] = []string{"15ms"}
	return h
}
