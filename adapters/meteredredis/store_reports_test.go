package meteredredis

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// A fake is a client whose commands do what do says.
type fake struct {
	redis.UniversalClient
	do func() error
}

func (f fake) Process(_ context.Context, cmd redis.Cmder) error {
	err := f.do()
	if err != nil {
		cmd.SetErr(err)
	}
	return err
}

// A fakeEngine is a client of one that answers New, and then does what do says.
type fakeEngine struct {
	redis.UniversalClient
	calls atomic.Int64
	do    func(cmd redis.Cmder) error
}

func (f *fakeEngine) Process(_ context.Context, cmd redis.Cmder) error {
	if f.calls.Add(1) == 1 {
		cmd.(once).SetVal([]int64{0, 0, 0, 0, 5, 1, 0, 0, 1, 0, 0, 0}) // to a call for no budget
		return nil
	}
	err := f.do(cmd)
	if err != nil {
		cmd.SetErr(err)
	}
	return err
}

// field report J1: a store that fails every call neither stops everything nor lets everything through: of 60 a
// minute for two processes, each goes on with half, less the margin; nobody waits for the store; one event.
func TestJ1StoreFailsEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("dial tcp: connection refused")
		told := new(events)
		l := limiter(t, fake{do: func() error { return refused }}, Config{
			Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}, MaxWait: -1, Processes: 2, Observer: told})
		const whole = 57 // half of a burst of 60 and of 60 a minute, less a twentieth
		begin := time.Now()
		var at []time.Duration
		for range 100 {
			g, err := l.Acquire(context.Background(), "k", one())
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, time.Since(begin))
			g.Settle(one())
		}
		burst, minute := 0, 0
		for _, d := range at {
			if d == 0 {
				burst++
			}
			if d <= time.Minute {
				minute++
			}
		}
		if burst != whole/2 || minute > whole || minute < whole-2 {
			t.Errorf("%d at once and %d in the first minute, want %d and %d", burst, minute, whole/2, whole)
		}
		synctest.Wait()
		if n := told.count(middleware.StoreDown); n != 1 {
			t.Errorf("%d events", n)
		}
		if e, _ := told.first(middleware.StoreDown); !errors.Is(e.Err, refused) {
			t.Errorf("the reason is %v", e.Err)
		}
		l.Close()
	})
}

// field report J1: a call proceeds within the store's timeout although the client never comes back; the calls
// that hang are bounded however long it lasts, and the store is found again after it.
func TestJ1StoreHangsForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		told := new(events)
		f := &fakeEngine{do: func(cmd redis.Cmder) error { <-release; return errors.New("late") }}
		const timeout = 50 * time.Millisecond
		l := limiter(t, f, Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600)}, Timeout: timeout, Observer: told})
		for i := range 20 {
			begin := time.Now()
			g, err := l.Acquire(context.Background(), "k", one())
			if err != nil {
				t.Fatal(err)
			}
			if took, most := time.Since(begin), timeout; took > most || i > 0 && took > 0 {
				t.Errorf("call %d: %v", i, took)
			}
			g.Settle(one())
		}
		time.Sleep(3 * time.Hour)
		if n := runtime.NumGoroutine(); n > mostStuck+50 {
			t.Errorf("%d goroutines", n)
		}
		if down, up := told.count(middleware.StoreDown), told.count(middleware.StoreUp); down != 1 || up != 0 {
			t.Errorf("%d times down, %d times up", down, up)
		}
		l.Close()
		close(release)
		synctest.Wait()
	})
}

// field report J1: whoever goes during a store call goes at once, whatever Timeout says.
func TestJ1CancelDuringAStoreCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fakeEngine{do: func(redis.Cmder) error { <-release; return errors.New("late") }}
		l := limiter(t, f, Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 600)}, Timeout: time.Hour})
		begin := time.Now()
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := l.Acquire(ctx, "k", one()); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		timed, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer stop()
		if _, err := l.Acquire(timed, "k", one()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(begin); took != 20*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		close(release)
		synctest.Wait()
		l.Close()
	})
}

// What an engine says of itself that no configuration of ours cures is New's error; that it is away, or busy
// coming back, is an outage with the reason in its event.
func TestWhatEnginesSay(t *testing.T) {
	for _, c := range []struct {
		says  string
		fatal bool
	}{
		{"NOPERM this user has no permissions to run the 'evalsha' command", true},
		{"NOAUTH Authentication required.", true},
		{"READONLY You can't write against a read only replica.", true},
		{"MOVED 3999 127.0.0.1:6381", true},
		{"ERR unknown command 'evalsha', with args beginning with:", true},
		{"LOADING Redis is loading the dataset in memory", false},
		{"CLUSTERDOWN The cluster is down", false},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", false},
		{"OOM command not allowed when used memory > 'maxmemory'.", false},
		{"MISCONF Redis is configured to save RDB snapshots", false},
		{"BUSY Redis is busy running a script.", false},
	} {
		says := redisError(c.says)
		limits := []bucket.Limit{bucket.PerMinute(bucket.Requests, 6000)}
		t.Run("at New/"+c.says[:6], func(t *testing.T) {
			told := new(events)
			l, err := New(fake{do: func() error { return says }}, Config{Limits: limits, Observer: told})
			if c.fatal {
				if !errors.Is(err, says) {
					t.Errorf("New says %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			take(t, l, "k").Settle(one())
			eventually(t, "it is told", func() bool { return told.count(middleware.StoreDown) == 1 })
			if e, _ := told.first(middleware.StoreDown); !errors.Is(e.Err, says) {
				t.Errorf("the reason is %v", e.Err)
			}
		})
		t.Run("later/"+c.says[:6], func(t *testing.T) {
			told := new(events)
			l := limiter(t, &fakeEngine{do: func(redis.Cmder) error { return says }}, Config{Limits: limits, Observer: told})
			take(t, l, "k").Settle(one()) // never fails a request, nor looks like a provider's refusal
			eventually(t, "it is told", func() bool { return told.count(middleware.StoreDown) == 1 })
			if e, _ := told.first(middleware.StoreDown); !errors.Is(e.Err, says) {
				t.Errorf("the reason is %v", e.Err)
			}
		})
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}
