package main

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A network is where providers stand: loopback here; in tests also in memory, on
// virtual time. It returns the base URL of each and a transport that reaches them,
// made for that many goroutines. stop ends all of it.
type network func(goroutines int, providers ...*metertest.Provider) (urls []string, base http.RoundTripper, stop func(), err error)

// loopback serves each provider on a port of its own.
func loopback(goroutines int, providers ...*metertest.Provider) (urls []string, base http.RoundTripper, stop func(), err error) {
	// http.DefaultTransport keeps two idle connections to a host; with a hundred
	// goroutines the other ninety-eight would dial anew for every call.
	transport := &http.Transport{
		MaxIdleConns:        goroutines * len(providers),
		MaxIdleConnsPerHost: goroutines,
		IdleConnTimeout:     time.Minute,
	}
	var servers []*http.Server
	stop = func() {
		transport.CloseIdleConnections()
		for _, s := range servers {
			s.Close()
		}
	}
	for _, p := range providers {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			stop()
			return nil, nil, nil, fmt.Errorf("fleet: a provider on loopback: %w", err)
		}
		server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
		servers = append(servers, server)
		urls = append(urls, "http://"+listener.Addr().String())
		go func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				log.Printf("fleet: a provider on loopback: %v", err)
			}
		}()
	}
	return urls, transport, stop, nil
}

// wire is the transport below a client. It counts what passes.
type wire struct {
	base     http.RoundTripper
	sent     atomic.Int64
	underWay atomic.Int64 // sent and not yet answered
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.sent.Add(1)
	w.underWay.Add(1)
	defer w.underWay.Add(-1)
	return w.base.RoundTrip(req)
}
