package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/meteredhttp/meteredhttp/adapters/llm"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// A proxy is the sidecar's handler.
type proxy struct {
	stack   *middleware.Stack
	reverse *httputil.ReverseProxy
	log     *middleware.AsyncObserver
}

// newProxy returns the proxy of o, which sends over base and logs to logs: what is
// refused, held and rerouted, nothing in a healthy fleet.
func newProxy(o options, base http.RoundTripper, logs io.Writer) (*proxy, error) {
	// Whoever reads the log slowly, or not at all, holds up no call.
	events := middleware.Async(middleware.NewSlogObserver(slog.New(slog.NewTextHandler(logs, nil))), 0)
	stack, err := newStack(o, events)
	if err != nil {
		return nil, err
	}
	first := llm.FirstEvent(llm.FirstEventConfig{Reader: o.reader()})
	target := o.upstream
	if o.backup != nil { // then the routes put their own paths before the request's
		target = &url.URL{Scheme: target.Scheme, Host: target.Host}
	}
	return &proxy{stack, &httputil.ReverseProxy{
		// Rewrite sees the request without its hop-by-hop and X-Forwarded headers;
		// the upstream does not learn who is behind the sidecar.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding") // what a call has cost is read from its answer
		},
		Transport:     lastRefusals{stack.Transport(middleware.Chain(base, first))},
		FlushInterval: -1,
		ErrorLog:      log.New(logs, "sidecar: ", log.LstdFlags),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, err error) { explain(err).write(w) },
	}, events}, nil
}

func newStack(o options, observer middleware.Observer) (*middleware.Stack, error) {
	local, err := bucket.New(bucket.Config{
		Limits:   []bucket.Limit{bucket.PerMinute(bucket.Requests, o.rpm), bucket.PerMinute(bucket.Tokens, o.tpm)},
		Headroom: middleware.DefaultHeadroom,
		LimitsFor: func(key string) []bucket.Limit {
			if key == backupQuota {
				return []bucket.Limit{} // its limits are not known: its answers tell
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	tokens, err := llm.New(llm.Config{Reader: o.reader()})
	if err != nil {
		return nil, err
	}
	c := middleware.Config{
		Limiter: patient{local, o.wait},
		// One budget for the upstream, whoever calls and for whichever model.
		Pace:     middleware.PaceConfig{Key: middleware.KeyByOrigin, Charge: tokens.Charge},
		Reader:   o.reader(),
		Observer: observer,
		// The agents are told to retry nothing, so it is done here or by nobody.
		Retry: middleware.RetryPolicy{AllMethods: true},
	}
	if o.backup != nil {
		c.Router, err = escalate.New(escalate.Config{
			Primary: escalate.Route{Name: "upstream", Quota: "upstream", URL: o.upstream.String()},
			Backups: []escalate.Route{{
				Name: "backup", Quota: backupQuota, URL: o.backup.String(), Header: o.backupHeader, Model: o.backupModel,
			}},
			RerouteLocal: true,
		})
		if err != nil {
			return nil, err
		}
	}
	return middleware.New(c)
}

const backupQuota = "backup"

// patient is a limiter whose callers bear a wait of at most that long, each time.
// They are told at once if it would be longer, by a *bucket.WaitError.
type patient struct {
	*bucket.Local
	most time.Duration
}

func (p patient) Acquire(ctx context.Context, key string, cost bucket.Cost) (bucket.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, p.most)
	defer cancel()
	return p.Local.Acquire(ctx, key, cost)
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := keepBody(r); err != nil {
		refusal{status: http.StatusBadRequest, kind: "invalid_request_error", code: "body", message: err.Error()}.write(w)
		return
	}
	p.reverse.ServeHTTP(w, r)
}

// maxKept is how much of a request is kept, so that it can be sent again: enough
// for a conversation with pictures in it.
const maxKept = 8 << 20

// keepBody reads the body of r before it waits for anything, and makes it one that
// can be sent again. A longer one is passed on while it comes, and sent once.
//
// It also has to be read for another reason: a server notices that its client has
// gone only when it has read the client's request.
func keepBody(r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > maxKept {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxKept+1))
	if err != nil {
		return errors.New("the request's body broke off")
	}
	if len(body) > maxKept {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		return nil
	}
	r.ContentLength = int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, err = r.GetBody()
	return err
}
