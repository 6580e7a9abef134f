// Package weakset remembers pointers without keeping alive what they point to.
package weakset

import (
	"sync"
	"weak"
)

// Set is a set of pointers. The zero value is empty and ready to use; it may be
// used by several goroutines at once.
type Set[T any] struct {
	mu   sync.Mutex
	seen map[weak.Pointer[T]]bool
}

// Add adds p, and reports whether it was not there before. It forgets those that
// are no more.
func (s *Set[T]) Add(p *T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.seen {
		if w.Value() == nil {
			delete(s.seen, w)
		}
	}
	w := weak.Make(p)
	if s.seen[w] {
		return false
	}
	if s.seen == nil {
		s.seen = make(map[weak.Pointer[T]]bool)
	}
	s.seen[w] = true
	return true
}
