package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A network is where the demonstration's provider stands: loopback here; in tests in
// memory, on virtual time.
type network func(p *metertest.Provider) (url string, base http.RoundTripper, stop func(), err error)

func loopback(p *metertest.Provider) (string, http.RoundTripper, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, nil, fmt.Errorf("batch: a provider on loopback: %w", err)
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // until it is closed
	}()
	transport := &http.Transport{MaxIdleConnsPerHost: demoWorkers}
	return "http://" + l.Addr().String() + "/jobs", transport, func() {
		transport.CloseIdleConnections()
		server.Close()
		<-ended
	}, nil
}

// What the demonstration's provider allows: a second's worth at once.
const (
	demoJobs    = 240
	demoRPM     = 1_200
	demoTPM     = 600_000
	demoWorkers = 20
	demoLatency = 200 * time.Millisecond
)

// demonstrate runs a batch, interrupts it half-way, and resumes it.
func demonstrate(ctx context.Context, b batch, network network) error {
	p := metertest.New(metertest.Config{
		Requests: demoRPM, Tokens: demoTPM, RequestBurst: demoRPM / 60, TokenBurst: demoTPM / 60,
		Latency: demoLatency, RefusedLatency: demoLatency / 10,
		Cost: func(_ *http.Request, body []byte) int64 {
			var j struct{ Tokens int64 }
			_ = json.Unmarshal(body, &j) // what is not JSON costs nothing
			return j.Tokens
		},
	})
	dir, err := os.MkdirTemp("", "batch")
	if err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	defer os.RemoveAll(dir)
	url, base, stop, err := network(p)
	if err != nil {
		return err
	}
	defer stop()
	b.options = options{
		journal: filepath.Join(dir, "journal"), results: filepath.Join(dir, "results.jsonl"),
		url: url, rpm: demoRPM, tpm: demoTPM, burst: time.Second, headroom: middleware.DefaultHeadroom,
		workers: demoWorkers, latency: demoLatency,
	}
	b.jobs, b.base = demoBatch(demoJobs), base

	fmt.Fprintf(b.stdout, "A provider of %s requests and %s tokens per minute, a second's worth at once.\n\n", comma(demoRPM), comma(demoTPM))
	half, interrupt := context.WithCancel(ctx)
	defer interrupt()
	b.answered = func(n int) {
		if n == demoJobs/2 {
			interrupt()
		}
	}
	if err := b.run(half); !errors.Is(err, errInterrupted) || ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	fmt.Fprintf(b.stdout, "\nInterrupted in the middle. The same command again:\n\n")
	b.answered = nil
	if err := b.run(ctx); err != nil {
		return err
	}
	fmt.Fprintf(b.stdout, "\nThe provider has carried out %s calls, for %s jobs.\n", comma(p.Served()), comma(demoJobs))
	if p.Served() != demoJobs {
		return errors.New("batch: a job was sent twice, or not at all")
	}
	return nil
}

// demoBatch returns n jobs, always the same.
func demoBatch(n int) []job {
	draw := rand.New(rand.NewPCG(1, 0))
	jobs := make([]job, n)
	for i := range jobs {
		tokens := 200 + draw.Int64N(700)
		jobs[i] = job{fmt.Sprintf("job-%03d", i+1), bucket.Cost{Requests: 1, InputTokens: tokens}, fmt.Appendf(nil, `{"tokens":%d}`, tokens)}
	}
	return jobs
}
