package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// serve serves h until ctx is done; then it takes no more calls, and returns when
// those that are under way have ended: queued, answered, or streamed to their end.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	// No WriteTimeout: a stream may last.
	server := &http.Server{Handler: h, ReadHeaderTimeout: 30 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("sidecar: %w", err)
	case <-ctx.Done():
	}
	if err := server.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("sidecar: %w", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("sidecar: %w", err)
	}
	return nil
}
