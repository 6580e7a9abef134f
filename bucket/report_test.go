package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

func available(l *bucket.Local, i int) float64 {
	s, _ := l.Stats("k")
	return s.Levels[i].Available
}

func take(t *testing.T, l *bucket.Local, cost bucket.Cost) bucket.Grant {
	t.Helper()
	g, wait := l.TakeAt(time.Now(), "k", cost)
	if wait != 0 {
		t.Fatalf("wait %v", wait)
	}
	return g
}

func tokens(n int64) bucket.Cost { return bucket.Cost{InputTokens: n} }

func left(n int64) bucket.Meter {
	return bucket.Meter{Unit: bucket.Tokens, Limit: -1, Remaining: n}
}

func TestReportCorrectsTheLevel(t *testing.T) {
	for _, shape := range []bucket.Shape{bucket.TokenBucket, bucket.Window} {
		t.Run(shape.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // time stands still
				l := local(t, bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Tokens, Amount: 1000, Per: time.Minute, Shape: shape}}})
				check := func(what string, want float64) {
					t.Helper()
					if got := available(l, 0); got != want {
						t.Fatalf("%s: %v left, want %v", what, got, want)
					}
				}
				a, b, c := take(t, l, tokens(100)), take(t, l, tokens(100)), take(t, l, tokens(100))
				check("three calls", 700)
				a.Report(left(500)) // a neighbour; b and c are not in it
				check("lowered", 300)
				b.Report(left(950))
				check("raised", 850)
				a.Report(left(1100))
				check("an older answer does not raise", 850)
				a.Report(left(600))
				check("an older answer lowers", 400)
				c.Report(left(400))
				check("the latest answer", 400)
				a.Settle(tokens(10))
				b.Settle(tokens(150))
				check("the refund is dropped, the extra charge is not", 350)
				d := take(t, l, tokens(50))
				d.Refused(0)
				check("without a report all tokens come back", 350)
				c.Report(left(5000))
				check("never above the brim", 1000)
				c.Report(left(0))
				check("empty", 0)
				c.Refused(0)
				check("a refused call that has reported gets nothing back", 0)
			})
		})
	}
}

func TestReportKnowsThePresentCostOfLaterCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := local(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}})
		a, b, c, d := take(t, l, tokens(100)), take(t, l, tokens(100)), take(t, l, tokens(100)), take(t, l, tokens(100))
		b.Settle(tokens(30))
		c.Cancel()
		d.Refused(0)
		take(t, l, tokens(5))
		a.Report(left(900))
		if got := available(l, 0); got != 900-30-5 {
			t.Errorf("%v left", got)
		}
	})
}

func TestReportFindsItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := []bucket.Limit{
			bucket.PerMinute(bucket.Requests, 100),
			bucket.PerMinute(bucket.Tokens, 1000),
			{Unit: bucket.Tokens, Amount: 9000, Per: time.Hour},
			{Unit: bucket.Tokens, Amount: 50_000, Per: 24 * time.Hour},
		}
		for _, tt := range []struct {
			name  string
			meter bucket.Meter
			which int
		}{
			{"the only one of its unit", bucket.Meter{Unit: bucket.Requests, Limit: 77, Remaining: 7, Per: time.Second}, 0},
			{"by its span", bucket.Meter{Unit: bucket.Tokens, Limit: 1000, Remaining: 7, Per: time.Hour}, 2},
			{"by its amount", bucket.Meter{Unit: bucket.Tokens, Limit: 50_000, Remaining: 7}, 3},
			{"neither", bucket.Meter{Unit: bucket.Tokens, Limit: -1, Remaining: 7}, -1},
			{"unknown span", bucket.Meter{Unit: bucket.Tokens, Limit: 1000, Remaining: 7, Per: time.Second}, -1},
			{"no such unit", bucket.Meter{Unit: bucket.InputTokens, Remaining: 7}, -1},
			{"nothing stated", bucket.Meter{Unit: bucket.Requests, Limit: 100, Remaining: -1}, -1},
		} {
			l := local(t, bucket.Config{Limits: limits})
			take(t, l, requests(0)).Report(tt.meter)
			for i, limit := range limits {
				want := float64(limit.Amount)
				if i == tt.which {
					want = 7
				}
				if got := available(l, i); got != want {
					t.Errorf("%s: limit %d has %v, want %v", tt.name, i, got, want)
				}
			}
		}
	})
}

func TestReportWakesTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 60)}}))
		o.ask(t.Context(), "a", tokens(60))
		a := o.expect(t, "a", 0)
		o.ask(t.Context(), "b", tokens(20))
		o.until(time.Second)
		a.Report(left(20))
		o.expect(t, "b", time.Second)
	})
}

func TestSettlingBothWays(t *testing.T) {
	for _, shape := range []bucket.Shape{bucket.TokenBucket, bucket.Window} {
		synctest.Test(t, func(t *testing.T) {
			l := local(t, bucket.Config{Limits: []bucket.Limit{
				{Unit: bucket.Requests, Amount: 10, Per: time.Minute, Shape: shape},
				{Unit: bucket.Tokens, Amount: 1000, Per: time.Minute, Shape: shape},
			}})
			call := bucket.Cost{Requests: 1, InputTokens: 20, OutputTokens: 20}
			for _, tt := range []struct {
				name             string
				end              func(bucket.Grant)
				requests, tokens float64
			}{
				{"settled for less", func(g bucket.Grant) { g.Settle(bucket.Cost{Requests: 1, InputTokens: 25}) }, 9, 975},
				{"settled for the same", func(g bucket.Grant) { g.Settle(call) }, 8, 935},
				{"refused", func(g bucket.Grant) { g.Refused(0); g.Settle(call) }, 7, 935},
				{"cancelled", func(g bucket.Grant) { g.Cancel(); g.Cancel(); g.Refused(time.Hour) }, 7, 935},
				{"settled for more", func(g bucket.Grant) { g.Settle(bucket.Cost{Requests: 1, OutputTokens: 1200}) }, 6, -265},
			} {
				g := take(t, l, call)
				tt.end(g)
				if r, k := available(l, 0), available(l, 1); r != tt.requests || k != tt.tokens {
					t.Errorf("%v, %s: %v requests and %v tokens left, want %v and %v", shape, tt.name, r, k, tt.requests, tt.tokens)
				}
			}
			if s, _ := l.Stats("k"); s.InFlight != 0 {
				t.Errorf("%d in flight", s.InFlight)
			}
		})
	}
}

// Whoever keeps below the server's limit stays below it, however much the server has left; and what
// such a report has not changed is settled as if there had been none.
func TestAReportDoesNotLiftALimitOfOnesOwn(t *testing.T) {
	for name, c := range map[string]struct {
		config bucket.Config
		limit  int64 // that the server states
	}{
		"a headroom":                       {bucket.Config{Headroom: 0.5, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}}, 60},
		"a headroom, the limit not stated": {bucket.Config{Headroom: 0.5, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}}, -1},
		"half of a shared quota":           {bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 30)}}, 60},
		"half of a window": {bucket.Config{Limits: []bucket.Limit{
			{Unit: bucket.Requests, Amount: 30, Per: time.Minute, Shape: bucket.Window}}}, 60},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := bucket.New(c.config)
			if err != nil {
				t.Fatal(err)
			}
			level := func() float64 { s, _ := l.Stats("k"); return s.Levels[0].Available }
			take := func(n int64) bucket.Grant {
				g, wait := l.TakeAt(time.Now(), "k", bucket.Cost{Requests: n})
				if wait > 0 {
					t.Fatalf("wait %v", wait)
				}
				return g
			}
			g := take(20)
			before := level()
			g.Report(bucket.Meter{Unit: bucket.Requests, Limit: c.limit, Remaining: 59})
			if after := level(); after > before+0.5 {
				t.Errorf("raised from %v to %v", before, after)
			}
			g.Settle(bucket.Cost{Requests: 5})
			if after := level(); after < before+14.9 {
				t.Errorf("the refund is lost: %v after %v", after, before)
			}
			g = take(1)
			g.Report(bucket.Meter{Unit: bucket.Requests, Limit: c.limit, Remaining: 3})
			if after := level(); after > 3.5 {
				t.Errorf("not lowered: %v", after)
			}
			g.Settle(bucket.Cost{Requests: 1})
		})
	}
}

// What the server says of a limit that one keeps below is not lost on the level, and not held against
// it for longer than the server says so.
func TestAReportOfTooLittleIsPutRightByTheNext(t *testing.T) {
	l, err := bucket.New(bucket.Config{Headroom: 0.5, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 2000)}})
	if err != nil {
		t.Fatal(err)
	}
	level := func() float64 { s, _ := l.Stats("k"); return s.Levels[0].Available }
	take := func() bucket.Grant {
		g, _ := l.TakeAt(time.Now(), "k", bucket.Cost{InputTokens: 100})
		return g
	}
	first, second := take(), take() // 800 of our 1,000 are left
	second.Report(bucket.Meter{Unit: bucket.Tokens, Limit: 2000, Remaining: 1900})
	if got := level(); got < 800 || got > 801 {
		t.Errorf("the server has more than we want to use: level %v", got)
	}
	first.Report(bucket.Meter{Unit: bucket.Tokens, Limit: 2000, Remaining: 500}) // it arrived last
	if got := level(); got < 400 || got > 401 {
		t.Errorf("the server has less than we thought: level %v", got)
	}
	third := take()
	third.Report(bucket.Meter{Unit: bucket.Tokens, Limit: 2000, Remaining: 1800})
	if got := level(); got < 700 || got > 701 {
		t.Errorf("nobody else was there after all: level %v", got)
	}
	third.Settle(bucket.Cost{InputTokens: 20})
	if got := level(); got < 780 || got > 781 {
		t.Errorf("settled for less: level %v", got)
	}
	s, _ := l.Stats("k")
	if len(s.Levels) != 1 || s.Levels[0].Capacity != 1000 {
		t.Errorf("%+v", s.Levels)
	}
	if err := l.SetLimits("k", bucket.PerMinute(bucket.Tokens, 4000)); err != nil {
		t.Fatal(err)
	}
	if s, _ := l.Stats("k"); len(s.Levels) != 1 || s.Levels[0].Available < 780 {
		t.Errorf("after SetLimits: %+v", s.Levels)
	}
}
