package metertest

import "time"

// rolling remembers every taking for per. One made at t counts up to, and not at,
// t + per.
type rolling struct {
	amount int64
	per    time.Duration
	log    []taking // oldest first
	sum    int64
}

type taking struct {
	at time.Duration
	n  int64
}

func (w *rolling) forget(at time.Duration) {
	i := 0
	for i < len(w.log) && w.log[i].at+w.per <= at {
		w.sum -= w.log[i].n
		i++
	}
	w.log = w.log[i:]
}

func (w *rolling) wait(at time.Duration, n int64) time.Duration {
	w.forget(at)
	if n > w.amount {
		return never
	}
	over := w.sum - (w.amount - n)
	if over <= 0 {
		return 0
	}
	for _, t := range w.log {
		if over -= t.n; over <= 0 {
			return t.at + w.per - at
		}
	}
	return never // not reached: without the log everything fits
}

func (w *rolling) take(at time.Duration, n int64) {
	w.forget(at)
	if n == 0 {
		return
	}
	w.sum += n
	if last := len(w.log) - 1; last >= 0 && w.log[last].at == at {
		w.log[last].n += n
		return
	}
	w.log = append(w.log, taking{at, n})
}

func (w *rolling) takeAtMost(at time.Duration, n int64) {
	w.take(at, min(n, w.left(at)))
}

func (w *rolling) left(at time.Duration) int64 {
	w.forget(at)
	return max(w.amount-w.sum, 0)
}

func (w *rolling) more(at time.Duration) time.Duration {
	left := w.left(at)
	if left == w.amount {
		return 0
	}
	return w.wait(at, left+1)
}

func (w *rolling) full(at time.Duration) time.Duration {
	w.forget(at)
	if len(w.log) == 0 {
		return 0
	}
	return w.log[len(w.log)-1].at + w.per - at
}

func (w *rolling) limit() int64 { return w.amount }

func (w *rolling) resize(_ time.Duration, amount, _ int64) { w.amount = amount }

// fixed counts from boundary to boundary; the first window began offset before
// the provider's start.
type fixed struct {
	amount      int64
	per, offset time.Duration
	window      time.Duration // number of the window that used is about
	used        int64
}

func (w *fixed) turn(at time.Duration) {
	if k := (at + w.offset) / w.per; k != w.window {
		w.window, w.used = k, 0
	}
}

func (w *fixed) end(at time.Duration) time.Duration {
	return w.per - (at+w.offset)%w.per
}

func (w *fixed) wait(at time.Duration, n int64) time.Duration {
	w.turn(at)
	switch {
	case n > w.amount:
		return never
	case n <= w.amount-w.used:
		return 0
	}
	return w.end(at)
}

func (w *fixed) take(at time.Duration, n int64) {
	w.turn(at)
	w.used += n
}

func (w *fixed) takeAtMost(at time.Duration, n int64) {
	w.take(at, min(n, w.left(at)))
}

func (w *fixed) left(at time.Duration) int64 {
	w.turn(at)
	return max(w.amount-w.used, 0)
}

func (w *fixed) more(at time.Duration) time.Duration { return w.full(at) }

func (w *fixed) full(at time.Duration) time.Duration {
	w.turn(at)
	if w.used == 0 {
		return 0
	}
	return w.end(at)
}

func (w *fixed) limit() int64 { return w.amount }

func (w *fixed) resize(at time.Duration, amount, _ int64) {
	w.turn(at)
	w.amount = amount
}
