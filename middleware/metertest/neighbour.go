package metertest

import (
	"math"
	"math/rand/v2"
	"time"
)

// neighbour is the state of a Neighbour: when his next call is due, and what has
// become of the others.
type neighbour struct {
	Neighbour
	rng             *rand.Rand
	next            time.Duration
	served, refused int
}

func newNeighbour(n Neighbour, seed uint64) *neighbour {
	nb := &neighbour{Neighbour: n, rng: rand.New(rand.NewPCG(seed, 1)), next: n.From}
	if n.Every > 0 {
		nb.next += nb.gap()
	}
	return nb
}

func (n *neighbour) gap() time.Duration {
	if !n.Poisson {
		return n.Every
	}
	return time.Duration(math.Min(n.rng.ExpFloat64()*float64(n.Every), math.MaxInt64/4))
}

// catchUp makes every call of his that is due up to at.
func (n *neighbour) catchUp(at time.Duration, call func(at time.Duration, tokens int64) bool) {
	if n.Every == 0 {
		return
	}
	for n.next <= at && (n.Until == 0 || n.next < n.Until) {
		if call(n.next, n.Tokens) {
			n.served++
		} else {
			n.refused++
		}
		n.next += n.gap()
	}
}
