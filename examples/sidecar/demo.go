package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A network is where the sidecar of the demonstration listens, and how it is
// reached: loopback here; in tests in memory, on virtual time.
type network func() (l net.Listener, dial func(ctx context.Context, network, addr string) (net.Conn, error), err error)

func loopback() (net.Listener, func(context.Context, string, string) (net.Conn, error), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	var d net.Dialer
	return l, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.DialContext(ctx, network, l.Addr().String())
	}, nil
}

// What the demonstration's provider allows in a minute, and how many agents call
// it at once.
const (
	demoRPM    = 60
	demoAgents = 60
	demoWait   = 3 * time.Second
)

// demonstrate runs sidecars before a metered provider and its backup, makes calls
// as agents make them, and says what came of each. The error is the first thing
// that went otherwise than it should.
func demonstrate(ctx context.Context, w io.Writer, network network) error {
	provider := metertest.New(metertest.Config{
		Requests: demoRPM, Dialect: metertest.OpenAI, Latency: 50 * time.Millisecond, RefusedLatency: 10 * time.Millisecond,
	})
	backup := metertest.New(metertest.Config{Latency: 50 * time.Millisecond})
	base := metertest.Hosts{"api.example.com": provider, "backup.example.com": backup}.Transport()
	o := options{
		upstream: &url.URL{Scheme: "https", Host: "api.example.com"}, rpm: demoRPM, wait: demoWait,
	}
	fmt.Fprintf(w, "A sidecar for an API of %d requests per minute. A call may wait %v for its budget.\n\n", demoRPM, demoWait)
	s, err := start(ctx, o, base, network)
	if err != nil {
		return err
	}
	defer s.stop()

	if err := demonstrateBudget(ctx, w, s, provider); err != nil {
		return err
	}

	o.backup = &url.URL{Scheme: "https", Host: "backup.example.com"}
	s, err = start(ctx, o, base, network)
	if err != nil {
		return err
	}
	defer s.stop()
	provider.Script(metertest.Reply(429, "come back in five minutes", "Retry-After", "300"))
	a := s.call(ctx)
	fmt.Fprintf(w, "refused for 5 minutes        %s, served by the backup: %t\n", a, backup.Served() == 1)
	if err := a.failure(); err != nil {
		return err
	}

	backup.Script(metertest.Answer{Events: events(5, 200*time.Millisecond)})
	a = s.callThen(ctx, s.shutdown)
	err = errors.Join(a.failure(), s.stop())
	fmt.Fprintf(w, "stopped within a stream      %s, %d of 5 events; another call is taken: %t\n", a, len(a.arrived), s.call(ctx).err == nil)
	return err
}

func demonstrateBudget(ctx context.Context, w io.Writer, s *sidecar, provider *metertest.Provider) error {
	a := s.call(ctx)
	fmt.Fprintf(w, "one call                     %s\n", a)
	if err := a.failure(); err != nil {
		return err
	}

	provider.Script(metertest.Answer{Events: events(4, 200*time.Millisecond)})
	a = s.call(ctx)
	fmt.Fprintf(w, "a stream of 4 events         %s, %s\n", a, a.manner())
	if err := a.failure(); err != nil {
		return err
	}

	provider.Script(metertest.Reply(429, "slow down", "Retry-After", "1"))
	before := provider.Hits()
	a = s.call(ctx)
	fmt.Fprintf(w, "refused once, for a second   %s, sent %d times\n", a, provider.Hits()-before)
	if err := a.failure(); err != nil {
		return err
	}

	before = provider.Refused()
	c := s.crowd(ctx)
	fmt.Fprintf(w, "%d agents at once            %d served; %d refused by the sidecar, Retry-After %s; %d by the API\n",
		demoAgents, c.served, c.refused, c.retryAfter(), provider.Refused()-before)
	if c.err != nil {
		return fmt.Errorf("sidecar: one of many calls failed: %w", c.err)
	}
	return nil
}

func events(n int, after time.Duration) (all []metertest.Event) {
	for i := range n {
		all = append(all, metertest.Event{After: after, Data: metertest.SSE("", fmt.Sprintf(`{"delta":%d}`, i))})
	}
	return all
}

// A sidecar is one that runs, and a client that calls it.
type sidecar struct {
	client   *http.Client
	shutdown func()       // begins to stop it
	stop     func() error // stops it and waits for it; repeated calls do the same
}

func start(ctx context.Context, o options, base http.RoundTripper, network network) (*sidecar, error) {
	p, err := newProxy(o, base, io.Discard)
	if err != nil {
		return nil, err
	}
	l, dial, err := network()
	if err != nil {
		return nil, fmt.Errorf("sidecar: %w", err)
	}
	transport := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: demoAgents}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = serve(ctx, l, p)
	}()
	return &sidecar{
		client:   &http.Client{Transport: transport},
		shutdown: cancel,
		stop: func() error {
			cancel()
			<-ended
			transport.CloseIdleConnections()
			return err
		},
	}, nil
}

// An answer is what became of one call.
type answer struct {
	status     int
	retryAfter string
	arrived    []time.Time // of each event of a stream
	err        error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprint(a.status)
}

// failure is nil for a call that was served.
func (a answer) failure() error {
	if a.err == nil && a.status == http.StatusOK {
		return nil
	}
	return fmt.Errorf("sidecar: a call of the demonstration was not served: %s", a)
}

// manner tells whether the events of a stream came one by one or all at once.
func (a answer) manner() string {
	if n := len(a.arrived); n < 2 || a.arrived[n-1].Sub(a.arrived[0]) < time.Duration(n-1)*100*time.Millisecond {
		return "all at once"
	}
	return "as they were sent"
}

func (s *sidecar) call(ctx context.Context) answer { return s.callThen(ctx, func() {}) }

// callThen calls, and calls began at the first event of a stream.
func (s *sidecar) callThen(ctx context.Context, began func()) (a answer) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sidecar/v1/chat/completions", strings.NewReader(`{"model":"big","stream":true}`))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	a.status, a.retryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") {
			if a.arrived = append(a.arrived, time.Now()); len(a.arrived) == 1 {
				began()
			}
		}
	}
	a.err = lines.Err()
	return a
}

// A crowd is what became of many calls at once.
type crowd struct {
	served, refused int
	soonest, latest string // Retry-After of the refused
	err             error
}

func (c crowd) retryAfter() string {
	if c.soonest == c.latest {
		return c.soonest + " s"
	}
	return c.soonest + " to " + c.latest + " s"
}

func (s *sidecar) crowd(ctx context.Context) (c crowd) {
	var mu sync.Mutex
	var agents sync.WaitGroup
	for range demoAgents {
		agents.Go(func() {
			a := s.call(ctx)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case a.err != nil:
				c.err = a.err
			case a.status == http.StatusOK:
				c.served++
			case a.status == http.StatusTooManyRequests:
				c.refused++
				if c.soonest == "" || later(c.soonest, a.retryAfter) {
					c.soonest = a.retryAfter
				}
				if later(a.retryAfter, c.latest) {
					c.latest = a.retryAfter
				}
			default:
				c.err = fmt.Errorf("status %d", a.status)
			}
		})
	}
	agents.Wait()
	return c
}

// later compares two numbers of seconds, as they stand in Retry-After.
func later(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }
