package bucket_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// once is a limit of one request in ten minutes, far beyond MaxWait.
var once = bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 3, Per: time.Hour}}}

func drained(t *testing.T, c bucket.Config) *office {
	t.Helper()
	l := local(t, c)
	if _, wait := l.TakeAt(time.Now(), "k", requests(3)); wait != 0 {
		t.Fatal("not full")
	}
	return open(l)
}

func TestOverdueWaitersLeaveOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := drained(t, once)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			o.ask(t.Context(), name, requests(1))
		}
		o.until(30*time.Second - 1)
		o.nobody(t)
		o.until(30 * time.Second)
		a := o.expect(t, "a", 30*time.Second)
		if !a.Overdue() {
			t.Error("a is not overdue")
		}
		o.until(40 * time.Second)
		o.nobody(t)
		a.Served()
		b := o.expect(t, "b", 40*time.Second)
		b.Refused(7 * time.Second)
		o.until(47*time.Second - 1)
		o.nobody(t)
		o.until(47 * time.Second)
		c := o.expect(t, "c", 47*time.Second)
		o.until(77*time.Second - 1)
		o.nobody(t)
		o.until(77 * time.Second) // c gives no answer
		o.nobody(t)               // a and b and c are all the debt there may be, but for what was refilled
		s, _ := o.l.Stats("k")
		if got := s.Levels[0].Available; got < -3 || got > -2.9 {
			t.Errorf("level %v", got)
		}
		c.Settle(requests(0)) // one comes back
		o.expect(t, "d", 77*time.Second)
	})
}

func TestPatienceStandsStillUnderAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := drained(t, once)
		o.ask(t.Context(), "a", requests(1))
		o.until(20 * time.Second)
		o.l.Hold("k", o.start.Add(100*time.Second))
		o.until(50 * time.Second)
		o.l.Hold("k", o.start.Add(200*time.Second))
		o.until(210*time.Second - 1)
		o.nobody(t)
		o.until(210 * time.Second)
		o.expect(t, "a", 210*time.Second)
	})
}

func TestPatienceGoesOnBetweenHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := drained(t, once)
		o.ask(t.Context(), "a", requests(1))
		o.until(5 * time.Second)
		o.l.Hold("k", o.start.Add(15*time.Second))
		o.until(20 * time.Second)
		o.l.Hold("k", o.start.Add(25*time.Second))
		o.until(26 * time.Second)
		o.l.Hold("k", o.start.Add(100*time.Second))
		o.until(27 * time.Second)
		o.l.Lift("k")
		o.until(46*time.Second - 1)
		o.nobody(t)
		o.until(46 * time.Second) // 16 s of holds
		o.expect(t, "a", 46*time.Second)
	})
}

func TestMovingQueueIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 6, Per: 2 * time.Minute, Burst: 1}}}))
		for range 10 {
			o.ask(t.Context(), "x", requests(1))
		}
		o.until(5 * time.Minute)
		for i, d := range o.left() {
			if d.grant.Overdue() || d.at != time.Duration(i)*20*time.Second {
				t.Errorf("%d left at %v, overdue %v", i, d.at, d.grant.Overdue())
			}
		}
	})
}

func TestOverdueRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := once
		c.Overdue, c.MaxWait = bucket.OverdueRefuse, 5*time.Second
		o := drained(t, c)
		o.ask(t.Context(), "a", requests(1))
		o.until(time.Second)
		o.ask(t.Context(), "b", requests(1))
		o.until(5 * time.Second)
		all := o.left()
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		var wait *bucket.WaitError
		if err := all[0].err; !errors.As(err, &wait) || !errors.Is(err, bucket.ErrOverdue) || !errors.Is(err, context.DeadlineExceeded) ||
			wait.Wait != 20*time.Minute-5*time.Second || wait.Unit != bucket.Requests || wait.Key != "k" {
			t.Errorf("%#v", err)
		}
		o.until(6 * time.Second)
		if all := o.left(); len(all) != 1 || all[0].name != "b" || !errors.Is(all[0].err, bucket.ErrOverdue) {
			t.Errorf("%+v", all)
		}
	})
}

func TestNegativeMaxWaitIsNeverOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := once
		c.MaxWait = -1
		o := drained(t, c)
		o.ask(t.Context(), "a", requests(1))
		o.until(20*time.Minute - 1)
		o.nobody(t)
		o.until(20 * time.Minute)
		o.expect(t, "a", 20*time.Minute)
	})
}

func TestReturningProbeDoesNotKeepOthersWaitingForAnotherMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := drained(t, once)
		o.ask(t.Context(), "a", requests(1))
		o.ask(t.Context(), "b", requests(1))
		o.until(30 * time.Second)
		a := o.expect(t, "a", 30*time.Second)
		a.Refused(5 * time.Second)
		o.ask(bucket.WithPlace(t.Context(), a.Place()), "a again", requests(1))
		o.until(35 * time.Second)
		o.expect(t, "a again", 35*time.Second).Served()
		o.expect(t, "b", 35*time.Second)
	})
}

func TestOverdueRefuseAppliesToSlotsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{MaxInFlight: 1, Overdue: bucket.OverdueRefuse, MaxWait: 5 * time.Second}))
		o.ask(t.Context(), "a", requests(1))
		a := o.expect(t, "a", 0)
		o.until(3 * time.Second)
		o.ask(t.Context(), "b", requests(1))
		o.until(8 * time.Second)
		if all := o.left(); len(all) != 1 || !errors.Is(all[0].err, bucket.ErrOverdue) || all[0].at != 8*time.Second {
			t.Errorf("%+v", all)
		}
		a.Settle(requests(1))
		o.ask(t.Context(), "c", requests(1))
		o.expect(t, "c", 8*time.Second)
	})
}

func TestSlotsBindProbesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := once
		c.MaxInFlight = 1
		o := open(local(t, c))
		o.ask(t.Context(), "a", requests(3))
		a := o.expect(t, "a", 0)
		o.ask(t.Context(), "b", requests(1))
		o.until(time.Minute)
		o.nobody(t)
		a.Settle(requests(3))
		if g := o.expect(t, "b", time.Minute); !g.Overdue() {
			t.Error("b is no probe")
		}
	})
}
