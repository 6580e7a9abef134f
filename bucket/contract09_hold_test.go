package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"pgregory.net/rapid"
)

func holdMix() mix {
	return mix{
		steps: 70, crowd: 20, end: 3 * time.Minute,
		pace: []time.Duration{0, 0, 0, 10 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second},
		verbs: []verb{arrive, arrive, arrive, arrive, arrive, arrive, arrive, arrive, arrive, served, served, served, served, served, served,
			served, served, settle, settle, unsent, refused, hold},
		holds: []time.Duration{50 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second},
		costs: smallCost,
		again: true,
	}
}

func drawHeldConfig(rt *rapid.T) bucket.Config {
	cfg := bucket.Config{MaxWait: -1, MaxInFlight: rapid.SampledFrom([]int{0, 0, 3}).Draw(rt, "slots")}
	if rapid.Bool().Draw(rt, "limited") {
		cfg.Limits = []bucket.Limit{{Unit: bucket.Requests, Amount: rapid.Int64Range(5, 100).Draw(rt, "amount"), Per: 10 * time.Second}}
	}
	return cfg
}

// On the log alone. Nobody is admitted under a hold, the later of two holds wins. After a hold, as long as
// nothing else ends the ramp, one call is in flight until it is served, and then no more than twice as many
// as were served since: a number that doubled was served first.
//
// Proved able to fail: let the later call of Hold win instead of the later instant; begin no ramp; double
// it at each admission, or at each answer.
func TestContract09_NobodyUnderAHoldAndARampAfterIt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bucket.Config{MaxWait: -1}
		m := holdMix()
		m.verbs = append(m.verbs, arrive, arrive, arrive)
		steps, r, end := drawSchedule(rt, cfg, m)
		p := play(t, cfg, steps, end)
		var faults []string
		for i, h := range r.holds {
			next := min(end, h[1]+30*time.Second) // then lost calls are waited for no longer
			if i+1 < len(r.holds) {
				next = min(next, r.holds[i+1][0])
			}
			for id, f := range p.fates {
				if f.what == "granted" && h[0] < f.at && f.at < h[1] {
					faults = append(faults, sprintf("#%d left at %v, under the hold from %v to %v", id, f.at, h[0], h[1]))
				}
			}
			for _, f := range p.fates { // look at the instant of every departure
				if f.what != "granted" || f.at < h[1] || f.at >= next {
					continue
				}
				if open, proven := inFlightSince(h[1], f.at, steps, p); open > max(1, 2*proven) {
					faults = append(faults, sprintf("at %v, after the hold until %v: %d in flight, %d served", f.at, h[1], open, proven))
				}
			}
		}
		tell(rt, cfg, steps, faults)
	})
}

// inFlightSince counts, of the calls that left from since on, those in flight at an instant and those served
// by then.
func inFlightSince(since, at time.Duration, steps []step, p played) (open, proven int) {
	for id, f := range p.fates {
		if f.what != "granted" || f.at < since || f.at > at {
			continue
		}
		flying := true
		for _, s := range steps {
			switch {
			case s.call != id || s.at > at:
			case s.verb == served && flying:
				proven++
			case s.verb == settle || s.verb == unsent || s.verb == refused:
				flying = false
			}
		}
		if flying {
			open++
		}
	}
	return open, proven
}

// The whole rule, with limits and slots that end the ramp, refusals that end it and start the next, calls
// lost and calls never sent: the reference's instants.
//
// Proved able to fail: let the ramp outlive the level, MaxInFlight or a refusal; add one instead of
// doubling; keep the place of a call that ended.
func TestContract09_TheRampRunsUntilLevelSlotsOrARefusal(t *testing.T) {
	checkAgainstReference(t, drawHeldConfig, func(*rapid.T, bucket.Config) mix { return holdMix() })
}

// 100 calls behind a hold of 10 s on a key without limits, each served after one second: 1, 2, 4, ... leave.
//
// Proved able to fail: begin no ramp; add one instead of doubling; let the earlier hold win.
func TestContract09_TheReleaseIsARampNotAPour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{})
		start := time.Now()
		local.Hold(theKey, start.Add(10*time.Second))
		local.Hold(theKey, start.Add(3*time.Second)) // the later of two wins
		left := make(chan time.Duration, 100)
		for range 100 {
			go func() {
				g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
				if err != nil {
					return
				}
				left <- time.Since(start)
				time.Sleep(time.Second)
				g.Served()
				g.Settle(bucket.Cost{Requests: 1})
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		per := map[time.Duration]int{}
		for range len(left) {
			per[<-left]++
		}
		for i, want := range []int{1, 2, 4, 8, 16, 32, 37} {
			if at := time.Duration(10+i) * time.Second; per[at] != want {
				t.Errorf("%d left at %v, want %d (%v)", per[at], at, want, per)
			}
		}
	})
}

