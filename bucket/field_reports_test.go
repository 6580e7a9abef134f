package bucket_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Faults that people reported against other limiters, as cases of this one.

// hashicorp/go-retryablehttp#272: sleeping towards a deadline that the wait cannot meet.
//
// Proved able to fail: forget the hold in the bound; let WaitError match nothing.
func TestFieldReport_C1_AWaitPastTheDeadlineIsNotBegun(t *testing.T) {
	for name, use := range map[string]func(*bucket.Local){
		"the slot of RPM 1 is used": func(l *bucket.Local) { l.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1}) },
		"held for ten minutes":      func(l *bucket.Local) { l.Hold(theKey, time.Now().Add(600*time.Second)) },
		"refused for ten minutes": func(l *bucket.Local) {
			g, _ := l.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
			g.Refused(600 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local := newLocal(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}})
				use(local)
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := local.Acquire(ctx, theKey, bucket.Cost{Requests: 1})
				var wait *bucket.WaitError
				if d := time.Since(start); d != 0 || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &wait) || wait.Wait < 30*time.Second {
					t.Errorf("after %v: %v, want a *WaitError that carries the wait at once", d, err)
				}
			})
		})
	}
}

// maximhq/bifrost#2665, google/go-github#3117: a wait that cancellation cannot interrupt; the slot in the
// queue goes to the next.
//
// Proved able to fail: do not move the line up when its head gives up; do not look at the context before
// taking.
func TestFieldReport_C2_CancellationEndsTheWaitAndTheNextMovesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{MaxWait: -1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 60)}})
		local.TakeAt(time.Now(), theKey, bucket.Cost{InputTokens: 60})
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		type end struct {
			at  time.Duration
			err error
		}
		large := make(chan end, 1)
		go func() { // due at 30 s
			_, err := local.Acquire(ctx, theKey, bucket.Cost{InputTokens: 30})
			large <- end{time.Since(start), err}
		}()
		synctest.Wait()
		small := arriveInBackground(t, local, bucket.Cost{InputTokens: 1}) // due at 31 s, alone at 1 s
		time.Sleep(100 * time.Millisecond)
		cancel()
		if e := <-large; e.at != 100*time.Millisecond || !errors.Is(e.err, context.Canceled) {
			t.Errorf("ended at %v with %v", e.at, e.err)
		}
		time.Sleep(time.Minute)
		if at, done := small(); !done || at.Sub(start) != time.Second {
			t.Errorf("the next left: %v at %v, want 1s", done, at.Sub(start))
		}
		// the cause of a cancellation stays reachable
		why := errors.New("shutting down")
		caused, because := context.WithCancelCause(t.Context())
		because(why)
		if _, err := local.Acquire(caused, theKey, bucket.Cost{InputTokens: 1}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}

// golang/go#54541: the refusal of a limiter matches no context error.
//
// Proved able to fail: let WaitError match nothing.
func TestFieldReport_C3_TheRefusalMatchesDeadlineExceededAndIsOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 1)}})
		local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := local.Acquire(ctx, theKey, bucket.Cost{Requests: 1})
		var wait *bucket.WaitError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &wait) || errors.Is(err, context.Canceled) || errors.Is(err, bucket.ErrQueueFull) {
			t.Errorf("got %v, want a *WaitError that is context.DeadlineExceeded", err)
		}
		if ctx.Err() != nil {
			t.Error("it waited for the deadline")
		}
	})
}

// NousResearch/hermes-agent#109234: everybody obeys the hint to the same instant. The bucket's half: the
// hold is the key's, late comers queue behind it, and the release is paced.
//
// Proved able to fail: begin no ramp; ignore the hold of Refused.
func TestFieldReport_F3_ARefusedCrowdComesBackPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 100
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: burst, Per: time.Minute}}})
		start := time.Now()
		var (
			mu    sync.Mutex
			sends = map[time.Duration]int{}
			done  sync.WaitGroup
		)
		for range 50 {
			done.Go(func() {
				g, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1})
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(20 * time.Millisecond)
				g.Refused(10 * time.Second)
				g, err = local.Acquire(bucket.WithPlace(t.Context(), g.Place()), theKey, bucket.Cost{Requests: 1})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				sends[time.Since(start)]++
				mu.Unlock()
				time.Sleep(250 * time.Millisecond)
				g.Served()
				g.Settle(bucket.Cost{Requests: 1})
			})
		}
		done.Wait()
		first := 10*time.Second + 20*time.Millisecond
		most := 1
		for at := first; at < first+6*250*time.Millisecond; at += 250 * time.Millisecond {
			if n := sends[at]; n > most || n == 0 {
				t.Errorf("%d sent at %v, want 1 to %d", n, at, most)
			}
			delete(sends, at)
			most *= 2
		}
		for at, n := range sends {
			if at < first || n > burst/2 {
				t.Errorf("%d sent at %v", n, at)
			}
		}
	})
}

