package bucket_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

func local(t testing.TB, c bucket.Config) *bucket.Local {
	t.Helper()
	l, err := bucket.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func requests(n int64) bucket.Cost { return bucket.Cost{Requests: n} }

// departure is how one Acquire ended.
type departure struct {
	name  string
	at    time.Duration // since the start
	grant bucket.Grant
	err   error
}

// office collects the departures of goroutines that acquire on one key.
type office struct {
	l     *bucket.Local
	start time.Time
	out   chan departure
}

func open(l *bucket.Local) *office {
	return &office{l: l, start: time.Now(), out: make(chan departure, 1000)}
}

// ask acquires in a goroutine of its own, which stands in line when ask returns.
func (o *office) ask(ctx context.Context, name string, cost bucket.Cost) {
	go func() {
		g, err := o.l.Acquire(ctx, "k", cost)
		o.out <- departure{name, time.Since(o.start), g, err}
	}()
	synctest.Wait()
}

// left returns the departures so far, in order.
func (o *office) left() (all []departure) {
	synctest.Wait()
	for {
		select {
		case d := <-o.out:
			all = append(all, d)
		default:
			return all
		}
	}
}

// expect fails unless exactly one call left by now, with this name, at this time.
func (o *office) expect(t *testing.T, name string, at time.Duration) bucket.Grant {
	t.Helper()
	all := o.left()
	if len(all) != 1 || all[0].name != name || all[0].at != at || all[0].err != nil {
		t.Fatalf("left: %+v; want %s at %v", all, name, at)
	}
	return all[0].grant
}

func (o *office) nobody(t *testing.T) {
	t.Helper()
	if all := o.left(); len(all) > 0 {
		t.Fatalf("left: %+v; want nobody", all)
	}
}

// until sleeps to an instant after the start.
func (o *office) until(at time.Duration) {
	time.Sleep(at - time.Since(o.start))
	synctest.Wait()
}

func TestWorkedExampleOfTheTokenBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		l := local(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
		start := time.Now()
		level := func() float64 {
			s, _ := l.Stats("k")
			return s.Levels[0].Available
		}
		for _, step := range []struct {
			at   time.Duration
			take int64
			left float64
		}{{0, 20, 40}, {10 * time.Second, 30, 20}, {30 * time.Second, 0, 40}} {
			if _, wait := l.TakeAt(start.Add(step.at), "k", requests(step.take)); wait != 0 {
				t.Fatalf("at %v: wait %v", step.at, wait)
			}
			if got := level(); got != step.left {
				t.Errorf("at %v: %v left, want %v", step.at, got, step.left)
			}
		}
		// An hour idle earns a brim and no more.
		later := start.Add(time.Hour)
		if _, wait := l.TakeAt(later, "k", requests(60)); wait != 0 {
			t.Errorf("a full bucket makes its brim wait %v", wait)
		}
		if _, wait := l.TakeAt(later, "k", requests(1)); wait != time.Second {
			t.Errorf("the 61st waits %v, want 1s", wait)
		}
	})
}

func TestWaitersLeaveInOrderAtTheExactNanosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 7, Per: time.Second, Burst: 1}}}))
		ctx := t.Context()
		for _, name := range []string{"a", "b", "c", "d"} {
			o.ask(ctx, name, requests(1))
		}
		o.expect(t, "a", 0)
		for i, name := range []string{"b", "c", "d"} {
			at := time.Duration((int64(i+1)*1e9 + 6) / 7)
			o.until(at - 1)
			o.nobody(t)
			o.until(at)
			if g := o.expect(t, name, at); g.Waited() != at || g.Overdue() {
				t.Errorf("%s waited %v", name, g.Waited())
			}
		}
	})
}

func TestSuccessorOfACancelledHeadMovesUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 60)}}))
		o.ask(t.Context(), "first", bucket.Cost{InputTokens: 50})
		o.expect(t, "first", 0)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("tab closed")
		o.ask(ctx, "big", bucket.Cost{InputTokens: 40})
		o.ask(t.Context(), "small", bucket.Cost{InputTokens: 10})
		o.nobody(t)
		time.Sleep(time.Second)
		cancel(cause)
		all := o.left()
		if len(all) != 2 {
			t.Fatalf("left: %+v", all)
		}
		for _, d := range all {
			if d.name == "big" && (!errors.Is(d.err, context.Canceled) || !errors.Is(d.err, cause)) {
				t.Errorf("big: %v", d.err)
			}
			if d.at != time.Second || d.name == "small" && d.err != nil {
				t.Errorf("%+v", d)
			}
		}
		if s, _ := o.l.Stats("k"); s.Queued != 0 || s.InFlight != 2 || s.Levels[0].Available != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestSettlingWakesTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}}))
		o.ask(t.Context(), "a", bucket.Cost{InputTokens: 900})
		a := o.expect(t, "a", 0)
		o.ask(t.Context(), "b", bucket.Cost{InputTokens: 500})
		time.Sleep(time.Second)
		a.Settle(bucket.Cost{InputTokens: 100, OutputTokens: 300})
		o.expect(t, "b", time.Second)
		a.Settle(bucket.Cost{})
		a.Cancel()
		a.Refused(time.Hour)
		a.Served()
		if s, _ := o.l.Stats("k"); s.InFlight != 1 || s.HeldFor != 0 || s.Levels[0].Available > 117 || s.Levels[0].Available < 116 {
			t.Errorf("%+v", s)
		}
	})
}

func TestReturningCallKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 1, Per: time.Second}}}))
		o.ask(t.Context(), "a", requests(1))
		a := o.expect(t, "a", 0)
		o.ask(t.Context(), "b", requests(1))
		o.ask(t.Context(), "c", requests(1))
		a.Refused(5 * time.Second)
		o.ask(bucket.WithPlace(t.Context(), a.Place()), "a again", requests(1))
		o.until(5*time.Second - 1)
		o.nobody(t)
		o.until(5 * time.Second)
		g := o.expect(t, "a again", 5*time.Second)
		if g.Place() != a.Place() {
			t.Error("the place is not the first one")
		}
		g.Served()
		o.until(6 * time.Second)
		o.expect(t, "b", 6*time.Second)
		o.until(7 * time.Second)
		o.expect(t, "c", 7*time.Second)
	})
}

func TestOnlyTheHeadTakesASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{MaxInFlight: 1, MaxQueue: 2}))
		o.ask(t.Context(), "a", requests(1))
		a := o.expect(t, "a", 0)
		o.ask(t.Context(), "b", requests(1))
		o.ask(t.Context(), "c", requests(1))
		o.ask(t.Context(), "d", requests(1))
		if all := o.left(); len(all) != 1 || all[0].err != bucket.ErrQueueFull {
			t.Fatalf("%+v", all)
		}
		a.Served()
		time.Sleep(time.Hour) // streaming
		o.nobody(t)
		if s, _ := o.l.Stats("k"); s.OldestSlot != time.Hour || s.Queued != 2 {
			t.Errorf("%+v", s)
		}
		a.Settle(requests(1))
		o.expect(t, "b", time.Hour).Cancel()
		o.expect(t, "c", time.Hour)
	})
}

func TestTimeStandsStillForWhoeverComesLate(t *testing.T) {
	for _, limit := range []bucket.Limit{
		{Unit: bucket.Requests, Amount: 2, Per: 10 * time.Second, Shape: bucket.Window},
		{Unit: bucket.Requests, Amount: 1, Per: 5 * time.Second, Burst: 2},
	} {
		l := local(t, bucket.Config{Limits: []bucket.Limit{limit}})
		start := time.Now()
		at := func(after time.Duration, want time.Duration) {
			t.Helper()
			if _, wait := l.TakeAt(start.Add(after), "k", requests(1)); wait != want {
				t.Errorf("%v at %v: wait %v, want %v", limit.Shape, after, wait, want)
			}
		}
		back := time.Duration(0)
		if limit.Shape == bucket.Window {
			back = 5 * time.Second
		}
		at(10*time.Second, 0)
		at(0, 0) // counts as at 10 s
		at(3*time.Second, 12*time.Second+back)
		at(15*time.Second-1+back, 1)
		at(20*time.Second, 0)
		at(20*time.Second, 0)
		at(20*time.Second, 5*time.Second+back)
	}
}

