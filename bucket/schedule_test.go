package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// A schedule is drawn whole, as data, with the reference at hand so that its steps meet calls that are
// really waiting or in flight; then it is played to a Local inside a bubble of virtual time, and what the
// calls were told is compared with what the reference told them, to the nanosecond.

type verb uint8

const (
	arrive  verb = iota // a call asks for admission
	giveUp              // its caller cancels the context
	served              // the headers of an accepted answer are here
	refused             // the server refused it and asks for a hold
	settle              // it ended, its true cost is known
	unsent              // it was never sent
	report              // its answer says what is left
	hold                // the key is held until an instant
	lift                // the hold is lifted
	endAll              // all that are in flight end, at what they were estimated; for after a schedule
)

var verbNames = [...]string{"arrive", "giveUp", "served", "refused", "settle", "unsent", "report", "hold", "lift", "endAll"}

// step is one thing that happens to a key. Calls are numbered from 1; 0 is none.
type step struct {
	at     time.Duration
	verb   verb
	call   int
	again  int           // arrive: the call whose place in line it comes back to
	cost   bucket.Cost   // arrive: the estimate; settle: the truth
	within time.Duration // arrive: the deadline, counted from at; 0 is none
	hold   time.Duration // refused: how long from at; hold: the instant
	hinted bool          // refused: the server said so itself
	meters []bucket.Meter
}

func (s step) String() string {
	out := fmt.Sprintf("%v %s", s.at, verbNames[s.verb])
	if s.call > 0 {
		out += fmt.Sprintf(" #%d", s.call)
	}
	if s.verb == arrive || s.verb == settle {
		out += fmt.Sprintf(" %+v", s.cost)
	}
	if s.again > 0 {
		out += fmt.Sprintf(" at the place of #%d", s.again)
	}
	if s.within > 0 {
		out += fmt.Sprintf(" within %v", s.within)
	}
	if s.hold > 0 {
		out += fmt.Sprintf(" hold %v", s.hold)
	}
	if s.hinted {
		out += " hinted"
	}
	if s.meters != nil {
		out += fmt.Sprintf(" %+v", s.meters)
	}
	return out
}

const theKey = "https://api.example.com:443"

// played is the transcript of a schedule played to a Local.
type played struct {
	fates  map[int]fate
	grants map[int]bucket.Grant
	views  []view      // after every step
	log    []happening // in the order in which it happened
	err    error       // New's
}

// happening is a line of the log: a call that left, or a step that was done.
type happening struct {
	at   time.Duration
	left int  // the call; 0 for a step
	step int  // its index
	met  bool // the call of the step was in flight, or the one it comes back for had been
}

// play plays a schedule to a fresh Local and lets time run on until the end.
func play(t *testing.T, cfg bucket.Config, steps []step, end time.Duration) played {
	t.Helper()
	var p played
	synctest.Test(t, func(t *testing.T) { p = playInBubble(cfg, steps, end) })
	return p
}

func playInBubble(cfg bucket.Config, steps []step, end time.Duration) played {
	p := played{fates: map[int]fate{}, grants: map[int]bucket.Grant{}}
	local, err := bucket.New(cfg)
	if err != nil {
		p.err = err
		return p
	}
	start := time.Now()
	var (
		mu      sync.Mutex // guards p against the calls' goroutines
		cancels = map[int]context.CancelFunc{}
		costs   = map[int]bucket.Cost{}
		ended   = map[int]bool{}
	)
	sleepUntil := func(at time.Duration) {
		time.Sleep(at - time.Since(start))
		synctest.Wait() // what was due at this instant comes first
	}
	for i, s := range steps {
		sleepUntil(s.at)
		mu.Lock()
		g, granted := p.grants[s.call]
		first, returns := p.grants[s.again]
		p.log = append(p.log, happening{at: s.at, step: i, met: granted && !ended[s.call] || returns})
		ended[s.call] = ended[s.call] || granted && (s.verb == refused || s.verb == settle || s.verb == unsent)
		open := maps.Clone(p.grants)
		mu.Unlock()
		switch s.verb {
		case arrive:
			ctx, cancel := context.WithCancel(context.Background())
			if s.within > 0 {
				ctx, cancel = context.WithTimeout(context.Background(), s.within)
			}
			if returns {
				ctx = bucket.WithPlace(ctx, first.Place())
			}
			cancels[s.call], costs[s.call] = cancel, s.cost
			mu.Lock()
			p.fates[s.call] = fate{what: "waiting"}
			mu.Unlock()
			go func() {
				g, err := local.Acquire(ctx, theKey, s.cost)
				f := fateOf(g, err)
				f.at = time.Since(start)
				mu.Lock()
				defer mu.Unlock()
				p.fates[s.call] = f
				if err == nil {
					p.grants[s.call] = g
					p.log = append(p.log, happening{at: f.at, left: s.call})
				}
			}()
		case giveUp:
			if cancel := cancels[s.call]; cancel != nil {
				cancel()
			}
		case served:
			if granted {
				g.Served()
			}
		case refused:
			switch {
			case granted && s.hinted:
				g.RefusedHinted(s.hold, s.hold)
			case granted:
				g.Refused(s.hold)
			}
		case settle:
			if granted {
				g.Settle(s.cost)
			}
		case unsent:
			if granted {
				g.Cancel()
			}
		case report:
			if granted {
				g.Report(s.meters...)
			}
		case hold:
			local.Hold(theKey, start.Add(s.hold))
		case lift:
			local.Lift(theKey)
		case endAll:
			for _, id := range slices.Sorted(maps.Keys(open)) {
				open[id].Settle(costs[id])
			}
		}
		synctest.Wait()
		p.views = append(p.views, viewOf(local, theKey))
	}
	sleepUntil(end)
	mu.Lock()
	seen := make(map[int]fate, len(p.fates))
	for id, f := range p.fates {
		seen[id] = f
	}
	grants := maps.Clone(p.grants) // whoever moves up while the others are sent away is not in the play
	mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	p.fates, p.grants = seen, grants
	return p
}

