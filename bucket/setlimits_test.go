package bucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

func TestSetLimitsWakesTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(local(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}}))
		o.ask(t.Context(), "a", requests(1))
		o.expect(t, "a", 0)
		o.ask(t.Context(), "b", requests(1))
		o.ask(t.Context(), "c", requests(1))
		o.until(3 * time.Second)
		if err := o.l.SetLimits("k", bucket.PerMinute(bucket.Requests, 57)); err != nil {
			t.Fatal(err)
		}
		o.nobody(t)
		o.until(4*time.Second - 1)
		o.nobody(t)
		o.until(4 * time.Second) // a twentieth of a request was there
		o.expect(t, "b", 4*time.Second)
		if err := o.l.SetLimits("k"); err != nil {
			t.Fatal(err)
		}
		o.expect(t, "c", 4*time.Second)
	})
}

func TestSetLimitsCarriesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		hour := func(n int64) bucket.Limit {
			return bucket.Limit{Unit: bucket.Tokens, Amount: n, Per: time.Hour, Shape: bucket.Window}
		}
		l := local(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 100), hour(500)}})
		levels := func(want ...float64) {
			t.Helper()
			s, _ := l.Stats("k")
			if len(s.Levels) != len(want) {
				t.Fatalf("%+v", s)
			}
			for i := range want {
				if s.Levels[i].Available != want[i] {
					t.Errorf("limit %d has %v, want %v", i, s.Levels[i].Available, want[i])
				}
			}
		}
		set := func(limits ...bucket.Limit) {
			t.Helper()
			if err := l.SetLimits("k", limits...); err != nil {
				t.Fatal(err)
			}
		}
		a := take(t, l, tokens(40))
		levels(60, 460)
		set(hour(1000), bucket.PerMinute(bucket.Tokens, 50)) // another order, other amounts
		levels(960, 50)
		a.Settle(tokens(30))
		levels(970, 50)
		b := take(t, l, tokens(20))
		levels(950, 30)
		set(bucket.PerMinute(bucket.InputTokens, 10), bucket.PerMinute(bucket.Tokens, 200), hour(900))
		levels(10, 30, 850)
		c := take(t, l, tokens(7))
		levels(3, 23, 843)
		b.Settle(tokens(5)) // nothing comes back from a limit that it did not pay
		levels(3, 38, 858)
		c.Settle(tokens(9))
		levels(1, 36, 856)
		if err := l.SetLimits("k", bucket.Limit{}); err == nil {
			t.Error("a limit without Per was taken")
		}
		levels(1, 36, 856)
	})
}

func TestSetLimitsTellsTwinsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		twins := []bucket.Limit{
			{Unit: bucket.Tokens, Amount: 100, Per: time.Minute},
			{Unit: bucket.Tokens, Amount: 500, Per: time.Minute},
		}
		l := local(t, bucket.Config{Limits: twins})
		take(t, l, tokens(40))
		if err := l.SetLimits("k", twins...); err != nil {
			t.Fatal(err)
		}
		if a, b := available(l, 0), available(l, 1); a != 60 || b != 460 {
			t.Errorf("%v and %v left, want 60 and 460", a, b)
		}
	})
}

func TestSetLimitsOutlivesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := local(t, bucket.Config{MaxKeys: 1})
		if err := l.SetLimits("k", bucket.PerMinute(bucket.Requests, 3)); err != nil {
			t.Fatal(err)
		}
		if available(l, 0) != 3 {
			t.Error("not set")
		}
		g, _ := l.TakeAt(time.Now(), "other", requests(1))
		if _, ok := l.Stats("k"); ok {
			t.Error("k is remembered")
		}
		g.Settle(requests(1))
		take(t, l, requests(1))
		if available(l, 0) != 2 {
			t.Error("forgotten with the key")
		}
	})
}

func TestLimitsForOverrides(t *testing.T) {
	c := bucket.Config{
		Limits:   []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)},
		Headroom: 0.5,
		LimitsFor: func(key string) []bucket.Limit {
			switch key {
			case "wide":
				return []bucket.Limit{bucket.PerMinute(bucket.Requests, 100)}
			case "free":
				return []bucket.Limit{}
			case "bad":
				return []bucket.Limit{{Amount: -1}}
			}
			return nil
		},
	}
	l := local(t, c)
	for key, want := range map[string][]float64{"wide": {50}, "free": {}, "other": {1}} {
		if _, wait := l.TakeAt(time.Now(), key, requests(0)); wait != 0 {
			t.Errorf("%s: wait %v", key, wait)
		}
		s, _ := l.Stats(key)
		if len(s.Levels) != len(want) || len(want) > 0 && s.Levels[0].Capacity != want[0] {
			t.Errorf("%s: %+v", key, s)
		}
	}
	if _, err := l.Acquire(t.Context(), "bad", requests(1)); err == nil {
		t.Error("a bad limit was taken")
	}
}
