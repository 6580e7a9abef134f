package bucket_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

// Adaptive keeps calls back by what it has learned, and partly by chance, so the instants of the reference
// are not those of its departures. Its promise is that it never lets one go that the limits would not. So the
// same schedules are drawn, and what is checked is the log: each departure against the exact levels that the
// log itself adds up to, and all that the contracts say of it but "at the earliest instant".

// drawAdaptive draws limits, policies and a schedule, of which hinted says whether its refusals are the
// server's own words. When the schedule is over all in flight end every minute for four hours, and once more
// a day later; after another day of quiet there is a last look.
func drawAdaptive(rt *rapid.T, hinted bool) (bucket.Config, []step, time.Duration) {
	cfg := bucket.Config{
		Adaptive:    bucket.AdaptiveOn,
		Limits:      drawLimits(rt),
		MaxWait:     evenly(rt, "patience", []time.Duration{-1, time.Second, 4 * time.Second}),
		MaxInFlight: evenly(rt, "slots", []int{0, 0, 1, 3}),
	}
	if rapid.Bool().Draw(rt, "refuse overdue") {
		cfg.Overdue = bucket.OverdueRefuse
	}
	over := rapid.Bool().Draw(rt, "oversize")
	m := settleMix()
	m.steps, m.crowd = 60, 20
	m.verbs = []verb{arrive, arrive, arrive, arrive, arrive, served, served, served, settle, settle, unsent, refused, hold, lift, giveUp}
	m.holds = []time.Duration{0, 50 * time.Millisecond, time.Second, 20 * time.Second}
	m.again = rapid.Bool().Draw(rt, "again")
	m.costs = func(rt *rapid.T) bucket.Cost {
		c := smallCost(rt)
		if over && rapid.IntRange(0, 9).Draw(rt, "big") == 0 {
			c.InputTokens += 65
		}
		return c
	}
	steps, _, end := drawSchedule(rt, cfg, m)
	for i := range steps {
		steps[i].hinted = hinted && steps[i].verb == refused
	}
	for range 240 {
		end += time.Minute
		steps = append(steps, step{at: end, verb: endAll})
	}
	end += 24 * time.Hour
	steps = append(steps, step{at: end, verb: endAll})
	end += 24 * time.Hour
	return cfg, append(steps, step{at: end, verb: lift}), end + 1
}

// Contracts 1, 3, 4, 5, 7 (debt), 8, 9 and 15 under AdaptiveOn, as far as the log tells:
//   - a call that is not overdue leaves only when all limits cover it, or are full and it is above what they
//     hold; an overdue one only where no limit owes more than its capacity then;
//   - no window admits more than WorstWindow, overdue and oversize calls and what was given back apart;
//   - after every step the levels are those that departures and endings add up to;
//   - nobody leaves before somebody who stood before it and still waits;
//   - nobody leaves under a hold; never are more than MaxInFlight in flight;
//   - under OverdueRefuse nobody waits for longer than MaxWait in which nobody leaves, holds apart;
//   - everybody's wait ends, and after quiet every limit is full.
//
// Hinted refusals may show a window of the server's, whose start fills the limits again, as AdaptiveOn
// says, and until whose end patience stands still: then the levels are not those of the log, and only what
// does not come of them is checked.
//
// Proved able to fail: let account.fits return the pacer's word alone; refund nothing in account.correct; let
// line.first return true; drop the hold in account.look; let it admit one more than MaxInFlight; let patience
// return never; let estimate.ready return never; have pacer.held renew the limits; let meter.bears bear two
// capacities.
func TestContractsHoldUnderAdaptive(t *testing.T) {
	for name, hinted := range map[string]bool{"refusals without a hint": false, "hinted refusals": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				cfg, steps, end := drawAdaptive(rt, hinted)
				p := play(t, cfg, steps, end)
				if p.err != nil {
					rt.Fatal(p.err)
				}
				faults := logOf(cfg, steps, p, !hinted)
				for id, f := range p.fates {
					if f.what == "waiting" {
						faults = append(faults, sprintf("#%d waits to this day", id))
					}
				}
				last := p.views[len(p.views)-1]
				for i, level := range last.levels {
					if level != float64(capacityOf(cfg.Limits[i])) {
						faults = append(faults, sprintf("after a day of quiet: level %v of %+v", level, cfg.Limits[i]))
					}
				}
				if last.queued != 0 || last.inFlight != 0 {
					faults = append(faults, sprintf("after a day of quiet: %+v", last))
				}
				tell(rt, cfg, steps, faults)
			})
		})
	}
}

// A logged call is what the log says of one.
type logged struct {
	cost  bucket.Cost
	came  time.Duration
	place int // the call whose place it has
	where []int
	open  bool
}

