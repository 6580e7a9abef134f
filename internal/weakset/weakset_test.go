package weakset

import (
	"runtime"
	"testing"
	"weak"
)

type client struct{ name string }

// Proved able to fail: by an Add that always returns true.
func TestAddSaysWhoIsNew(t *testing.T) {
	var s Set[client]
	a, b := &client{"a"}, &client{"a"}
	for i, c := range []struct {
		p   *client
		new bool
	}{{a, true}, {b, true}, {a, false}, {b, false}} {
		if got := s.Add(c.p); got != c.new {
			t.Errorf("%d: new is %v, want %v", i, got, c.new)
		}
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
}

// Proved able to fail: by a Set that keeps a *T beside the weak pointer, and by one
// that does not delete.
func TestSetKeepsNobodyAlive(t *testing.T) {
	var s Set[client]
	gone := make([]weak.Pointer[client], 100)
	for i := range gone {
		c := &client{"short-lived"}
		s.Add(c)
		gone[i] = weak.Make(c)
	}
	runtime.GC()
	last := &client{"last"}
	s.Add(last)
	for i, w := range gone {
		if w.Value() != nil {
			t.Errorf("%d is kept alive", i)
		}
	}
	if len(s.seen) != 1 {
		t.Errorf("%d are remembered, one is left", len(s.seen))
	}
	runtime.KeepAlive(last)
}
