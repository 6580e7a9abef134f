package main

import (
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/meteredhttp/meteredhttp/middleware"
)

// logging is somebody's layer that logs what passes: method, path, status, the
// time to the headers and the trace. It holds the contract of a RoundTripper, and
// so can stand anywhere in a chain.
func logging(l *slog.Logger) middleware.Middleware {
	return func(next http.RoundTripper) http.RoundTripper { return &logged{next, l} }
}

type logged struct {
	next   http.RoundTripper
	logger *slog.Logger
}

func (l *logged) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := l.next.RoundTrip(req)
	log := l.logger.With("method", req.Method, "path", req.URL.Path, "took", time.Since(began))
	if span := trace.SpanContextFromContext(req.Context()); span.IsValid() {
		log = log.With("trace", span.TraceID())
	}
	if err != nil {
		log.WarnContext(req.Context(), "failed", "error", err)
		return nil, err
	}
	log.InfoContext(req.Context(), "answered", "status", resp.StatusCode)
	return resp, nil
}

// CloseIdleConnections hands the call on, as a layer must.
func (l *logged) CloseIdleConnections() {
	if c, ok := l.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
