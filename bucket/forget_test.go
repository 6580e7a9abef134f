package bucket_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

func TestFullestIdleKeyGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := local(t, bucket.Config{MaxKeys: 4, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
		now := time.Now()
		use := func(key string, n int64) bucket.Grant {
			t.Helper()
			g, wait := l.TakeAt(now, key, requests(n))
			if wait != 0 {
				t.Fatalf("%s waits %v", key, wait)
			}
			return g
		}
		expect := func(keys ...string) {
			t.Helper()
			if got := l.Keys(); !slices.Equal(got, keys) {
				t.Fatalf("%v, want %v", got, keys)
			}
		}
		use("a", 50).Settle(requests(50))
		use("b", 10).Settle(requests(10))
		use("c", 30).Settle(requests(30))
		flying := use("d", 1)
		expect("a", "b", "c", "d")
		use("e", 2).Settle(requests(2))
		expect("a", "c", "d", "e") // b was fullest
		use("f", 40).Settle(requests(40))
		expect("a", "c", "d", "f")
		flying.Settle(requests(1))
		use("g", 60).Settle(requests(100))
		expect("a", "c", "f", "g")
		use("h", 20)
		use("i", 20)
		use("j", 20)
		expect("g", "h", "i", "j") // g owes, h, i and j are in flight
		use("k", 20)
		expect("g", "h", "i", "j", "k") // nobody can go
		l.Hold("held", now.Add(time.Hour))
		expect("g", "h", "held", "i", "j", "k")
		time.Sleep(100 * time.Second) // g is full again
		use("l", 20).Settle(requests(20))
		expect("h", "held", "i", "j", "k", "l")
		time.Sleep(2 * time.Hour) // held is over, and so is its ramp
		now = time.Now()
		use("m", 1)
		expect("h", "i", "j", "k", "m")
	})
}

func TestAFloodOfKeysIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := local(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
		l.Hold("held", time.Now().Add(time.Hour))
		for i := range 50_000 {
			g, err := l.Acquire(t.Context(), strconv.Itoa(i), requests(1))
			if err != nil {
				t.Fatal(err)
			}
			g.Settle(requests(1))
		}
		if n := len(l.Keys()); n > 10_000 {
			t.Errorf("%d keys", n)
		}
		if s, ok := l.Stats("held"); !ok || s.HeldFor != time.Hour {
			t.Errorf("%+v", s)
		}
		// With room to spare, what is idle long enough goes bit by bit as new keys come.
		time.Sleep(time.Hour)
		for i := range 20_000 {
			g, _ := l.Acquire(t.Context(), fmt.Sprint("new", i%100), requests(0))
			g.Settle(requests(0))
		}
		for i := range 9_000 {
			g, _ := l.Acquire(t.Context(), fmt.Sprint("newer", i), requests(0))
			g.Settle(requests(0))
		}
		if n := len(l.Keys()); n > 9_200 {
			t.Errorf("%d keys", n)
		}
	})
}

// Keys come and go under many goroutines; no grant is lost, no level is minted.
func TestKeysComeAndGoConcurrently(t *testing.T) {
	l := local(t, bucket.Config{MaxKeys: 8, MaxInFlight: 1, Limits: []bucket.Limit{
		{Unit: bucket.Requests, Amount: 1 << 40, Per: time.Nanosecond}}})
	var flying [24]struct {
		sync.Mutex
		n int
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				n := (i*7 + w*5) % len(flying)
				g, err := l.Acquire(t.Context(), strconv.Itoa(n), requests(1))
				if err != nil {
					t.Error(err)
					return
				}
				f := &flying[n]
				f.Lock()
				if f.n++; f.n > 1 {
					t.Error("two in flight")
				}
				f.Unlock()
				if i%3 == 0 {
					g.Served()
				}
				f.Lock()
				f.n--
				f.Unlock()
				g.Settle(requests(1))
			}
		})
	}
	wg.Wait()
}
