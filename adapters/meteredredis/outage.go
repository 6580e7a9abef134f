package meteredredis

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// An outage is a time without the store, for all keys or for one.
type outage struct {
	reason error
	only   *budget       // the one it is for; nil if it is for all
	local  *bucket.Local // the fallback; nil under Closed
	began  time.Time
	share  float64 // of the limits, that the fallback has
	over   context.Context
	end    context.CancelFunc
	ended  atomic.Bool

	mu     sync.Mutex
	seeded map[string]bool // keys whose level was set
}

// The pauses between two tries to reach the store again.
const (
	firstTry = 100 * time.Millisecond
	lastTry  = 500 * time.Millisecond
)

var errBack = errors.New("meteredredis: the store is there again")

func (l *Limiter) newOutage(reason error, only *budget) *outage {
	o := &outage{reason: reason, only: only, seeded: map[string]bool{}, began: time.Now()}
	o.share = (1 - margin) / float64(l.sharers())
	o.over, o.end = context.WithCancel(context.Background())
	c := l.config.local()
	switch l.config.OnStoreDown {
	case Closed:
		return o
	case Open:
		c.Limits, c.LimitsFor = nil, nil
	case LocalShare:
		c.LimitsFor = l.limitsFor
		c.Headroom = max(c.Headroom*o.share, 1e-4)
	}
	o.local, _ = bucket.New(c) // c was validated
	return o
}

// sharers is how many processes share the budgets: the most that the store has seen lately on one of them.
func (l *Limiter) sharers() int {
	type seen struct {
		n  int
		at time.Time
	}
	var all []seen
	var last time.Time
	for _, b := range l.all() {
		b.mu.Lock()
		if k := &b.known; k.processes > 0 {
			all = append(all, seen{k.processes, k.at})
			if k.at.After(last) {
				last = k.at
			}
		}
		b.mu.Unlock()
	}
	most := l.config.Processes
	if most == 0 && len(all) == 0 {
		return defaultProcesses
	}
	for _, s := range all {
		if last.Sub(s.at) < time.Minute { // a key that is out of use says nothing
			most = max(most, s.n)
		}
	}
	return max(most, 1)
}

// limitsFor is what the budget of a key was made with; nobody is asked again.
func (l *Limiter) limitsFor(key string) []bucket.Limit {
	limits := []bucket.Limit{}
	if b := l.peek(key); b != nil {
		for i := range b.limits {
			limits = append(limits, b.limits[i].Limit)
		}
	}
	return limits
}

// failed begins an outage, unless there is one.
func (l *Limiter) failed(reason error) {
	o := l.newOutage(reason, nil)
	if !l.down.CompareAndSwap(nil, o) {
		o.end()
		return
	}
	l.begin(o)
	for _, b := range l.all() {
		b.evict()
	}
}

// failed begins an outage after a call of the store for this budget.
func (b *budget) failed(out *batch, reason error) {
	b.mu.Lock()
	b.calling = false
	b.restore(out, reason)
	b.mu.Unlock()
	if !ofKey(reason) {
		b.limiter.failed(reason)
		b.mu.Lock()
		b.look() // if it has come back meanwhile
		b.mu.Unlock()
		return
	}
	o := b.limiter.newOutage(reason, b)
	if b.down.CompareAndSwap(nil, o) {
		b.limiter.begin(o)
		b.evict()
	}
}

// begin says that the store is away, and looks for it.
func (l *Limiter) begin(o *outage) {
	e := middleware.Event{Kind: middleware.StoreDown, Err: o.reason}
	if o.only != nil {
		e.Key = o.only.key
	}
	l.tell(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		o.end()
		return
	}
	l.running.Add(1)
	go l.search(o)
}

// restore puts back what the store was not told. Of what may have happened only that is said again which cannot let
// more go if it is heard twice: no refund. Called with mu held.
func (b *budget) restore(out *batch, reason error) {
	untold := answered(reason)
	for _, op := range out.ops {
		again := op[0] == opHold || op[0] == opExtra || op[0] == opReport
		if op[0] != opBack && (untold || again) {
			b.say(0, op...)
		}
	}
}

// answered reports whether the engine itself refused the script, so that nothing of it happened.
func answered(err error) bool {
	for _, word := range []string{"NOSCRIPT", "READONLY", "LOADING", "MOVED", "CLUSTERDOWN", "NOPERM", "WRONGTYPE", "METEREDLAYOUT", "MASTERDOWN", "OOM", "NOREPLICAS"} {
		if strings.HasPrefix(err.Error(), word) {
			return true
		}
	}
	return false
}

// refuses reports whether an engine that says so cannot be used at all.
func refuses(err error) bool {
	for _, word := range []string{"NOPERM", "NOAUTH", "WRONGPASS", "READONLY", "MOVED", "WRONGTYPE", "METEREDLAYOUT", "ERR unknown command", "ERR Error"} {
		if strings.HasPrefix(err.Error(), word) {
			return true
		}
	}
	return false
}

