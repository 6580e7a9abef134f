package meteredredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// Limiter is a bucket.Limiter whose budgets are shared by every process that uses the same store, prefix and
// keys. It is safe for concurrent use.
type Limiter struct {
	config Config
	store  store
	pid    int64
	start  time.Time

	mu      sync.Mutex
	budgets map[string]*budget
	closed  bool
	running sync.WaitGroup // calls to the store, the probe, what is told

	down atomic.Pointer[outage]

	telling sync.Mutex
	untold  []middleware.Event
	teller  bool // somebody tells
}

var _ bucket.Limiter = (*Limiter)(nil)

// New returns a Limiter on the engine that client speaks to, or what is wrong with c or with the engine: that
// it refuses scripts, is a read-only replica, or has something else under our names. An engine that cannot be
// reached is no error: the Limiter begins as Config.OnStoreDown says, and the reason is in the event.
//
// The client stays the caller's; close it after the Limiter. Its own retries do not concern us: nothing is
// sent twice that may have happened.
func New(client redis.UniversalClient, c Config) (*Limiter, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if client == nil {
		return nil, errors.New("meteredredis: New needs a client")
	}
	c = c.withDefaults()
	l := &Limiter{
		config:  c,
		store:   newStore(client, c.Timeout),
		pid:     1 + rand.Int64N(1<<48),
		start:   time.Now(),
		budgets: map[string]*budget{},
	}
	if err := l.try(); err != nil {
		if refuses(err) {
			return nil, fmt.Errorf("meteredredis: the store cannot be used: %w", err)
		}
		l.failed(err)
	}
	return l, nil
}

// Acquire takes cost from the budget of key, waiting for it where it must, as bucket.Local does; see the
// package comment for what differs. Calls of this process leave in order.
func (l *Limiter) Acquire(ctx context.Context, key string, cost bucket.Cost) (bucket.Grant, error) {
	if ctx.Err() != nil {
		return bucket.Grant{}, bucket.Interrupted(ctx, key)
	}
	if cost.Requests < 0 || cost.InputTokens < 0 || cost.OutputTokens < 0 {
		return bucket.Grant{}, fmt.Errorf("meteredredis: negative cost %+v", cost)
	}
	w := &waiter{cost: clamped(cost), arrived: time.Now(), done: make(chan struct{}, 1), index: -1, place: bucket.PlaceFrom(ctx)}
	w.deadline, _ = ctx.Deadline()
	for {
		b, err := l.budget(key)
		if err != nil {
			return bucket.Grant{}, err
		}
		g, err, again := b.acquire(ctx, w)
		if !again {
			return g, err
		}
	}
}

// maxCost is the most that one component of a cost counts, as in bucket.
const maxCost = 1 << 44

// clamped returns c with each component between 0 and maxCost.
func clamped(c bucket.Cost) bucket.Cost {
	return bucket.Cost{Requests: clamp(c.Requests), InputTokens: clamp(c.InputTokens), OutputTokens: clamp(c.OutputTokens)}
}

func clamp(n int64) int64 { return max(min(n, maxCost), 0) }

// budget returns the budget of key.
func (l *Limiter) budget(key string) (*budget, error) {
	l.mu.Lock()
	b, closed := l.budgets[key], l.closed
	l.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if b != nil {
		return b, nil
	}
	limits := l.config.Limits
	if l.config.LimitsFor != nil {
		if own := l.config.LimitsFor(key); own != nil { // a callback: no lock is held
			if err := (bucket.Config{Limits: own}).Validate(); err != nil {
				return nil, fmt.Errorf("meteredredis: LimitsFor(%q): %w", key, err)
			}
			limits = own
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	if b := l.budgets[key]; b != nil {
		return b, nil
	}
	if len(l.budgets) >= l.config.MaxKeys {
		l.forget()
	}
	b = newBudget(l, strings.Clone(key), limitsOf(limits, l.config.Headroom))
	l.budgets[b.key] = b
	return b, nil
}

// forget drops budgets that nobody uses, longest ago first: a quarter of MaxKeys of them. Their state is in the
// store. Called with mu held.
func (l *Limiter) forget() {
	type idle struct {
		b     *budget
		since time.Time
	}
	var all []idle
	for _, b := range l.budgets {
		b.mu.Lock()
		if b.idle() {
			all = append(all, idle{b, b.changed})
		}
		b.mu.Unlock()
	}
	slices.SortFunc(all, func(x, y idle) int { return x.since.Compare(y.since) })
	for _, i := range all[:min(len(all), max(l.config.MaxKeys/4, 1))] {
		i.b.mu.Lock()
		if i.b.idle() {
			i.b.retire()
			delete(l.budgets, i.b.key)
		}
		i.b.mu.Unlock()
	}
}

// all returns the budgets of now.
func (l *Limiter) all() []*budget {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.budgets))
}

