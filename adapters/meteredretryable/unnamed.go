package meteredretryable

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// maxUnnamed bounds for how long an attempt may be asked for. CheckRetry follows
// at once; after that nobody does.
const maxUnnamed = 5 * time.Second

// unnamed has the attempts that http.Client's Timeout may have ended. net/http
// makes a text of their error, so CheckRetry gets nothing that leads back to the
// attempt; but it runs in the goroutine that the attempt ran in, next after it.
// That, and nothing else, tells whose error it is.
//
// An attempt that is not asked for, one of a plain http.Client or one that a
// RoundTripper has moved to another goroutine, is forgotten: with the next that
// its goroutine makes, or after maxUnnamed. The call's next attempt, if there is
// one, then begins another turn.
type unnamed struct {
	any      atomic.Bool // there are attempts: mostly there are none
	mu       sync.Mutex
	attempts map[uint64]*ended // by goroutine
	puts     uint64
}

// ended is what CheckRetry has to know of an attempt.
type ended struct {
	call   *call
	once   bool
	put    uint64      // which one it was
	forget *time.Timer // knows put, not this: a timer that was stopped may stay for long
}

// put has a be what the next take in this goroutine returns.
func (u *unnamed) put(a *attempt) {
	g := goroutine()
	if g == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.attempts == nil {
		u.attempts = make(map[uint64]*ended)
	}
	if old := u.attempts[g]; old != nil {
		u.drop(g, old)
	} else if len(u.attempts) >= maxWaiting {
		for g, some := range u.attempts {
			u.drop(g, some)
			break
		}
	}
	u.puts++
	put := u.puts
	u.attempts[g] = &ended{a.call, a.once, put, time.AfterFunc(maxUnnamed, func() { u.remove(g, put) })}
	u.any.Store(true)
}

// take returns what is known of the attempt that ended last in this goroutine, if
// a Timeout may have ended it, and forgets it; else nil.
func (u *unnamed) take() *attempt {
	if !u.any.Load() {
		return nil
	}
	g := goroutine()
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.attempts[g]
	if e == nil {
		return nil
	}
	u.drop(g, e)
	return &attempt{call: e.call, once: e.once}
}

// remove forgets what was put then, if it is still there.
func (u *unnamed) remove(g, put uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.attempts[g]; e != nil && e.put == put {
		u.drop(g, e)
	}
}

// drop is remove, with mu held, of an attempt that is there.
func (u *unnamed) drop(g uint64, e *ended) {
	e.forget.Stop()
	delete(u.attempts, g)
	u.any.Store(len(u.attempts) > 0)
}

// goroutine returns the number of the goroutine that it runs in, which no other
// ever has; 0 if it cannot be told. It takes a microsecond: for calls that have
// timed out.
func goroutine() uint64 {
	var buf [64]byte
	s, _ := bytes.CutPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(s, []byte(" "))
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