func TestAHoldThatIsOverStaysOver(t *testing.T) {
	l := local(t, bucket.Config{})
	start := time.Now()
	l.Hold("k", start.Add(10*time.Second))
	g, wait := l.TakeAt(start.Add(11*time.Second), "k", requests(1))
	if wait != 0 {
		t.Fatalf("wait %v after the hold", wait)
	}
	g.Served()
	if _, wait := l.TakeAt(start.Add(9*time.Second), "k", requests(1)); wait != 0 {
		t.Errorf("wait %v for a clock that stepped back", wait)
	}
}

func TestNothingWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tpm := []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}
		o := open(local(t, bucket.Config{Limits: tpm}))
		o.ask(t.Context(), "oversize", bucket.Cost{InputTokens: 1500})
		o.expect(t, "oversize", 0)
		o.ask(t.Context(), "next", bucket.Cost{InputTokens: 1})
		o.until(time.Minute)
		// 501 tokens are 30.06 s; MaxWait is 30 s, and a debt of half a bucket is bearable.
		if g := o.expect(t, "next", 30*time.Second); !g.Overdue() {
			t.Error("next is not overdue")
		}

		o = open(local(t, bucket.Config{Limits: tpm, Oversize: bucket.OversizeRefuse}))
		_, err := o.l.Acquire(t.Context(), "k", bucket.Cost{InputTokens: 1500})
		var big *bucket.OversizeError
		if !errors.As(err, &big) || !errors.Is(err, bucket.ErrOversize) || big.Cost != 1500 || big.Capacity != 1000 {
			t.Errorf("%v", err)
		}
		if _, wait := o.l.TakeAt(time.Now(), "k", bucket.Cost{InputTokens: 1500}); wait < 1<<62 {
			t.Errorf("wait %v", wait)
		}
	})
}

func TestBadCostsAndEndedContextsTakeNothing(t *testing.T) {
	l := local(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
	for _, cost := range []bucket.Cost{{Requests: -1}, {InputTokens: -1}, {OutputTokens: -1}} {
		if _, err := l.Acquire(t.Context(), "k", cost); err == nil {
			t.Errorf("%+v was granted", cost)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Acquire(ctx, "k", requests(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	if len(l.Keys()) != 0 {
		t.Error("a key was made")
	}
	var g bucket.Grant
	g.Served()
	g.Report(bucket.Meter{})
	g.Refused(time.Second)
	g.Settle(requests(1))
	g.Cancel()
}

func TestImmediateGrantAllocatesNothing(t *testing.T) {
	l := local(t, bucket.Config{Limits: []bucket.Limit{
		bucket.PerMinute(bucket.Requests, 1e9), bucket.PerMinute(bucket.Tokens, 1e12),
		{Unit: bucket.Requests, Amount: 1e9, Per: time.Hour, Shape: bucket.Window},
	}})
	ctx := t.Context()
	cost := bucket.Cost{Requests: 1, InputTokens: 50, OutputTokens: 50}
	for range 5000 { // fill the log's ring
		g, _ := l.Acquire(ctx, "k", cost)
		g.Settle(cost)
	}
	if n := testing.AllocsPerRun(100, func() {
		g, err := l.Acquire(ctx, "k", cost)
		if err != nil {
			t.Fatal(err)
		}
		g.Report(bucket.Meter{Unit: bucket.Tokens, Remaining: 1e9})
		g.Served()
		g.Settle(bucket.Cost{Requests: 1, InputTokens: 50, OutputTokens: 10})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
