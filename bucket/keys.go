package bucket

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// keys is the table of all accounts. Looking one up takes no lock: chains are changed by single
// stores, and whoever misses a key in the middle of a change looks again under mu. An account
// found may have been forgotten meanwhile; its own lock tells.
type keys struct {
	seed  maphash.Seed
	chain atomic.Pointer[chains]
	sole  atomic.Pointer[account] // the only account, if it is: one key need not be hashed

	// mu guards all changes of the table. It may be held while an account's own lock is taken,
	// never the other way round.
	mu     sync.Mutex
	count  int
	set    map[string][]Limit // by SetLimits; they outlive the account
	forget forget
}

type chains struct {
	heads []atomic.Pointer[account] // length is a power of two
}

func (c *chains) head(hash uint64) *atomic.Pointer[account] {
	return &c.heads[hash&uint64(len(c.heads)-1)]
}

func (k *keys) init() {
	k.seed = maphash.MakeSeed()
	k.chain.Store(&chains{make([]atomic.Pointer[account], 16)})
}

func (k *keys) hash(key string) uint64 { return maphash.String(k.seed, key) }

// find returns the account of key, or nil.
func (k *keys) find(hash uint64, key string) *account {
	for a := k.chain.Load().head(hash).Load(); a != nil; a = a.next.Load() {
		if a.hash == hash && a.key == key {
			return a
		}
	}
	return nil
}

// insert links a. Its key is not in the table. Called with mu held.
func (k *keys) insert(a *account) {
	c := k.chain.Load()
	if k.count >= len(c.heads) {
		c = k.rehash(2 * len(c.heads))
	}
	head := c.head(a.hash)
	a.next.Store(head.Load())
	head.Store(a)
	k.count++
	if k.count == 1 {
		k.sole.Store(a)
	} else {
		k.sole.Store(nil)
	}
}

// rehash makes n chains of what there is. A reader that is led astray meanwhile comes to the end
// of some chain, and then looks again under mu.
func (k *keys) rehash(n int) *chains {
	c := &chains{make([]atomic.Pointer[account], n)}
	for a := range k.all() {
		head := c.head(a.hash)
		a.next.Store(head.Load())
		head.Store(a)
	}
	k.chain.Store(c)
	return c
}

// remove unlinks a. Called with mu held.
func (k *keys) remove(a *account) {
	link := k.chain.Load().head(a.hash)
	for link.Load() != a {
		link = &link.Load().next
	}
	link.Store(a.next.Load())
	k.count--
	k.sole.Store(nil)
}

// all goes through the accounts; the one it yields may be removed or linked elsewhere. Called with
// mu held.
func (k *keys) all() func(yield func(*account) bool) {
	return func(yield func(*account) bool) {
		c := k.chain.Load()
		for i := range c.heads {
			for a := c.heads[i].Load(); a != nil; {
				next := a.next.Load()
				if !yield(a) {
					return
				}
				a = next
			}
		}
	}
}

// open returns the account of key, locked; it makes one where there is none.
func (l *Local) open(key string) (*account, error) {
	if a := l.keys.sole.Load(); a != nil && a.key == key {
		if a.mu.Lock(); !a.gone {
			return a, nil
		}
		a.mu.Unlock()
	}
	hash := l.keys.hash(key)
	for {
		a := l.keys.find(hash, key)
		if a == nil {
			var err error
			if a, err = l.make(hash, key); err != nil {
				return nil, err
			}
		}
		a.mu.Lock()
		if !a.gone {
			return a, nil
		}
		a.mu.Unlock()
	}
}

// peek returns the account of key, locked, or nil where there is none.
func (l *Local) peek(key string) *account {
	hash := l.keys.hash(key)
	a := l.keys.find(hash, key)
	if a == nil {
		l.keys.mu.Lock()
		a = l.keys.find(hash, key)
		l.keys.mu.Unlock()
		if a == nil {
			return nil
		}
	}
	a.mu.Lock()
	if a.gone {
		a.mu.Unlock()
		return nil
	}
	return a
}

// make adds an account for key, unless somebody else was faster.
func (l *Local) make(hash uint64, key string) (*account, error) {
	meters := l.meters
	own := false
	if l.limitsFor != nil {
		if limits := l.limitsFor(key); limits != nil { // a callback: no lock is held
			if err := validateLimits(limits); err != nil {
				return nil, err
			}
			meters, own = l.newMeters(limits), true
		}
	}
	k := &l.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	if a := k.find(hash, key); a != nil {
		return a, nil
	}
	if limits, ok := k.set[key]; ok {
		meters, own = l.newMeters(limits), true
	}
	if !own {
		meters = slices.Clone(meters)
		for i := range meters {
			meters[i] = meters[i].fresh()
		}
	}
	k.makeRoom(l)
	a := newAccount(l, hash, strings.Clone(key), meters)
	if learned, ok := l.learned[key]; ok {
		a.restore(l.now(), learned)
	}
	k.insert(a)
	return a, nil
}

// Keys returns the keys that are remembered, sorted.
func (l *Local) Keys() []string {
	l.keys.mu.Lock()
	names := make([]string, 0, l.keys.count)
	for a := range l.keys.all() {
		names = append(names, a.key)
	}
	l.keys.mu.Unlock()
	slices.Sort(names)
	return names
}
