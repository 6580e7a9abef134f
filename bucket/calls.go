package bucket

// A call is the record behind one open grant, and the Account that the Grant speaks to. Records
// belong to their key and are used again; an id that has ended is known by its number.
type call struct {
	foreign Account  // of another package: nothing below is used then
	account *account // never changes
	id      uint64   // number of the grant; another one as soon as it has ended

	prev, next *call // open grants in the order of admission; next also links free records

	cost     Cost   // what is charged
	left     int64  // when it was admitted
	number   uint64 // of its admission on this key
	charged  Cost   // the key's sum of all costs admitted, itself included
	later    Cost   // corrections of ended calls between it and the next open one
	stated   uint64 // meters whose level an answer of its own has stated, by slot
	logged   []int64
	depths   []int64 // what of each estimate was taken when it left, itself counted; see pacer
	served   bool
	beyond   bool   // it left on debt, as a probe
	ramp     uint32 // the ramp it belongs to; 0 for none
	servedIn uint32 // the round of that ramp it was served in
}

// calls are the open grants of a key.
type calls struct {
	head, tail *call
	open       int

	admissions uint64 // ever
	charged    Cost   // sum of all costs at admission; it may wrap, differences do not
	settled    Cost   // sum of what ended calls came to beyond their estimates
	corrected  Cost   // sum of later over all open calls

	free  *call
	spare int // number of free records
}

// maxSpare is how many records a key keeps for calls to come.
const maxSpare = 1024

// begin opens a grant of this cost.
func (s *calls) begin(a *account, now int64, cost Cost) *call {
	c := s.free
	if c != nil {
		s.free = c.next
		s.spare--
		c.next = nil
	} else {
		c = &call{account: a, id: 1}
	}
	if a.windows > 0 && len(c.logged) < a.slots {
		c.logged = make([]int64, a.slots)
	}
	s.admissions++
	s.charged = s.charged.plus(cost)
	c.cost, c.left = cost, now
	c.number, c.charged = s.admissions, s.charged
	s.open++
	if c.prev = s.tail; c.prev != nil {
		c.prev.next = c
	} else {
		s.head = c
	}
	s.tail = c
	return c
}

// end closes the grant of c, which came to cost final.
func (s *calls) end(c *call, final Cost) {
	if later := c.later.plus(final.minus(c.cost)); later != (Cost{}) || c.later != (Cost{}) {
		// What changed after c's admission also changed after that of the one before.
		s.corrected = s.corrected.minus(c.later)
		if c.prev != nil {
			c.prev.later = c.prev.later.plus(later)
			s.corrected = s.corrected.plus(later)
		}
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		s.head = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		s.tail = c.prev
	}
	s.settled = s.settled.plus(final.minus(c.cost))
	s.open--
	c.id++
	c.prev, c.next = nil, nil
	c.later, c.stated, c.served, c.beyond, c.ramp = Cost{}, 0, false, false, 0
	c.depths = c.depths[:0]
	if s.spare < maxSpare {
		c.next = s.free
		s.free = c
		s.spare++
	}
}

// spent is what all calls have come to, those open at their estimate.
func (s *calls) spent() Cost { return s.charged.plus(s.settled) }

// after is the sum of all that was admitted after c, at its present cost. It looks at the open
// calls on the shorter side of c: those who report are mostly near an end of the list.
func (s *calls) after(c *call) Cost {
	sum := s.charged.minus(c.charged)
	var since, before Cost
	older, newer := c.prev, c
	for {
		if newer == nil {
			return sum.plus(since)
		}
		if older == nil {
			return sum.plus(s.corrected.minus(before))
		}
		since = since.plus(newer.later)
		newer = newer.next
		before = before.plus(older.later)
		older = older.prev
	}
}