func fateOf(g bucket.Grant, err error) fate {
	var tooLong *bucket.WaitError
	switch {
	case err == nil && g.Overdue():
		return fate{what: "probe"}
	case err == nil:
		return fate{what: "granted"}
	case errors.Is(err, bucket.ErrOverdue):
		return fate{what: "overdue"}
	case errors.Is(err, bucket.ErrQueueFull):
		return fate{what: "full"}
	case errors.Is(err, bucket.ErrOversize):
		return fate{what: "oversize"}
	case errors.As(err, &tooLong) && errors.Is(err, context.DeadlineExceeded):
		return fate{what: "doomed", wait: tooLong.Wait}
	case errors.Is(err, context.DeadlineExceeded):
		return fate{what: "deadline"}
	case errors.Is(err, context.Canceled):
		return fate{what: "cancelled"}
	default:
		return fate{what: "error: " + err.Error()}
	}
}

func viewOf(local *bucket.Local, key string) view {
	s, ok := local.Stats(key)
	if !ok {
		return view{}
	}
	v := view{queued: s.Queued, inFlight: s.InFlight}
	for _, l := range s.Levels {
		v.levels = append(v.levels, l.Available)
	}
	return v
}

// differences lists where a played schedule departs from the reference.
func differences(r *refKey, steps []step, p played) []string {
	var out []string
	if p.err != nil {
		return []string{"New: " + p.err.Error()}
	}
	for _, s := range steps {
		if s.verb != arrive {
			continue
		}
		want, got := r.fates[s.call], p.fates[s.call]
		if got.what == "deadline" && want.what == "doomed" || got.what == "doomed" && want.what == "deadline" {
			got.what = want.what // a deadline met while waiting may be told either way
			got.wait = want.wait
		}
		if got.what == "doomed" && want.what == "full" || got.what == "full" && want.what == "doomed" {
			got.what, got.wait = want.what, want.wait // who is both is told either
		}
		if want.wait == 0 {
			got.wait = 0
		}
		if g, ok := p.grants[s.call]; ok && g.Waited() != got.at-s.at {
			out = append(out, fmt.Sprintf("call #%d waited %v, its grant says %v", s.call, got.at-s.at, g.Waited()))
		}
		if got != want {
			out = append(out, fmt.Sprintf("call #%d: %s at %v (wait %v), the reference says %s at %v (wait %v)",
				s.call, got.what, got.at, got.wait, want.what, want.at, want.wait))
		}
	}
	for i, got := range p.views {
		want := r.views[i]
		if got.queued != want.queued || got.inFlight != want.inFlight || !closeTo(got.levels, want.levels) {
			if got.levels == nil && got.queued == 0 && got.inFlight == 0 {
				continue // the key is not known yet
			}
			out = append(out, fmt.Sprintf("after step %d (%v): seen %+v, the reference says %+v", i, steps[i], got, want))
		}
	}
	return out
}

func closeTo(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= 1e-6*(1+math.Abs(y)) })
}
