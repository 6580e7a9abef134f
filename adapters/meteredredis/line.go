package meteredredis

import (
	"container/heap"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A waiter is one call in line.
type waiter struct {
	place    bucket.Place
	cost     bucket.Cost
	shares   []int64 // of each limit
	arrived  time.Time
	deadline time.Time // zero if there is none
	index    int       // in the line; -1 when it is no longer in it

	done  chan struct{} // holds a token once one of these is set
	grant bucket.Grant
	err   error
	local bool // the store is away: ask the fallback
}

// line is the queue of a key, by place.
type line []*waiter

func (l line) Len() int           { return len(l) }
func (l line) Less(i, j int) bool { return l[i].place.Before(l[j].place) }
func (l line) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].index, l[j].index = i, j
}

func (l *line) Push(x any) {
	w := x.(*waiter)
	w.index = len(*l)
	*l = append(*l, w)
}

func (l *line) Pop() any {
	last := len(*l) - 1
	w := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	w.index = -1
	return w
}

func (l *line) add(w *waiter)    { heap.Push(l, w) }
func (l *line) next() *waiter    { return heap.Pop(l).(*waiter) }
func (l *line) remove(w *waiter) { heap.Remove(l, w.index) }

// finish wakes w, which is out of line.
func (w *waiter) finish() { w.done <- struct{}{} }