// peek returns the budget of key, or nil.
func (l *Limiter) peek(key string) *budget {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.budgets[key]
}

// Hold lets nobody be admitted on key before until, in this process from now on, in the others as soon as the
// store knows. The later of two holds wins. The release is a ramp over all processes: one call leaves, and
// each time all of a round are served twice as many may be in flight.
func (l *Limiter) Hold(key string, until time.Time) {
	b, err := l.budget(key)
	if err != nil {
		return
	}
	b.mu.Lock()
	if d := time.Until(until); d > 0 {
		b.hold(d)
	}
	b.look()
	b.mu.Unlock()
	b.holdFallback(time.Until(until))
}

// HeldFor returns how long key is held yet, as far as this process knows; 0 if it is not.
func (l *Limiter) HeldFor(key string) time.Duration {
	b := l.peek(key)
	if b == nil {
		return 0
	}
	b.mu.Lock()
	held := max(time.Until(b.known.hold), 0)
	b.mu.Unlock()
	if o := b.away(); o != nil && o.local != nil {
		held = max(held, o.local.HeldFor(key))
	}
	return held
}

// Stats returns a snapshot of key as this process knows it: its own queue and open grants, the levels that the
// store told last and what was refilled since; false if this process has not used the key lately.
func (l *Limiter) Stats(key string) (bucket.KeyStats, bool) {
	b := l.peek(key)
	if b == nil {
		return bucket.KeyStats{}, false
	}
	s := b.stats(time.Now())
	if o := b.away(); o != nil && o.local != nil {
		if f, ok := o.local.Stats(key); ok {
			s.Queued += f.Queued
			s.InFlight += f.InFlight
			s.HeldFor = max(s.HeldFor, f.HeldFor)
			s.OldestSlot = max(s.OldestSlot, f.OldestSlot)
		}
	}
	return s, true
}

// Close tells the store what it has not been told, and ends the wait of whoever still waits with ErrClosed, as
// Acquire does from then on. Grants that are still open may be ended, which changes nothing any more.
func (l *Limiter) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	if o := l.down.Load(); o != nil {
		o.end()
	}
	tell := true
	for _, b := range l.all() {
		if o := b.down.Load(); o != nil {
			o.end()
		}
		if b.close(tell) != nil {
			tell = false // nor will it hear of the others
		}
	}
	l.running.Wait()
	return nil
}

// An event is told beside the requests, in order; an Observer that blocks loses those after the first few.
func (l *Limiter) tell(e middleware.Event) {
	if l.config.Observer == nil {
		return
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	if len(l.untold) < 64 {
		l.untold = append(l.untold, e)
	}
	if len(l.untold) == 1 && !l.teller {
		l.teller = true
		go l.tellAll()
	}
}

func (l *Limiter) tellAll() {
	for {
		l.telling.Lock()
		if len(l.untold) == 0 {
			l.teller = false
			l.telling.Unlock()
			return
		}
		e := l.untold[0]
		l.untold = l.untold[1:]
		l.telling.Unlock()
		func() {
			defer func() { recover() }() // an observer's panic is no business of the callers'
			l.config.Observer.Observe(context.Background(), e)
		}()
	}
}