// A refusal ends the ramp and its hold begins another from one.
//
// Proved able to fail: keep the width of the ramp over a refusal; ignore the hold of Refused.
func TestContract09_ARefusalStartsFromOneAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{})
		start := time.Now()
		local.Hold(theKey, start.Add(time.Second))
		grants := make(chan bucket.Grant, 100)
		for range 100 {
			go func() {
				if g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1}); err == nil {
					grants <- g
				}
			}()
		}
		round := func(want int) (out []bucket.Grant) {
			t.Helper()
			synctest.Wait()
			if len(grants) != want {
				t.Fatalf("at %v a round of %d, want %d", time.Since(start), len(grants), want)
			}
			for range want {
				out = append(out, <-grants)
			}
			return out
		}
		serve := func(gs []bucket.Grant) {
			for _, g := range gs {
				g.Served()
				g.Settle(bucket.Cost{Requests: 1})
			}
		}
		time.Sleep(time.Second)
		serve(round(1))
		serve(round(2))
		four := round(4)
		serve(four[:3])
		synctest.Wait()
		for len(grants) > 0 { // places given back by the served three
			four = append(four, <-grants)
		}
		for _, g := range four[3:] {
			g.Refused(2 * time.Second)
		}
		time.Sleep(2*time.Second - 1)
		round(0)
		time.Sleep(time.Nanosecond)
		serve(round(1))
		serve(round(2))
		for _, g := range round(4) {
			g.Cancel()
		}
		synctest.Wait()
		for len(grants) > 0 {
			(<-grants).Served()
			synctest.Wait()
		}
	})
}

// Lift ends the hold at once; a hold in the past is none.
//
// Proved able to fail: make Lift do nothing; begin a ramp for a hold in the past; forget the hold in
// TakeAt's wait.
func TestContract09_LiftEndsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{})
		start := time.Now()
		local.Hold(theKey, start.Add(-time.Hour))
		for range 3 { // and no ramp follows it
			if _, wait := local.TakeAt(start, theKey, bucket.Cost{}); wait != 0 {
				t.Errorf("after a hold in the past: wait %v", wait)
			}
		}
		local.Hold(theKey, start.Add(time.Hour))
		if s, _ := local.Stats(theKey); s.HeldFor != time.Hour {
			t.Errorf("held for %v, want 1h", s.HeldFor)
		}
		if _, wait := local.TakeAt(start, theKey, bucket.Cost{}); wait != time.Hour {
			t.Errorf("TakeAt under the hold: wait %v, want 1h", wait)
		}
		local.Lift(theKey)
		local.Lift(theKey)
		local.Lift("unknown")
		if s, _ := local.Stats(theKey); s.HeldFor != 0 {
			t.Errorf("held for %v after Lift", s.HeldFor)
		}
		if _, wait := local.TakeAt(start, theKey, bucket.Cost{}); wait != 0 {
			t.Errorf("TakeAt after Lift: wait %v", wait)
		}
	})
}

// What else ends the ramp: when the level, or MaxInFlight, is what keeps the head back, the ramp is over, and
// what is given back then goes to as many as it is enough for.
//
// Proved able to fail: do not end the ramp where the level keeps the head back; nor where MaxInFlight does.
func TestContract09_LevelOrSlotsEndTheRamp(t *testing.T) {
	for name, cfg := range map[string]bucket.Config{
		"level":       {MaxWait: -1, Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 10, Per: 1000 * time.Hour}}},
		"MaxInFlight": {MaxWait: -1, MaxInFlight: 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local := newLocal(t, cfg)
				var before []bucket.Grant
				for range 10 { // all there is
					g, _ := local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
					before = append(before, g)
				}
				local.Hold(theKey, time.Now().Add(time.Second))
				var waiting []func() (time.Time, bool)
				for range 8 {
					waiting = append(waiting, arriveInBackground(t, local, bucket.Cost{Requests: 1}))
				}
				left := func() (n int) {
					for _, w := range waiting {
						if _, done := w(); done {
							n++
						}
					}
					return n
				}
				time.Sleep(2 * time.Second)
				if n := left(); n != 0 {
					t.Errorf("%d left after the hold, when there was nothing", n)
				}
				for i, g := range before[:5] {
					g.Cancel()
					if n := left(); n != i+1 {
						t.Errorf("%d left when %d had been given back", n, i+1)
					}
				}
			})
		})
	}
}

// A call that ends unserved makes room in the round, but does not prove it.
//
// Proved able to fail: count a call that ended unserved as proof; double at each answer.
func TestContract09_ALostCallDoesNotProveTheRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxWait: -1})
		local.Hold(theKey, time.Now().Add(time.Second))
		grants := make(chan bucket.Grant, 50)
		for range 50 {
			go func() {
				if g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1}); err == nil {
					grants <- g
				}
			}()
		}
		var out []bucket.Grant
		expect := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if len(grants) != want {
				t.Errorf("%s: %d more left, want %d", when, len(grants), want)
			}
			for len(grants) > 0 {
				out = append(out, <-grants)
			}
		}
		end := func(served bool) {
			if len(out) == 0 {
				t.Fatal("nobody is out")
			}
			g := out[0]
			out = out[1:]
			if served {
				g.Served()
			}
			g.Settle(bucket.Cost{Requests: 1})
		}
		time.Sleep(time.Second)
		expect("after the hold", 1)
		end(false)
		expect("a lost first", 1)
		end(true)
		expect("a served first", 2)
		end(false)
		expect("one of two lost", 1)
		end(true)
		expect("one of two served", 1)
		end(true)
		expect("two of two served", 3)
	})
}
