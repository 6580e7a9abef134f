package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

func TestTheNaiveClientSendsTheSameAgainAfterAFixedSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{Script: []metertest.Answer{
			metertest.Reply(http.StatusTooManyRequests, "no", "Retry-After", "30"),
			metertest.Reply(http.StatusServiceUnavailable, "no"),
			metertest.Reply(http.StatusOK, "yes"),
		}})
		client := &http.Client{Transport: naiveRetry{base: p.Transport(), wait: time.Second}}
		began := time.Now()
		resp, err := client.Post("http://api.test/", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); string(body) != "yes" {
			t.Errorf("the answer is %q", body)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %v, want two waits of a second", took)
		}
		for i, e := range p.Ledger() {
			if e.BodyLen != int64(len("body")) {
				t.Errorf("send %d had a body of %d bytes", i, e.BodyLen)
			}
		}
		if n := p.OpenBodies(); n > 1 {
			t.Errorf("%d bodies are open, want the last one", n)
		}
	})
}

func TestTheNaiveClientStopsWhenItsCallerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		p.SetStatus(http.StatusTooManyRequests)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		err := send(ctx, &http.Client{Transport: naiveRetry{base: p.Transport(), wait: time.Second}}, "http://api.test", job{})
		if !errors.Is(err, context.DeadlineExceeded) || p.Hits() != 3 {
			t.Errorf("%v after %d sends", err, p.Hits())
		}
	})
}
