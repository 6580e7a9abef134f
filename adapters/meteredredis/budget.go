package meteredredis

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A budget is one key as this process sees it: who waits, who is out, what is to be told to the store, and
// what the store said last. At most one call to the store is under way for it; what comes meanwhile goes
// with the next.
type budget struct {
	limiter *Limiter
	key     string
	name    string // in the store
	limits  []limit

	mu      sync.Mutex
	gone    bool // forgotten: look the key up again
	line    line
	place   int64 // the latest that was given out
	calls   map[uint64]*call
	serial  uint64
	changed time.Time // when it was last used

	speaker  *speaker
	told     int64       // the epoch that it was made for
	flight   *batch      // the call to the store that is under way
	watchdog *time.Timer // that gives it up
	parked   bool        // a goroutine waits on wake for something to say
	wake     chan struct{}
	calling  bool        // a call to the store is under way
	batch    *batch      // what goes with the next
	timer    *time.Timer // for the head, or for what is to be told
	alarm    time.Time   // what the timer is set to; zero if it is not
	blocked  time.Time   // the store said to the head: not before
	window   window

	known    knowledge
	spent    []float64              // admitted by the fallback since the store went, for each limit
	back     *comeback              // what the store is to be told of that time
	differed bool                   // another process has lower limits, and that was said
	down     atomic.Pointer[outage] // of this key alone
}

const (
	// mostInBatch is how many groups of calls go with one call of the store: more keep the others off it.
	mostInBatch = 128

	// ride is how long a settlement waits for a call that it can go with.
	ride = 10 * time.Millisecond

	// rest is the least time between two calls of a head that was told to wait: what comes back
	// meanwhile is taken together.
	rest = 2 * time.Millisecond

	// anew is after what time a head that waits for longer asks again, but under a hold: another process may have
	// given something back, or up its claim. It also tells the store that this process lives.
	anew = time.Second

	// linger is how long the goroutine that speaks to the store stays when there is nothing to say.
	linger = 50 * time.Millisecond

	// heartbeat is how often a process says that it lives, and hears how many do; when it is young more often,
	// so that a fleet that starts together soon knows its size.
	heartbeat = 2 * time.Second
)

func newBudget(l *Limiter, key string, limits []limit) *budget {
	b := &budget{limiter: l, key: key, name: nameOf(l.config.Prefix, key), limits: limits, calls: map[uint64]*call{}, wake: make(chan struct{}, 1)}
	b.spent = make([]float64, len(limits))
	return b
}

// look sees what is to be done next: a call to the store now, or at a later time. Called with mu held.
func (b *budget) look() {
	if b.calling || b.gone || b.away() != nil {
		return
	}
	now := time.Now()
	at := time.Time{}
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if b.wants() {
		sooner(b.blocked)
		if b.blocked.IsZero() {
			sooner(now)
		}
	}
	if b.batch != nil {
		sooner(b.batch.due)
	}
	if b.owes() {
		sooner(now)
	}
	switch {
	case at.IsZero():
		return
	case !at.After(now):
		b.calling = true
		if b.parked {
			b.parked = false
			b.wake <- struct{}{}
			return
		}
		b.limiter.running.Add(1)
		go b.run()
	case b.alarm.IsZero() || at.Before(b.alarm):
		b.alarm = at
		if b.timer == nil {
			b.timer = time.AfterFunc(at.Sub(now), b.ring)
		} else {
			b.timer.Reset(at.Sub(now))
		}
	}
}

// owes reports whether the store is to be told of what was admitted while it was away.
func (b *budget) owes() bool {
	return b.back != nil && slices.ContainsFunc(b.back.spent, func(n float64) bool { return n > 0 })
}

// wants reports whether somebody waits for whom there is a slot.
func (b *budget) wants() bool {
	most := b.limiter.config.MaxInFlight
	return len(b.line) > 0 && (most == 0 || len(b.calls) < most)
}

func (b *budget) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm = time.Time{}
	b.look()
}

// run makes calls to the store until there is nothing more to say for a while.
func (b *budget) run() {
	givenUp := false // the watchdog has said that it is done
	defer func() {
		if !givenUp {
			b.limiter.running.Done()
		}
	}()
	timer := time.NewTimer(linger)
	defer timer.Stop()
	s := &b.limiter.store
	for {
		s.enter()
		b.mu.Lock()
		out, asked := b.compose(time.Now())
		if out == nil {
			s.leave()
			parked := !b.gone && b.away() == nil
			b.calling, b.parked = false, parked
			b.look() // perhaps there is something since, or later
			b.mu.Unlock()
			if !parked {
				return
			}
			timer.Reset(linger)
			select {
			case <-b.wake:
				continue
			case <-timer.C:
			}
			b.mu.Lock()
			woken := !b.parked
			b.parked = false
			b.mu.Unlock()
			if !woken {
				return
			}
			<-b.wake
			continue
		}
		b.flight = out
		b.watch()
		b.mu.Unlock()

		r, err := s.eval(b.name, out)
		b.mu.Lock()
		if err == nil && r.declare && b.flight == out {
			out.declared = b.declaration(time.Now())
			b.mu.Unlock()
			r, err = s.eval(b.name, out)
			b.mu.Lock()
		}
		if b.flight != out {
			givenUp = true
			b.mu.Unlock()
			s.stuck.Add(-1)
			return
		}
		b.flight = nil
		b.watchdog.Stop()
		b.mu.Unlock()
		s.leave()
		if err != nil {
			b.failed(out, err)
			return
		}
		b.apply(r, out, asked)
	}
}

