package meteredredis

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A clocked is an engine for limiters in a bubble of synctest: a real one, that runs the script on the bubble's clock,
// and where a call takes no time. It is made outside the bubble, so that the clock stands still for a call.
type clocked struct {
	source  string
	mu      sync.Mutex
	asked   chan []any
	answers chan *redis.Cmd
}

func newClocked(t testing.TB) *clocked {
	e := &clocked{asked: make(chan []any), answers: make(chan *redis.Cmd)}
	replaced := strings.NewReplacer("redis.call('TIME')", "{ARGV[2], ARGV[3]}",
		"redis.call('PEXPIRE'", "pcall(string.format, 'PEXPIRE'") // that would go by the engine's clock
	if e.source = replaced.Replace(source); len(e.source) == len(source) {
		t.Fatal("the script does not read the time")
	}
	c := connect(t)
	go func() {
		for args := range e.asked {
			e.answers <- c.Do(context.Background(), args...)
		}
	}()
	t.Cleanup(func() { close(e.asked) })
	return e
}

func (e *clocked) do(args ...any) *redis.Cmd {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked <- args
	return <-e.answers
}

// A way is the client of one process. It is made in the bubble.
type way struct {
	redis.UniversalClient
	engine *clocked
	mu     sync.Mutex
	broken error         // what a call fails with
	hangs  chan struct{} // what a call waits for before it gets to the engine
}

func (w *way) Process(_ context.Context, cmd redis.Cmder) error {
	w.mu.Lock()
	broken, hangs := w.broken, w.hangs
	w.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	words, err := []int64(nil), broken
	if err == nil {
		now := time.Now().UnixMicro()
		words, err = w.engine.do("eval", w.engine.source, 1, cmd.Args()[3], cmd.Args()[4], now/1e6, now%1e6).Int64Slice()
	}
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	cmd.(once).SetVal(words)
	return nil
}

func (w *way) set(broken error, hangs chan struct{}) {
	w.mu.Lock()
	w.broken, w.hangs = broken, hangs
	w.mu.Unlock()
}
