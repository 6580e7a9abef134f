package meteredredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// store is the script on an engine. Each call is bounded in time, whatever the client library does.
type store struct {
	client  redis.UniversalClient
	hash    string // of the script
	timeout time.Duration
	gate    chan struct{} // has a token for each call under way that was not given up
	stuck   atomic.Int64  // calls that were given up and have not returned
}

// mostStuck is how many calls may hang: each holds a goroutine.
const mostStuck = 1000

// newStore returns the script on client. As many calls may be under way as client has connections, if that is known:
// a wait for one of them is not the store's fault.
func newStore(client redis.UniversalClient, timeout time.Duration) store {
	wide := 64
	if c, ok := client.(interface{ Options() *redis.Options }); ok && c.Options().PoolSize > 0 {
		wide = c.Options().PoolSize
	}
	return store{client: client, hash: redis.NewScript(source).Hash(), timeout: timeout, gate: make(chan struct{}, wide)}
}

// enter waits until one more call may be under way; leave ends one.
func (s *store) enter() { s.gate <- struct{}{} }
func (s *store) leave() { <-s.gate }

var errTimeout = errors.New("meteredredis: the store did not answer")

// once is a command that is never sent twice by the client on its own: a call that timed out may have
// happened.
type once struct{ *redis.IntSliceCmd }

// NoRetry is what the client asks before it sends a command again.
func (once) NoRetry() bool { return true }

// decide runs the script on one budget, and gives up when the time is over.
func (s *store) decide(name string, b *batch) (reply, error) {
	type answer struct {
		r   reply
		err error
	}
	got := make(chan answer, 1)
	var over atomic.Bool // the call, or the wait for it
	go func() {
		r, err := s.eval(name, b)
		got <- answer{r, err}
		if !over.CompareAndSwap(false, true) {
			s.stuck.Add(-1)
		}
	}()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case a := <-got:
		return a.r, a.err
	case <-timer.C:
		if over.CompareAndSwap(false, true) {
			s.stuck.Add(1)
		}
		return reply{}, s.silent()
	}
}

// silent is the error of a call without an answer.
func (s *store) silent() error { return fmt.Errorf("%w within %v", errTimeout, s.timeout) }

// eval runs the script by its hash, and by its text where the engine does not have it.
// It takes as long as the client library does.
func (s *store) eval(name string, b *batch) (r reply, err error) {
	if s.stuck.Load() >= mostStuck {
		return reply{}, fmt.Errorf("%w: %d calls hang", errTimeout, mostStuck)
	}
	defer func() {
		if p := recover(); p != nil { // of a client library, or of a hook in it
			err = fmt.Errorf("meteredredis: the client panicked: %v", p)
		}
	}()
	argument := b.argument()
	words, err := s.send("evalsha", s.hash, 1, name, argument)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		words, err = s.send("eval", source, 1, name, argument)
	}
	if err != nil {
		return reply{}, err
	}
	return parseReply(words, b.speaker.limits)
}

func (s *store) send(args ...any) ([]int64, error) {
	ctx := context.Background() // the client's own timeouts end it; whoever waits gives up sooner
	cmd := once{redis.NewIntSliceCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3)
	if err := s.client.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// ofKey reports whether err is about one key, and not about the store.
func ofKey(err error) bool {
	text := err.Error()
	if strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "METEREDLAYOUT") {
		return true
	}
	// What is in the hash cannot be read. An engine before 7.0 says so of all that a script meets.
	return strings.HasPrefix(text, "ERR user_script") ||
		strings.HasPrefix(text, "ERR Error running script") && !strings.Contains(text, ": -")
}
