package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/meteredhttp/meteredhttp/middleware"
)

// An order names layers, the first of them outermost.
type order []string

func (o order) String() string { return strings.Join(o, " > ") }

// The orders that make sense; the first is the one to choose, and the second is
// the same with a span around the sends.
var orders = []order{
	{"oauth2", "meteredhttp", "logging", "otelhttp"},
	{"otelhttp", "oauth2", "meteredhttp", "logging", "otelhttp"},
	{"logging", "otelhttp", "oauth2", "meteredhttp"},
	{"meteredhttp", "oauth2", "logging", "otelhttp"},
}

// chain puts the layers of o over the scene's network. Written out, the order to
// choose is
//
//	middleware.Chain(transport,
//		func(next http.RoundTripper) http.RoundTripper { return &oauth2.Transport{Source: tokens, Base: next} },
//		stack.Transport,
//		logging,
//		func(next http.RoundTripper) http.RoundTripper { return otelhttp.NewTransport(next) },
//	)
func (s *scene) chain(o order, stack *middleware.Stack, tokens oauth2.TokenSource) http.RoundTripper {
	layer := map[string]middleware.Middleware{
		"meteredhttp": stack.Transport,
		"logging":     logging(s.logger),
		"oauth2": func(next http.RoundTripper) http.RoundTripper {
			return &oauth2.Transport{Source: tokens, Base: next}
		},
		"otelhttp": func(next http.RoundTripper) http.RoundTripper {
			return otelhttp.NewTransport(next, otelhttp.WithTracerProvider(s.tracing), otelhttp.WithPropagators(propagation.TraceContext{}))
		},
	}
	layers := make([]middleware.Middleware, len(o))
	for i, name := range o {
		layers[i] = layer[name]
	}
	return middleware.Chain(s.network, layers...)
}

// source returns tokens that are good for at least early more, so that a call which
// has to wait for less than that is sent again with a token that still counts. Zero
// is what oauth2 does by itself: 10 seconds.
//
// It asks config.Token, which asks the server each time: config.TokenSource keeps
// tokens itself, to the last 10 seconds, and would hand out the old one.
func source(ctx context.Context, config *clientcredentials.Config, early time.Duration) oauth2.TokenSource {
	if early == 0 {
		return config.TokenSource(ctx)
	}
	return oauth2.ReuseTokenSourceWithExpiry(nil, tokenFunc(func() (*oauth2.Token, error) { return config.Token(ctx) }), early)
}

type tokenFunc func() (*oauth2.Token, error)

func (f tokenFunc) Token() (*oauth2.Token, error) { return f() }