// shobrook/openlimit#8, BerriAI/litellm#3274: one request larger than the bucket waits for ever.
//
// Proved able to fail: let it wait for a level of its cost; charge it no more than the capacity; ignore
// OversizeRefuse.
func TestFieldReport_I1_ARequestLargerThanTheBucket(t *testing.T) {
	acquire := func(t *testing.T, local *bucket.Local, tokens int64) (time.Duration, error) {
		start := time.Now()
		_, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1, InputTokens: tokens})
		return time.Since(start), err
	}
	t.Run("debt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, bucket.Config{MaxWait: -1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}})
			if d, err := acquire(t, local, 1500); d != 0 || err != nil {
				t.Errorf("1500 from a full bucket of 1000: after %v, %v", d, err)
			}
			if d, err := acquire(t, local, 1); d != 30*time.Second+60*time.Millisecond || err != nil {
				t.Errorf("the next of 1 token: after %v, %v; want 30.06s", d, err)
			}
			if d, err := acquire(t, local, 1500); d != time.Minute || err != nil {
				t.Errorf("1500 from an empty bucket of 1000: after %v, %v, want 1m", d, err)
			}
		})
	})
	t.Run("refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, bucket.Config{Oversize: bucket.OversizeRefuse, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 1000)}})
			var e *bucket.OversizeError
			if d, err := acquire(t, local, 1500); d != 0 || !errors.As(err, &e) || e.Cost != 1500 || e.Capacity != 1000 {
				t.Errorf("after %v, %v", d, err)
			}
		})
	})
	t.Run("a minute's capacity", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 40_000)}})
			if d, err := acquire(t, local, 800); d != 0 || err != nil {
				t.Errorf("800 of 40,000 at the start: after %v, %v", d, err)
			}
		})
	})
}

// BerriAI/litellm#27001, #18730: a refused or failed request keeps its reservation; without one, parallel
// calls all pass.
//
// Proved able to fail: refund nothing on Cancel.
func TestFieldReport_I2_ReservationsAreAtomicAndComeBack(t *testing.T) {
	tpm100 := bucket.Config{MaxWait: -1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 100)}}
	t.Run("five at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, tpm100)
			ctx, cancel := context.WithCancel(t.Context())
			sent := make(chan bool, 5)
			for range 5 {
				go func() {
					_, err := local.Acquire(ctx, theKey, bucket.Cost{Requests: 1, InputTokens: 60})
					sent <- err == nil
				}()
			}
			synctest.Wait()
			if len(sent) != 1 {
				t.Errorf("%d of five calls of 60 sent at once out of 100, want 1", len(sent))
			}
			cancel()
			synctest.Wait()
		})
	})
	t.Run("a thousand refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, tpm100)
			local.TakeAt(time.Now(), theKey, bucket.Cost{Requests: 1, InputTokens: 100})
			start := time.Now()
			for range 1000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				if _, err := local.Acquire(ctx, theKey, bucket.Cost{Requests: 1, InputTokens: 60}); err == nil {
					t.Fatal("sent from an empty bucket")
				}
				cancel()
			}
			time.Sleep(time.Minute - time.Since(start))
			if _, err := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1, InputTokens: 100}); err != nil || time.Since(start) != time.Minute {
				t.Errorf("a call of 100 after a minute: %v at %v", err, time.Since(start))
			}
		})
	})
	t.Run("a dial error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			local := newLocal(t, tpm100)
			g, _ := local.Acquire(t.Context(), theKey, bucket.Cost{Requests: 1, InputTokens: 60})
			g.Cancel()
			g.Cancel()
			if s, ok := local.Stats(theKey); ok && s.Levels[0].Available != 100 {
				t.Errorf("%+v, want 100", s)
			}
		})
	})
}

// traefik/traefik#13704, richardwooding/feed-mcp#117: keyed limiters that are never forgotten.
//
// Proved able to fail: forget none; forget keys under a hold as well; remember ten million by default.
func TestFieldReport_I6_AMillionKeys(t *testing.T) {
	n := 1_000_000
	if testing.Short() || raceEnabled {
		n = 60_000
	}
	synctest.Test(t, func(t *testing.T) {
		local := newLocal(t, bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}})
		local.Hold("held", time.Now().Add(time.Hour))
		for i := range n {
			g, wait := local.TakeAt(time.Now(), sprintf("https://host-%d.example.com:443", i), bucket.Cost{Requests: 1})
			if wait > 0 {
				t.Fatal("a fresh key is not full")
			}
			g.Settle(bucket.Cost{Requests: 1})
		}
		if have := len(local.Keys()); have > 10_000+1 {
			t.Errorf("%d keys remembered, MaxKeys is 10,000 and one is held", have)
		}
		time.Sleep(10 * time.Minute)
		local.TakeAt(time.Now(), "one more", bucket.Cost{Requests: 1})
		if have := len(local.Keys()); have > 10_000+1 {
			t.Errorf("%d keys remembered after ten minutes", have)
		}
		if s, ok := local.Stats("held"); !ok || s.HeldFor != 50*time.Minute {
			t.Errorf("the held key: %+v (%v), want 50 minutes more", s, ok)
		}
	})
}
