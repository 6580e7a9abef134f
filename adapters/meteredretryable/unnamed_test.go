package meteredretryable

import (
	"testing"
	"testing/synctest"
	"time"
)

// Only the goroutine that an attempt ran in is told of it, once.
func TestUnnamed_IsTakenOnceByItsGoroutine(t *testing.T) {
	var u unnamed
	c := new(call)
	u.put(&attempt{call: new(call)})
	u.put(&attempt{call: c, once: true})
	other := make(chan *attempt)
	go func() { other <- u.take() }()
	if a := <-other; a != nil {
		t.Error("another goroutine has it")
	}
	if a := u.take(); a == nil || a.call != c || !a.once {
		t.Errorf("got %v, want the last attempt", a)
	}
	if a := u.take(); a != nil || u.any.Load() {
		t.Error("it is there twice")
	}
}

// What nobody asks for is forgotten after a while, and is bounded until then.
func TestUnnamed_IsBoundedAndEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u unnamed
		for range maxWaiting + 10 {
			go u.put(&attempt{call: new(call)})
		}
		synctest.Wait()
		if len(u.attempts) != maxWaiting {
			t.Errorf("%d attempts are remembered, want %d", len(u.attempts), maxWaiting)
		}
		time.Sleep(maxUnnamed)
		synctest.Wait()
		if len(u.attempts) != 0 || u.any.Load() {
			t.Errorf("%d attempts are remembered for ever", len(u.attempts))
		}
	})
}
