package escalate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Many goroutines on one gate, with every outcome and on a clock that moves: at
// no instant has one rest more probes than MaxRequests, every watch is called at
// most once, changes are told in an order that joins up, and in the end the gate
// closes.
func TestManyGoroutines(t *testing.T) {
	for _, probes := range []uint32{1, 3} {
		t.Run(fmt.Sprintf("%d probes", probes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var (
					state  = gobreaker.StateClosed
					moves  int
					mu     sync.Mutex
					inside = make(map[*period]uint32)
					most   uint32
				)
				r := newRouter(t, Settings{
					MaxRequests:   probes,
					Timeout:       200 * time.Millisecond, // no probe runs out of time
					ReadyToTrip:   after(4),
					Escalations:   2,
					OnStateChange: func(_ string, from, to gobreaker.State) { moves++; checkMove(t, &state, from, to) },
				})
				var wg sync.WaitGroup
				for g := range 32 {
					wg.Go(func() {
						rnd := rand.New(rand.NewPCG(uint64(g), uint64(probes)))
						for range 300 {
							var calls atomic.Int32
							stop := r.Watch(0, func() { calls.Add(1) })
							p, err := r.Allow(0)
							if err == nil && p.Probe() {
								mu.Lock()
								inside[p.period]++
								most = max(most, inside[p.period])
								mu.Unlock()
							}
							time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond)
							if err == nil {
								p.Admits()
								if p.Probe() {
									mu.Lock()
									inside[p.period]--
									mu.Unlock()
								}
								v := []Verdict{Success, Success, Success, Neutral, Failure, Escalated, QuotaOut, Refused}[rnd.IntN(8)]
								p.Done(hint(v, time.Duration(rnd.IntN(100))*time.Millisecond))
								p.Done(Outcome{Verdict: Escalated})
								if rnd.IntN(8) == 0 {
									p.Late(Transport)
								}
							} else if !errors.Is(err, gobreaker.ErrOpenState) && !errors.Is(err, gobreaker.ErrTooManyRequests) {
								t.Error(err)
							}
							r.Snapshot()
							r.Soonest()
							stop()
							if n := calls.Load(); n > 1 {
								t.Errorf("a watch was called %d times", n)
							}
						}
					})
				}
				wg.Wait()
				if most != probes {
					t.Errorf("%d probes at once, want %d", most, probes)
				}
				if moves < 10 {
					t.Errorf("the gate moved only %d times", moves)
				}
				time.Sleep(time.Second)
				for range probes {
					pass(t, r, 0).Done(Outcome{})
				}
				wantState(t, r, 0, "closed")
				if g := r.gates[0]; g.watches.head != nil || g.watches.tail != nil {
					t.Error("stopped watches are still there")
				}
			})
		})
	}
}

func checkMove(t *testing.T, state *gobreaker.State, from, to gobreaker.State) {
	if from != *state || from == to {
		t.Errorf("told %v>%v while %v", from, to, *state)
	}
	*state = to
}

// When the rest ends for a crowd, exactly one goes.
func TestOneProbeOfACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{})
		pass(t, r, 0).Done(hint(Escalated, 5*time.Second))
		var passed, busy atomic.Int32
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				time.Sleep(5 * time.Second)
				p, err := r.Allow(0)
				switch {
				case err == nil:
					passed.Add(1)
					time.Sleep(time.Second)
					p.Done(Outcome{})
				case errors.Is(err, gobreaker.ErrTooManyRequests):
					busy.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if passed.Load() != 1 || busy.Load() != 199 {
			t.Errorf("%d passed, %d turned away", passed.Load(), busy.Load())
		}
	})
}

// One call that escalates wakes everybody who waits, and the gate is open for
// them already.
func TestOpeningWakesACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, Settings{}, Route{Name: "B"})
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				p := pass(t, r, 0)
				opened := make(chan struct{})
				defer r.Watch(0, func() { close(opened) })()
				<-opened
				if ok, _ := p.Admits(); ok {
					t.Error("woken, and the gate still admits")
				}
				p.Done(Outcome{Verdict: Neutral})
			})
		}
		synctest.Wait()
		pass(t, r, 0).Done(Outcome{Verdict: Escalated})
		wg.Wait()
	})
}
