package bucket

// A ramp is the release of a hold: a key that was refused just now is not poured out upon the
// server again. One call leaves; as soon as every call of a round is served, twice as many may be
// in flight. Only calls admitted since the hold take part. The ramp ends when the level or
// MaxInFlight rather than the ramp keeps the head back, or by a refusal.
//
// A call is in flight until its grant ends. Whoever ends without having been served makes room,
// but proves nothing. Whoever has no answer after the answer time is waited for no longer.
type ramp struct {
	size    int    // how many may be in flight; 0 when there is no ramp
	number  uint32 // of this ramp; never 0 while size is not
	round   uint32
	flying  int   // in flight
	lit     int   // of them, those served
	proven  int   // how many count towards the next doubling: lit, and ended in this round
	waiting *call // the oldest in flight that is not served
}

// steep is the size at which a ramp no longer is one.
const steep = 1 << 20

// begin starts a ramp of one call.
func (r *ramp) begin() {
	n := r.number + 1
	if n == 0 {
		n = 1
	}
	*r = ramp{size: 1, number: n}
}

func (r *ramp) end() {
	r.size = 0
	r.waiting = nil
}

func (r *ramp) has(c *call) bool { return r.size > 0 && c.ramp == r.number }

// blocks reports whether the ramp keeps the next call back.
func (r *ramp) blocks(now, answerTime int64) bool {
	if r.flying < r.size {
		return false
	}
	for c := r.waiting; c != nil && now >= later(c.left, answerTime); c = r.waiting {
		r.flying--
		r.skip()
		c.ramp = 0
	}
	return r.flying >= r.size
}

// relief is when the ramp lets the next one go if no answer comes.
func (r *ramp) relief(answerTime int64) int64 {
	if r.waiting == nil {
		return never
	}
	return later(r.waiting.left, answerTime)
}

// join counts a call that was admitted just now.
func (r *ramp) join(c *call) {
	c.ramp = r.number
	r.flying++
	if r.waiting == nil {
		r.waiting = c
	}
}

// skip moves waiting on to the next call without an answer.
func (r *ramp) skip() {
	c := r.waiting.next
	for c != nil && (c.ramp != r.number || c.served) {
		c = c.next
	}
	r.waiting = c
}

// served counts an answer.
func (r *ramp) served(c *call) {
	if !r.has(c) {
		return
	}
	if c == r.waiting {
		r.skip()
	}
	c.servedIn = r.round
	r.lit++
	r.proven++
	if r.proven < r.size {
		return
	}
	r.size *= 2
	r.round++
	r.proven = r.lit
	if r.size >= steep {
		r.end()
	}
}

// leave takes out a call whose grant ends.
func (r *ramp) leave(c *call) {
	if !r.has(c) {
		return
	}
	if c == r.waiting {
		r.skip()
	}
	r.flying--
	if c.served {
		r.lit--
		if c.servedIn != r.round {
			r.proven--
		}
	}
}