// watch gives the call that is under way up when its time is over. Called with mu held.
func (b *budget) watch() {
	if b.watchdog != nil {
		b.watchdog.Reset(b.limiter.config.Timeout)
		return
	}
	b.watchdog = time.AfterFunc(b.limiter.config.Timeout, func() {
		b.mu.Lock()
		out := b.flight
		late := out != nil && time.Since(out.left) >= b.limiter.config.Timeout
		if late {
			b.flight = nil
		}
		b.mu.Unlock()
		if late {
			b.limiter.store.stuck.Add(1)
			b.limiter.store.leave()
			b.failed(out, b.limiter.store.silent())
			b.limiter.running.Done() // Close does not wait for a client that hangs
		}
	})
}

// compose makes the next call of the store, or returns nil when there is none to make: then calling is over.
// It returns whom it asks for. Called with mu held.
func (b *budget) compose(now time.Time) (*batch, []*waiter) {
	wants := b.wants() && !b.blocked.After(now)
	due := b.batch != nil && (b.gone || !b.batch.due.After(now))
	if !wants && !due && (b.gone || !b.owes()) || b.away() != nil {
		return nil, nil
	}
	out := b.batch
	b.batch = nil
	if out == nil {
		out = new(batch)
	}
	b.address(out, now)
	return out, b.ask(out, now)
}

// address says to the store who speaks, of what, and what was admitted while it was away. Called with mu held.
func (b *budget) address(out *batch, now time.Time) {
	if b.speaker == nil || b.known.epoch != b.told {
		b.told = b.known.epoch
		b.speaker = newSpeaker(b.limiter.pid, 1+rand.Int64N(1<<48), &b.limiter.config, b.limits)
	}
	out.speaker, out.epoch, out.left = b.speaker, b.known.epoch, now
	if now.Sub(b.known.beat) >= min(heartbeat, now.Sub(b.limiter.start)) {
		out.beat = true
		b.known.beat = now
	}
	if out.back = b.back; out.back != nil {
		out.ops = append(out.ops, out.back.told(b.limits, now)...)
	}
}

// ask puts those in line into the batch, as many as have slots.
func (b *budget) ask(out *batch, now time.Time) []*waiter {
	if !b.wants() {
		return nil
	}
	slots := len(b.line)
	if most := b.limiter.config.MaxInFlight; most > 0 {
		slots = min(slots, most-len(b.calls))
	}
	var asked []*waiter
	for len(asked) < slots {
		w := b.line.next()
		if last := len(out.groups) - 1; last >= 0 && slices.Equal(out.groups[last].costs, w.shares) {
			out.groups[last].n++
		} else if len(out.groups) == mostInBatch {
			b.line.add(w)
			break
		} else {
			out.groups = append(out.groups, group{1, w.shares})
		}
		asked = append(asked, w)
	}
	out.age = now.Sub(asked[0].arrived)
	for _, w := range asked { // they stay in line until they are let go
		b.line.add(w)
	}
	return asked
}

// apply does what the store said.
func (b *budget) apply(r reply, out *batch, asked []*waiter) {
	now := time.Now()
	b.mu.Lock()
	b.learn(r, out, now)
	charged := make([]int64, len(b.limits))
	for i := range charged {
		charged[i] = r.limits[i].charged
	}
	var left []*waiter
	for i, w := range asked[:min(r.granted, len(asked))] {
		for k, share := range w.shares {
			charged[k] += share
		}
		c := b.open(w, r, i, charged, now)
		if w.index < 0 { // it has gone meanwhile: what was taken comes back
			b.end(c, bucket.Cost{}, true)
			continue
		}
		b.line.remove(w)
		w.grant = bucket.NewGrant(b, c.id, bucket.GrantInfo{Waited: now.Sub(w.arrived), Overdue: r.probe == 1, Place: w.place})
		left = append(left, w)
	}
	b.known.charged = charged
	b.blocked, b.window = time.Time{}, window{}
	if r.wait > 0 && r.granted < len(asked) {
		head := asked[r.granted]
		switch {
		case head.index < 0:
			b.say(0) // it has gone meanwhile: its claim is void
		case head.index > 0: // somebody has come back to a place before it
		default:
			wait := max(r.wait, min(rest, b.half()))
			if r.hold == 0 {
				wait = min(wait, anew)
			}
			b.blocked = now.Add(wait)
			if r.window > 0 {
				b.window = window{head, now.Add(r.window), b.limits[min(r.binding, len(b.limits)-1)].Unit}
			}
			if r.probe == 2 {
				head.err = bucket.NewWaitError(b.key, b.binding(head, now), r.wait, bucket.ErrOverdue)
				b.withdraw(head)
				left = append(left, head)
			}
		}
	}
	left = append(left, b.doomed(now)...)
	differs := r.differ && !b.differed
	b.differed = b.differed || r.differ
	b.changed = now
	b.mu.Unlock()
	for _, w := range left {
		w.finish()
	}
	if differs {
		b.limiter.tell(eventDiffers(b.key))
	}
}

// half is how long the fastest limit takes to be half full: who rests for longer loses some of it.
func (b *budget) half() time.Duration {
	half := time.Duration(rest)
	for i := range b.limits {
		l := &b.limits[i]
		if l.Shape == bucket.TokenBucket {
			half = min(half, span(float64(l.capacity)/2/l.rate))
		}
	}
	return half
}
