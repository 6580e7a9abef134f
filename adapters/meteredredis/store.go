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
	script  *redis.Script
	timeout time.Duration
	stuck   atomic.Int64 // calls that were given up and have not come back
}

// mostStuck is how many calls may be given up and not come back before no more are made.
const mostStuck = 16

var errTimeout = errors.New("meteredredis: the store did not answer in time")

// A take is a command that is never sent twice by the client on its own: a call that timed out may have
// happened.
type take struct{ *redis.Cmd }

// NoRetry is what the client asks before it sends a command again.
func (take) NoRetry() bool { return true }

// decide runs the script on one budget.
func (s *store) decide(ctx context.Context, name string, b *batch) (reply, error) {
	if s.stuck.Load() >= mostStuck {
		return reply{}, fmt.Errorf("%w: %d calls hang", errTimeout, mostStuck)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	args := b.args()
	s.stuck.Add(1)
	go func() {
		defer cancel()
		defer s.stuck.Add(-1)
		text, err := s.eval(ctx, name, args)
		got <- answer{text, err}
	}()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case a := <-got:
		if a.err != nil {
			return reply{}, a.err
		}
		return parseReply(a.text, len(b.limits))
	case <-timer.C:
		cancel()
		return reply{}, errTimeout
	}
}

// eval runs the script by its hash, and by its text where the engine does not have it.
func (s *store) eval(ctx context.Context, name string, args []any) (text string, err error) {
	defer func() {
		if p := recover(); p != nil { // of a client library, or of a hook in it
			err = fmt.Errorf("meteredredis: the client panicked: %v", p)
		}
	}()
	text, err = s.send(ctx, "evalsha", s.script.Hash(), name, args)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		text, err = s.send(ctx, "eval", source, name, args)
	}
	return text, err
}

func (s *store) send(ctx context.Context, verb, script, name string, args []any) (string, error) {
	all := make([]any, 0, 4+len(args))
	all = append(append(all, verb, script, 1, name), args...)
	cmd := take{redis.NewCmd(ctx, all...)}
	cmd.SetFirstKeyPos(3)
	if err := s.client.Process(ctx, cmd); err != nil {
		return "", err
	}
	return cmd.Text()
}

// ofKey reports whether err is about one key, and not about the store.
func ofKey(err error) bool {
	return strings.HasPrefix(err.Error(), "WRONGTYPE") || strings.Contains(err.Error(), "METEREDLAYOUT") ||
		strings.Contains(err.Error(), "WRONGTYPE")
}
