package meteredredis

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// A member is one process's worth of a fleet that loses its store.
type member struct {
	l     *Limiter
	told  *events
	share float64 // of the limit, in calls a second
}

// assumed is what the fallbacks of a fleet began with at most: a share each of the level that was known last, and of
// what was refilled since. The last calls of the others are not in it. To be asked while the store is away.
func assumed(fleet []member, rate float64, away time.Time) (n float64) {
	for _, m := range fleet {
		b := m.l.peek("k")
		b.mu.Lock()
		n += max(b.known.levels[0]+rate*away.Sub(b.known.at).Seconds(), 0) * m.share / rate
		b.mu.Unlock()
	}
	return n
}

// late is what the members of a fleet took of their shares after the instant at which all were to go back to the store,
// which is the store's: whoever runs late owes it then.
func late(t testing.TB, c redis.UniversalClient, fleet []member) (n float64) {
	t.Helper()
	l := fleet[0].l
	head := c.HGet(context.Background(), nameOf(l.config.Prefix, "")+"probe", "h").Val()
	if len(head) < 8 {
		t.Fatal("the store does not know of a return")
	}
	first := math.Float64frombits(binary.LittleEndian.Uint64([]byte(head[len(head)-8:])))
	back := time.UnixMicro(int64(first)).Add(l.grace())
	for _, m := range fleet {
		n += max(m.told.last(middleware.StoreUp).Sub(back).Seconds(), 0) * m.share
	}
	return n
}

// The engine goes under load and comes back, as it was or empty: the joint admissions stay within the limit over the
// whole of it, no call fails, each process says so once, and afterwards the rate is what it was. Where one process
// alone cannot reach it, again and again, its share goes beyond the limit once, and not once for each time. The bucket
// is large beside its rate, so that one that is full once too often, or for each process, shows.
//
// Proved able to fail: without what a comeback tells; with the whole limit for each share; without what is owed by a
// process that was away alone.
func TestJointRateOverAnOutage(t *testing.T) {
	const rate, burst, processes = 100, 200, 3
	crash := errors.New("connection refused")
	for _, fault := range []struct {
		name         string
		hit          int // of the processes
		times        int
		lasts        time.Duration
		hangs, loses bool
	}{
		{"hangs", processes, 1, 1200 * time.Millisecond, true, false},
		{"hangs for long", processes, 1, 5 * time.Second, true, false},
		{"crashes", processes, 1, 1200 * time.Millisecond, false, true},
		{"crashes for long", processes, 1, 5 * time.Second, false, true},
		{"fails and forgets nothing", processes, 2, 5 * time.Second, false, false},
		{"fails for one", 1, 3, 2 * time.Second, false, false},
		{"hangs for one", 1, 3, 2 * time.Second, true, false},
	} {
		t.Run(fault.name, func(t *testing.T) {
			e := newClocked(t)
			synctest.Test(t, func(t *testing.T) {
				a, stop := new(admissions), make(chan struct{})
				var fleet []member
				var ways []*way
				var waits []func()
				for range processes {
					told, w := new(events), &way{engine: e}
					l := limiter(t, w, Config{Prefix: "p", Timeout: 50 * time.Millisecond, Processes: processes, Observer: told,
						Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: rate, Per: time.Second, Burst: burst}}})
					fleet, ways = append(fleet, member{l, told, rate * (1 - margin) / processes}), append(ways, w)
					waits = append(waits, load(t, l, "k", 4, a, stop))
				}
				beyond := 0.0
				for range fault.times {
					time.Sleep(3 * time.Second)
					hangs := make(chan struct{})
					for _, w := range ways[:fault.hit] {
						if fault.hangs {
							w.set(nil, hangs)
						} else {
							w.set(crash, nil)
						}
					}
					away := time.Now()
					time.Sleep(fault.lasts)
					most := assumed(fleet[:fault.hit], rate, away)
					if fault.loses {
						e.do("flushall")
					}
					for _, w := range ways {
						w.set(nil, nil)
					}
					close(hangs)
					time.Sleep(5 * time.Second)
					if fault.hit == 1 {
						most += fleet[0].share * fleet[0].told.last(middleware.StoreUp).Sub(away).Seconds()
					}
					beyond = max(beyond, most)
				}
				before := a.count()
				time.Sleep(3 * time.Second)
				if n := a.count() - before; n < 3*rate-5 || n > 3*rate+5 {
					t.Errorf("%d calls left in the last three seconds, at %d a second", n, rate)
				}
				close(stop)
				for _, wait := range waits {
					wait()
				}
				for i, m := range fleet {
					want := 0
					if i < fault.hit {
						want = fault.times
					}
					if down, up := m.told.count(middleware.StoreDown), m.told.count(middleware.StoreUp); down != want || up != want {
						t.Errorf("%d times down, %d times up, want %d", down, up, want)
					}
				}
				a.within(t, burst, rate, beyond)
				for _, m := range fleet {
					m.l.Close()
				}
				t.Logf("%d calls, %.1f beyond the limit are accounted for", a.count(), beyond)
			})
		})
	}
}
