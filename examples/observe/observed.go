package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/meteredhttp/meteredhttp/adapters/meteredotel"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A stacked is a Stack and the provider that it calls.
type stacked struct {
	*middleware.Stack
	client *http.Client
}

// What the client is told, what the provider allows, and how many call it.
const (
	toldRPM  = 1_200
	realRPM  = 600
	toldTPM  = 600_000
	tokens   = 300
	workers  = 30
	latency  = 150 * time.Millisecond
	provider = "http://provider.example/"
)

// newObserver returns an Observer whose metrics are in registry, and what ends it.
func newObserver(registry prometheus.Registerer, next middleware.Observer) (*meteredotel.Observer, func() error, error) {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, nil, fmt.Errorf("observe: %w", err)
	}
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	o, err := meteredotel.New(meteredotel.Config{MeterProvider: metrics, Next: next})
	if err != nil {
		return nil, nil, err
	}
	return o, func() error { return metrics.Shutdown(context.Background()) }, nil
}

// observed returns a Stack over a provider, with its metrics in registry. end ends
// them; the Stack goes on.
func observed(registry prometheus.Registerer, next middleware.Observer) (s stacked, end func() error, err error) {
	observer, shutdown, err := newObserver(registry, next)
	if err != nil {
		return s, nil, err
	}
	s.Stack, err = middleware.New(middleware.Config{
		Observer: observer,
		Bucket: bucket.Config{Limits: []bucket.Limit{
			{Unit: bucket.Requests, Amount: toldRPM, Per: time.Minute, Burst: toldRPM / 60},
			{Unit: bucket.Tokens, Amount: toldTPM, Per: time.Minute, Burst: toldTPM / 60},
		}},
		Pace: middleware.PaceConfig{Cost: func(*http.Request) (bucket.Cost, error) {
			return bucket.Cost{Requests: 1, InputTokens: tokens}, nil
		}},
	})
	if err != nil {
		return s, nil, errors.Join(err, shutdown())
	}
	watch, err := observer.Watch(s.Stack)
	if err != nil {
		return s, nil, errors.Join(err, shutdown())
	}
	p := metertest.New(metertest.Config{
		Requests: realRPM, RequestBurst: realRPM / 60, Latency: latency, RefusedLatency: latency / 5,
	})
	s.client = &http.Client{Transport: s.Transport(p.Transport())}
	return s, func() error { return errors.Join(watch.Unregister(), shutdown()) }, nil
}

// work makes calls until ctx is done.
func work(ctx context.Context, s stacked) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider, strings.NewReader(`{"q":1}`))
		if err != nil {
			return
		}
		resp, err := s.client.Do(req)
		if err != nil {
			continue // the metrics tell
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
