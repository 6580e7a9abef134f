package meteredretryable

import (
	"context"
	"math"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// maxWaiting bounds how many calls are remembered between two attempts.
const maxWaiting = 4096

// waitOf returns for how long a call is remembered between two attempts, of a
// client whose waits have that maximum: for longer than any of its waits, also
// where a Backoff does not keep to it.
func waitOf(longest time.Duration) time.Duration {
	return max(5*time.Minute, 2*min(longest, math.MaxInt64/2))
}

// waiting has the calls that retryablehttp is about to send again. It has no hook
// that tells the attempts of a call from those of another, other than those that
// are the user's. But it makes the requests of all attempts as copies of the one
// that it was given, and these share their URL, by address. That is how the next
// attempt finds its call.
//
// Where somebody uses one *url.URL for several calls at once, two of them may
// swap their turns here: a call then has less budget left, and another more.
// Where a hook gives an attempt another URL, that attempt begins another turn.
//
// A call that retryablehttp gives up without a sign, when PrepareRetry fails, say,
// stays until its time is over, and so does what its turn holds. At worst another call with that URL finds part of its budget
// spent. Of too many that wait, any one goes.
type waiting struct {
	any   atomic.Bool // there are calls: mostly there are none
	mu    sync.Mutex
	calls map[*url.URL]*call
}

// add has c wait as long as ctx lasts, but no longer than most.
func (w *waiting) add(ctx context.Context, c *call, most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = make(map[*url.URL]*call)
	}
	if old := w.calls[c.url]; old != nil {
		w.drop(old)
	} else if len(w.calls) >= maxWaiting {
		for _, some := range w.calls {
			w.drop(some)
			break
		}
	}
	w.calls[c.url] = c
	w.any.Store(true)
	until, cancel := context.WithTimeout(ctx, most)
	stop := context.AfterFunc(until, func() { w.remove(c) })
	c.until, c.leave = until, func() { stop(); cancel() }
}

// take returns the call that waits for a request of this URL, or nil. It waits
// no longer.
func (w *waiting) take(u *url.URL) *call {
	if !w.any.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.calls[u]
	if c == nil {
		return nil
	}
	over := c.until.Err() != nil // it has not heard yet
	w.drop(c)
	if over {
		return nil
	}
	return c
}

// remove has c wait no longer, if it does.
func (w *waiting) remove(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls[c.url] == c {
		w.drop(c)
	}
}

// drop is remove, with mu held, of a call that waits.
func (w *waiting) drop(c *call) {
	delete(w.calls, c.url)
	w.any.Store(len(w.calls) > 0)
	c.leave()
	c.until, c.leave = nil, nil
}
