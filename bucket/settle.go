package bucket

import "time"

// serve: the answer's headers are here.
func (c *call) serve(id uint64) {
	if c.foreign != nil {
		c.foreign.Served(id)
		return
	}
	a := c.account
	a.mu.Lock()
	if c.id == id && !c.served {
		c.served = true
		a.answered(c)
		if p := a.pacer; p != nil {
			p.landed()
			if p.measures() {
				p.proved(a, a.tick(a.local.now()), c)
				if a.line.len() > 0 {
					a.raise(a.clock)
				}
			}
		}
		a.ramp.served(c)
		a.moveUp()
	}
	a.mu.Unlock()
}

// settle: what it really cost.
func (c *call) settle(id uint64, cost Cost) {
	if c.foreign != nil {
		c.foreign.Settle(id, cost)
		return
	}
	cost = Cost{max(cost.Requests, 0), max(cost.InputTokens, 0), max(cost.OutputTokens, 0)}.clamped()
	a := c.account
	a.mu.Lock()
	if c.id == id {
		a.close(c, cost)
		a.moveUp()
	}
	a.mu.Unlock()
}

// cancel: never sent.
func (c *call) cancel(id uint64) {
	if c.foreign != nil {
		c.foreign.Cancel(id)
		return
	}
	a := c.account
	a.mu.Lock()
	if c.id == id {
		a.close(c, Cost{})
		a.moveUp()
	}
	a.mu.Unlock()
}

// refuse: by the server, which asks to wait for hint.
func (c *call) refuse(id uint64, span, hint time.Duration) {
	if c.foreign != nil {
		if h, ok := c.foreign.(interface {
			RefusedHinted(id uint64, hold, hint time.Duration)
		}); ok && hint != unhinted {
			h.RefusedHinted(id, span, hint)
		} else {
			c.foreign.Refused(id, span)
		}
		return
	}
	a := c.account
	a.mu.Lock()
	if c.id == id {
		now := a.tick(a.local.now())
		if a.pacer != nil {
			a.pacer.lesson(a, now, c, hint, a.infer(now, c, hint))
		}
		a.attribute(c)
		cost := c.cost
		a.close(c, Cost{Requests: cost.Requests})
		if now >= a.hold.until {
			a.ramp.end()
		}
		if span > 0 {
			a.holdUntil(now, later(now, int64(span)))
		}
		if a.pacer != nil {
			a.pacer.held(a, now, cost, hint)
			if hint >= 0 && len(a.meters) == 0 {
				a.ramp.end() // alone is slow enough to find the next refusal
			}
		}
		a.moveUp()
	}
	a.mu.Unlock()
}

// close ends the grant of c, which came to cost final: it corrects the meters and frees whatever
// place c had.
func (a *account) close(c *call, final Cost) {
	if final != c.cost {
		a.correct(c, final)
	}
	a.answered(c)
	if a.pacer != nil && !c.served {
		a.pacer.landed()
	}
	if a.ramp.size > 0 {
		a.ramp.leave(c)
	}
	a.calls.end(c, final)
}

// correct charges or refunds the difference between what c was charged and what it came to. A
// refund acts at the time of the admission and needs no clock; it is dropped where c's own answer
// has stated the level, and where the meter never charged c. An extra charge acts now.
func (a *account) correct(c *call, final Cost) {
	if a.pacer != nil {
		a.pacer.correct(a, c, final)
	}
	for i := range a.meters {
		m := &a.meters[i]
		was, is := m.share(c.cost), m.share(final)
		switch {
		case is > was:
			now := a.tick(a.local.now())
			m.catchUp(now)
			m.charge(now, is-was)
		case is < was && c.number >= m.born && c.stated>>m.slot&1 == 0:
			if m.log != nil {
				m.log.refund(c.logged[m.slot], was-is)
			} else {
				m.cell.refund(was - is)
			}
		}
	}
}
