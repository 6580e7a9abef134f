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
	stuck   atomic.Int64 // calls under way, given up or not
}

// mostStuck is how many calls may be under way: those that hang hold a goroutine each.
const mostStuck = 1000

var errTimeout = errors.New("meteredredis: the store did not answer in time")

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
	go func() {
		r, err := s.eval(name, b)
		got <- answer{r, err}
	}()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case a := <-got:
		return a.r, a.err
	case <-timer.C:
		return reply{}, errTimeout
	}
}

// eval runs the script by its hash, and by its text where the engine does not have it.
// It takes as long as the client library does.
func (s *store) eval(name string, b *batch) (r reply, err error) {
	if s.stuck.Add(1) > mostStuck {
		s.stuck.Add(-1)
		return reply{}, fmt.Errorf("%w: %d calls hang", errTimeout, mostStuck)
	}
	defer s.stuck.Add(-1)
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
	return strings.Contains(err.Error(), "WRONGTYPE") || strings.Contains(err.Error(), "METEREDLAYOUT")
}
