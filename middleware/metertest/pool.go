package metertest

import (
	"context"
	"sync"
	"sync/atomic"
)

// conns counts the connections of all in-memory Transports of a provider.
type conns struct{ open, busy, dials atomic.Int64 }

// A pool is the connections of one in-memory Transport. There is nothing behind a
// connection: only its being busy, idle or new matters.
type pool struct {
	count *conns
	limit int // 0: none

	mu      sync.Mutex
	busy    int
	idle    int
	waiters []chan struct{} // first in, first out; closed when granted
}

// take waits for a place. It is given back with exactly one call of give.
func (p *pool) take(ctx context.Context) error {
	p.mu.Lock()
	if p.limit == 0 || p.busy < p.limit {
		p.busy++
		p.mu.Unlock()
		p.count.busy.Add(1)
		return nil
	}
	turn := make(chan struct{})
	p.waiters = append(p.waiters, turn)
	p.mu.Unlock()
	select {
	case <-turn:
		p.count.busy.Add(1)
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	for i, w := range p.waiters {
		if w == turn {
			p.waiters = append(p.waiters[:i:i], p.waiters[i+1:]...)
			p.mu.Unlock()
			return context.Cause(ctx)
		}
	}
	p.mu.Unlock()
	p.count.busy.Add(1) // granted at the same instant: hand it on
	p.give(false)
	return context.Cause(ctx)
}

// connect makes the place a connection, an idle one if there is any.
func (p *pool) connect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle > 0 {
		p.idle--
		return
	}
	p.count.dials.Add(1)
}

func (p *pool) give(reusable bool) {
	p.count.busy.Add(-1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if reusable {
		p.idle++
	}
	if len(p.waiters) > 0 {
		close(p.waiters[0])
		p.waiters = p.waiters[1:]
		return
	}
	p.busy--
}

func (p *pool) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = 0
}