// logOf reads the log of a play from its start and lists what the contracts forbid; what comes of the levels
// only on request.
func logOf(cfg bucket.Config, steps []step, p played, levels bool) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, sprintf(format, args...)) }
	meters := newRefKey(cfg).meters
	calls := map[int]*logged{}
	var holds [][2]time.Duration
	heldUntil := func() time.Duration {
		if len(holds) == 0 {
			return 0
		}
		return holds[len(holds)-1][1]
	}
	holdUntil := func(now, until time.Duration) {
		switch {
		case until <= now:
		case heldUntil() > now:
			holds[len(holds)-1][1] = max(until, heldUntil())
		default:
			holds = append(holds, [2]time.Duration{now, until})
		}
	}
	end := func(c *logged, final bucket.Cost, now time.Duration) {
		for i, m := range meters {
			u := m.limit.Unit
			if d := unitsOf(u, final) - unitsOf(u, c.cost); d > 0 {
				m.charge(d, now)
			} else {
				m.refund(c.where[i], -d, now)
			}
		}
		c.open = false
	}
	inFlight := func() (n int) {
		for _, c := range calls {
			if c.open {
				n++
			}
		}
		return n
	}
	regular, given := make([][]admission, len(meters)), make([][]admission, len(meters))
	back := func(c *logged, final bucket.Cost, now time.Duration) {
		for i, m := range meters {
			if d := unitsOf(m.limit.Unit, c.cost) - unitsOf(m.limit.Unit, final); d > 0 {
				given[i] = append(given[i], admission{now, d})
			}
		}
	}
	var departures []time.Duration // those that are not overdue
	seen := func(i int) {
		v := p.views[i]
		if v.levels == nil {
			return // the key is not known yet
		}
		if v.inFlight != inFlight() {
			fault("after step %d: %d in flight, by the log %d", i, v.inFlight, inFlight())
		}
		for j, m := range meters {
			want, _ := m.levelAt(steps[i].at).Float64()
			if levels && math.Abs(v.levels[j]-want) > 1e-6*(1+math.Abs(want)) {
				fault("after step %d: level %v of %+v, by the log %v", i, v.levels[j], m.limit, want)
			}
		}
	}
	look := -1 // the step whose view comes next
	for _, h := range p.log {
		if look >= 0 && (h.left == 0 || h.at > steps[look].at) {
			seen(look)
			look = -1
		}
		if h.left == 0 {
			look = h.step
			s := steps[h.step]
			c := calls[s.call]
			switch s.verb {
			case arrive:
				place := s.call
				if h.met {
					place = calls[s.again].place
				}
				calls[s.call] = &logged{cost: s.cost, came: s.at, place: place}
			case settle, unsent, refused:
				if !h.met {
					break
				}
				final := s.cost // none, for what was not sent
				if s.verb == refused {
					final = bucket.Cost{Requests: c.cost.Requests}
					holdUntil(s.at, s.at+s.hold)
				}
				back(c, final, s.at)
				end(c, final, s.at)
			case hold:
				holdUntil(s.at, s.hold)
			case lift:
				if heldUntil() > s.at {
					holds[len(holds)-1][1] = s.at
				}
			case endAll:
				for _, c := range calls {
					if c.open {
						end(c, c.cost, s.at)
					}
				}
			}
			continue
		}

		c, now, what := calls[h.left], h.at, p.fates[h.left].what
		oversize := false
		c.where = make([]int, len(meters))
		for i, m := range meters {
			n := unitsOf(m.limit.Unit, c.cost)
			switch above := n > capacityOf(m.limit); {
			case !levels:
			case what == "granted" && !m.fits(n, now):
				fault("#%d left at %v at a level of %s of %+v", h.left, now, m.levelAt(now).FloatString(3), m.limit)
			case what == "probe" && !m.fitsOverdue(n, now):
				fault("#%d left overdue at %v at a level of %s of %+v", h.left, now, m.levelAt(now).FloatString(3), m.limit)
			case above:
				oversize = true
			}
			c.where[i] = m.charge(n, now)
		}
		c.open = true
		if n := inFlight(); cfg.MaxInFlight > 0 && n > cfg.MaxInFlight {
			fault("%d in flight at %v", n, now)
		}
		if what == "granted" {
			departures = append(departures, now)
			for i, m := range meters {
				if n := unitsOf(m.limit.Unit, c.cost); !oversize {
					regular[i] = append(regular[i], admission{now, n})
				}
			}
		}
		if now < heldUntil() {
			fault("#%d left at %v, under the hold until %v", h.left, now, heldUntil())
		}
		for id, o := range calls {
			if f := p.fates[id]; id != h.left && o.place < c.place && o.came < now && (f.what == "waiting" || f.at > now) {
				fault("#%d left at %v before #%d", h.left, now, id)
			}
		}
	}
	seen(look)
	if levels {
		faults = append(faults, tooMuch(meters, regular, given)...)
		faults = append(faults, tooPatient(cfg, calls, p, holds, departures)...)
	}
	return faults
}

// tooMuch counts every window from one departure to another; what was given back in it may leave once more.
func tooMuch(meters []*refMeter, regular, given [][]admission) (faults []string) {
	for i, m := range meters {
		for j, a := range regular[i] {
			sum := int64(0)
			for _, b := range regular[i][j:] {
				sum += b.cost
				back := int64(0)
				for _, x := range given[i] {
					if a.at <= x.at && x.at <= b.at {
						back += x.cost
					}
				}
				width := b.at - a.at
				if m.limit.Shape == bucket.Window {
					width++ // both instants count
				}
				if most := m.limit.WorstWindow(width); sum-back > most {
					faults = append(faults, sprintf("%+v: %d left from %v to %v, and %d came back; at most %d may", m.limit, sum, a.at, b.at, back, most))
				}
			}
		}
	}
	return faults
}

// tooPatient looks for somebody who waits for more than MaxWait in which nobody leaves and no hold is, where
// that is refused.
func tooPatient(cfg bucket.Config, calls map[int]*logged, p played, holds [][2]time.Duration, departures []time.Duration) (faults []string) {
	if cfg.MaxWait < 0 || cfg.Overdue != bucket.OverdueRefuse {
		return nil
	}
	free := &refKey{holds: holds}
	for id, c := range calls {
		until := p.fates[id].at
		at := c.came
		for _, d := range slices.Concat(departures, []time.Duration{until}) {
			if d < c.came || d > until {
				continue
			}
			if free.free(d)-free.free(at) > cfg.MaxWait {
				faults = append(faults, sprintf("#%d waited from %v to %v while nobody left", id, at, d))
			}
			at = d
		}
	}
	return faults
}