// try runs the script for no budget of a caller's.
func (l *Limiter) try() error {
	_, err := l.tryOn(nameOf(l.config.Prefix, "")+"probe", nil)
	return err
}

func (l *Limiter) tryOn(name string, limits []limit, ops ...[]string) (reply, error) {
	return l.store.decide(name, &batch{speaker: newSpeaker(l.pid, 1+rand.Int64N(1<<48), &l.config, limits), ops: ops})
}

// search waits for the store to be there again.
func (l *Limiter) search(o *outage) {
	defer l.running.Done()
	pause := firstTry
	timer := time.NewTimer(jittered(pause))
	defer timer.Stop()
	for {
		select {
		case <-o.over.Done():
			return
		case <-timer.C:
		}
		name, limits := nameOf(l.config.Prefix, "")+"probe", []limit(nil)
		if o.only != nil {
			name, limits = o.only.name, o.only.limits
		}
		r, err := l.tryOn(name, limits, []string{opReturn, whole(time.Since(o.began).Microseconds()), whole(l.grace().Microseconds())})
		switch {
		case err != nil:
			pause = min(2*pause, lastTry)
			timer.Reset(jittered(pause))
		case r.wait > 0 && o.local != nil:
			timer.Reset(r.wait)
		default:
			l.back(o)
			return
		}
	}
}

// jittered is a quarter more or less, so that a fleet does not come back in step.
func jittered(d time.Duration) time.Duration {
	return d - d/4 + rand.N(d/2)
}

// back ends an outage: whoever waits at the fallback goes to the store, which is told what was admitted.
func (l *Limiter) back(o *outage) {
	e := middleware.Event{Kind: middleware.StoreUp}
	budgets := l.all()
	o.ended.Store(true)
	for _, b := range budgets {
		if o.local != nil && (o.only == nil || o.only == b) {
			b.comeBack(o)
		}
	}
	if o.only != nil {
		e.Key, budgets = o.only.key, []*budget{o.only}
		o.only.down.Store(nil)
	} else {
		l.down.Store(nil)
	}
	for _, b := range budgets {
		b.mu.Lock()
		if o.local != nil {
			if held := o.local.HeldFor(b.key); held > 0 {
				b.hold(held)
			}
		}
		b.look()
		b.mu.Unlock()
	}
	o.end()
	l.tell(e)
}

// acquire waits at the fallback.
func (o *outage) acquire(ctx context.Context, b *budget, w *waiter) (g bucket.Grant, err error, again bool) {
	if o.local == nil {
		return g, &StoreError{Key: b.key, Err: o.reason}, false
	}
	o.seed(b)
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(o.over, func() { cancel(errBack) })
	defer stop()
	g, err = o.local.Acquire(bucket.WithPlace(inner, w.place), b.key, w.cost)
	if err != nil {
		if ctx.Err() == nil && context.Cause(inner) == errBack {
			return bucket.Grant{}, nil, true
		}
		return g, err, false
	}
	b.mu.Lock()
	for i, share := range w.shares {
		if o.ended.Load() { // what is to be told of the outage is settled already
			b.say(0, opExtra, whole(int64(i+1)), whole(share))
		} else {
			b.spent[i] += float64(share)
		}
	}
	b.look()
	b.mu.Unlock()
	s := &stray{b: b, o: o, cost: w.cost, grant: g}
	return bucket.NewGrant(s, 0, bucket.GrantInfo{Waited: g.Waited(), Overdue: g.Overdue(), Place: g.Place()}), nil, false
}

// seed sets the fallback's levels to this process's share of what was known last.
func (o *outage) seed(b *budget) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seeded[b.key] {
		return
	}
	o.seeded[b.key] = true
	now := time.Now()
	b.mu.Lock()
	known, hold := b.known.levels != nil, b.known.hold
	levels := make([]float64, len(b.limits))
	for i := range levels {
		levels[i] = b.level(i, now)
	}
	b.mu.Unlock()
	if known && b.limiter.config.OnStoreDown == LocalShare {
		if g, wait := o.local.TakeAt(now, b.key, bucket.Cost{}); wait == 0 {
			for i := range b.limits {
				l := &b.limits[i]
				g.Report(bucket.Meter{Unit: l.Unit, Limit: l.Amount, Per: l.Per, Remaining: max(int64(levels[i]*o.share), 0)})
			}
			g.Settle(bucket.Cost{})
		}
	}
	if hold.After(now) {
		o.local.Hold(b.key, hold)
	}
}

// eventDiffers says that another process has lower limits for a key.
func eventDiffers(key string) middleware.Event {
	return middleware.Event{Kind: middleware.Doubted, Key: key, Err: ErrLimitsDiffer}
}
