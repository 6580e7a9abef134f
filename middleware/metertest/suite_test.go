package metertest

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// One broken layer below leaves a goroutine behind, which is its point.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/meteredhttp/meteredhttp/middleware/metertest.leftBehind"))
}

func TestTheContractHoldsForNoLayerAtAll(t *testing.T) {
	TestRoundTripper(t, func(base http.RoundTripper) http.RoundTripper { return base })
}

func TestTheContractHoldsForASimpleRetrier(t *testing.T) {
	TestRoundTripper(t, newRetrier)
}

// recorder is a tb that notes failures.
type recorder struct {
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// complaints runs one clause against a layer and returns what it has to say.
func complaints(t *testing.T, c clause, wrap wrapper) []string {
	r := &recorder{}
	func() {
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("%v", p)
			}
		}()
		synctest.Test(t, func(*testing.T) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() {
					if p := recover(); p != nil {
						r.Errorf("panic: %v", p)
					}
				}()
				c.check(r, wrap)
			}()
			<-done
		})
	}()
	return r.failures
}

func TestEachBrokenLayerIsCaughtByItsClause(t *testing.T) {
	caught := make(map[string]bool)
	for _, broken := range brokenLayers {
		t.Run(strings.ReplaceAll(broken.name, " ", "_"), func(t *testing.T) {
			for _, name := range broken.clauses {
				var c clause
				for _, c = range clauses() {
					if c.name == name {
						break
					}
				}
				if c.name != name {
					t.Fatalf("no clause is called %s", name)
				}
				caught[name] = true
				got := complaints(t, c, broken.wrap)
				if len(got) == 0 {
					t.Errorf("%s does not catch a layer that %s", name, broken.name)
				} else {
					t.Logf("%s: %s", name, got[0])
				}
			}
		})
	}
	for _, c := range clauses() {
		if !caught[c.name] {
			t.Errorf("no broken layer proves that %s can fail", c.name)
		}
	}
}
