package bucket_test

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

// mix says what a drawn schedule is made of.
type mix struct {
	steps  int
	crowd  int             // up to so many of the first steps are arrivals
	pace   []time.Duration // the gaps between steps; a few nanoseconds are added to keep instants apart
	verbs  []verb          // with repetition as weight
	costs  func(*rapid.T) bucket.Cost
	truth  func(*rapid.T, bucket.Cost) bucket.Cost // settle; nil keeps the estimate
	within []time.Duration                         // deadlines; empty: none
	holds  []time.Duration
	meters func(*rapid.T) []bucket.Meter
	served bool          // settle only what was served before
	again  bool          // a refused call comes back at its place at once
	end    time.Duration // how long to look on after the last step
}

// drawSchedule draws a schedule and returns the reference that has lived it.
func drawSchedule(rt *rapid.T, cfg bucket.Config, m mix) ([]step, *refKey, time.Duration) {
	r := newRefKey(cfg)
	var steps []step
	do := func(s step) {
		r.apply(s)
		r.views = append(r.views, r.see())
		steps = append(steps, s)
	}
	n := rapid.IntRange(1, m.steps).Draw(rt, "steps")
	if rapid.Bool().Draw(rt, "many") { // rapid itself prefers few
		n = m.steps - n + 1
	}
	crowd := evenly(rt, "crowd", []int{0, m.crowd / 2, m.crowd})
	now := time.Duration(0)
	calls := 0
	pick := func(name string, ok func(*refCall) bool) int {
		var ids []int
		for id, c := range r.calls {
			if ok(c) {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			return 0
		}
		slices.Sort(ids)
		return evenly(rt, name, ids)
	}
	inFlight := func(c *refCall) bool { return c.inFlight }
	for i := range n {
		if gap := evenly(rt, "gap", m.pace); gap > 0 {
			now += gap - now%1000 + 1000 + time.Duration(i+1)
		}
		r.advance(now)
		s := step{at: now}
		if i >= crowd {
			s.verb = evenly(rt, "verb", m.verbs)
		}
		switch s.verb {
		case arrive:
			calls++
			s.call, s.cost = calls, m.costs(rt)
			if len(m.within) > 0 {
				if s.within = rapid.SampledFrom(m.within).Draw(rt, "within"); s.within > 0 {
					s.within += 500 // no deadline falls on a step
				}
			}
		case giveUp:
			s.call = pick("who", func(c *refCall) bool { return c.waiting })
		case served:
			s.call = pick("who", func(c *refCall) bool { return c.inFlight && !c.headers })
		case refused:
			s.call = pick("who", func(c *refCall) bool { return c.inFlight && !c.headers })
			s.hold = rapid.SampledFrom(m.holds).Draw(rt, "hold")
		case settle:
			s.call = pick("who", func(c *refCall) bool { return c.inFlight && (c.headers || !m.served) })
			if c := r.calls[s.call]; c != nil {
				if s.cost = c.cost; m.truth != nil {
					s.cost = m.truth(rt, c.cost)
				}
			}
		case unsent:
			s.call = pick("who", func(c *refCall) bool { return c.inFlight && !c.headers })
		case report:
			s.call = pick("who", inFlight)
			s.meters = m.meters(rt)
		case hold:
			s.hold = now + rapid.SampledFrom(m.holds).Draw(rt, "hold")
		}
		if s.call == 0 && s.verb != hold && s.verb != lift {
			continue // nobody it could happen to
		}
		do(s)
		if s.verb == refused && m.again {
			calls++
			do(step{at: now, verb: arrive, call: calls, again: s.call, cost: r.calls[s.call].cost})
		}
	}
	end := now + m.end
	r.advance(end)
	return steps, r, end
}

// evenly draws one of choices, each as likely as the other; rapid.SampledFrom prefers the first.
func evenly[T any](rt *rapid.T, name string, choices []T) T {
	i := 0
	for range bits.Len(uint(len(choices)-1)) + 1 {
		i *= 2
		if rapid.Bool().Draw(rt, name) {
			i++
		}
	}
	return choices[i%len(choices)]
}

// checkAgainstReference draws schedules and plays them.
func checkAgainstReference(t *testing.T, config func(*rapid.T) bucket.Config, m func(*rapid.T, bucket.Config) mix) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := config(rt)
		steps, r, end := drawSchedule(rt, cfg, m(rt, cfg))
		if r.tie {
			rt.Skip("the contracts leave it open")
		}
		p := play(t, cfg, steps, end)
		tell(rt, cfg, steps, differences(r, steps, p))
	})
}

// tell fails the draw when there is something to tell.
func tell(rt *rapid.T, cfg bucket.Config, steps []step, faults []string) {
	rt.Helper()
	if len(faults) == 0 {
		return
	}
	text := fmt.Sprintf("limits %+v headroom %v maxWait %v maxQueue %d maxInFlight %d overdue %v oversize %v\n",
		cfg.Limits, cfg.Headroom, cfg.MaxWait, cfg.MaxQueue, cfg.MaxInFlight, cfg.Overdue, cfg.Oversize)
	for _, s := range steps {
		if s.verb != endAll {
			text += "  " + s.String() + "\n"
		}
	}
	for _, f := range faults {
		text += "FAULT " + f + "\n"
	}
	rt.Fatal(text)
}
