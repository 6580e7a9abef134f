package bucket_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

func TestReleaseOfAHoldIsARamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{MaxWait: -1}))
		o.l.Hold("k", o.start.Add(10*time.Second))
		o.l.Hold("k", o.start.Add(5*time.Second)) // the later one wins
		for i := range 40 {
			o.ask(t.Context(), fmt.Sprint(i), requests(1))
		}
		o.until(10*time.Second - 1)
		o.nobody(t)
		o.until(10 * time.Second)
		for _, size := range []int{1, 2, 4, 8} {
			round := o.left()
			if len(round) != size {
				t.Fatalf("%d left, want %d", len(round), size)
			}
			for i, d := range round {
				if i == size-1 {
					o.nobody(t) // not before all of them are served
				}
				d.grant.Served()
			}
			for _, d := range round {
				d.grant.Settle(requests(1))
			}
		}
	})
}

func TestRampCountsStreamsAsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{MaxWait: -1}))
		o.l.Hold("k", o.start.Add(time.Second))
		for i := range 40 {
			o.ask(t.Context(), fmt.Sprint(i), requests(1))
		}
		o.until(time.Second)
		flying := 0
		for _, more := range []int{1, 1, 2, 4, 8} {
			round := o.left()
			if flying += len(round); len(round) != more {
				t.Fatalf("%d left, want %d", len(round), more)
			}
			for _, d := range round {
				d.grant.Served() // and never ends
			}
		}
	})
}

func TestRampGivesPlacesBack(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(g bucket.Grant)
		at   time.Duration
		next int
	}{
		"a lost call makes room for one":     {func(g bucket.Grant) { g.Settle(requests(1)) }, time.Second, 1},
		"a cancelled call makes room":        {func(g bucket.Grant) { g.Cancel() }, time.Second, 1},
		"a served call doubles":              {func(g bucket.Grant) { g.Served(); g.Settle(requests(1)) }, time.Second, 2},
		"a silent call is given up":          {func(g bucket.Grant) {}, 31 * time.Second, 1},
		"a refusal without hold ends it":     {func(g bucket.Grant) { g.Refused(0) }, time.Second, 9},
		"a refusal with hold starts another": {func(g bucket.Grant) { g.Refused(4 * time.Second) }, 5 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(local(t, bucket.Config{MaxWait: -1}))
				o.l.Hold("k", o.start.Add(time.Second))
				for i := range 10 {
					o.ask(t.Context(), fmt.Sprint(i), requests(1))
				}
				o.until(time.Second)
				g := o.expect(t, "0", time.Second)
				tt.end(g)
				if tt.at > time.Second {
					o.until(tt.at - 1)
					o.nobody(t)
					o.until(tt.at)
				}
				if n := len(o.left()); n != tt.next {
					t.Errorf("%d left, want %d", n, tt.next)
				}
			})
		})
	}
}

func TestACallGivenUpHasLeftTheRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{MaxWait: -1}))
		o.l.Hold("k", o.start.Add(time.Second))
		for i := range 10 {
			o.ask(t.Context(), fmt.Sprint(i), requests(1))
		}
		o.until(time.Second)
		silent := o.expect(t, "0", time.Second)
		o.until(31 * time.Second)
		next := o.expect(t, "1", 31*time.Second)
		silent.Served()
		o.nobody(t)
		silent.Settle(requests(1))
		o.nobody(t)
		next.Served()
		o.expect(t, "2", 31*time.Second)
	})
}

func TestRampEndsWhenALimitBinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 2, Per: 10 * time.Second}}}))
		o.l.Hold("k", o.start.Add(time.Second))
		for i := range 6 {
			o.ask(t.Context(), fmt.Sprint(i), requests(1))
		}
		o.until(time.Second)
		first := o.expect(t, "0", time.Second)
		first.Served()
		o.expect(t, "1", time.Second)
		first.Settle(requests(1)) // now there is room in the ramp, and the level is what binds
		for i := 2; i < 6; i++ {
			at := time.Duration(i-1)*5*time.Second + time.Second
			o.until(at)
			o.expect(t, fmt.Sprint(i), at)
		}
	})
}

func TestLiftWakesTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{}))
		o.l.Lift("k")
		o.l.Hold("k", o.start.Add(time.Hour))
		o.ask(t.Context(), "a", requests(1))
		o.ask(t.Context(), "b", requests(1))
		time.Sleep(time.Second)
		o.l.Lift("k")
		o.expect(t, "a", time.Second).Served()
		o.expect(t, "b", time.Second)
		if s, _ := o.l.Stats("k"); s.HeldFor != 0 {
			t.Errorf("held for %v", s.HeldFor)
		}
	})
}

func TestHoldOfThePastHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := local(t, bucket.Config{})
		l.Hold("k", time.Time{})
		l.Hold("k", time.Now())
		for range 10 {
			if _, wait := l.TakeAt(time.Now(), "k", requests(1)); wait != 0 {
				t.Fatalf("wait %v", wait)
			}
		}
	})
}
