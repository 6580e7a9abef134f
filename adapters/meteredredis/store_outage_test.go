package meteredredis

import (
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// The bucket of these tests is large beside its rate, so that a bucket that is full once too often, or for each
// process, shows against the slack of the clocks.
const (
	faultRate, faultBurst = 100, 200
	faultSlack            = 700 * time.Millisecond // a goroutine of a loaded machine may note late that it was let go
)

func faultLimits() []bucket.Limit {
	return []bucket.Limit{{Unit: bucket.Requests, Amount: faultRate, Per: time.Second, Burst: faultBurst}}
}

// The engine goes under load and comes back, as it was or empty: the joint admissions stay within the limit
// over the whole of it, no call fails, each process says so once, and afterwards the rate is what it was.
func TestJointRateOverAnOutage(t *testing.T) {
	for _, fault := range []struct {
		name         string
		down         time.Duration
		begin, ended func(*server)
	}{
		{"hangs", 1200 * time.Millisecond, (*server).pause, (*server).resume},
		{"hangs for long", 5 * time.Second, (*server).pause, (*server).resume},
		{"crashes", 1200 * time.Millisecond, (*server).kill, (*server).start},
		{"crashes for long", 5 * time.Second, (*server).kill, (*server).start},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			s := startServer(t)
			a, stop := new(admissions), make(chan struct{})
			var told []*events
			var waits []func() int64
			for range 3 {
				e := new(events)
				l := limiter(t, s.client(t), Config{Prefix: "p", Limits: faultLimits(), Timeout: 300 * time.Millisecond, Processes: 3, Observer: e})
				told, waits = append(told, e), append(waits, load(t, l, "k", 4, one(), a, stop))
			}
			time.Sleep(time.Second)
			fault.begin(s)
			time.Sleep(fault.down)
			fault.ended(s)
			for _, e := range told {
				eventually(t, "the store is back", func() bool { return e.count(middleware.StoreUp) == 1 })
			}
			back := time.Now()
			time.Sleep(3 * time.Second)
			after := a.since(back)
			close(stop)
			for _, wait := range waits {
				wait()
			}
			for _, e := range told {
				if down, up := e.count(middleware.StoreDown), e.count(middleware.StoreUp); down != 1 || up != 1 {
					t.Errorf("%d times down, %d times up", down, up)
				}
			}
			a.within(t, faultBurst, faultRate, faultSlack)
			if after < faultRate { // a third of what the limit gives
				t.Errorf("%d calls left in the 3 s after the store was back, at %d a second", after, faultRate)
			}
		})
	}
}
