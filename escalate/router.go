package escalate

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Router is a primary route and its backups, each behind its gate. Routes go by
// index: the primary is 0, the backups follow in the order they were given. An
// index out of range is never let through. All methods are safe for concurrent
// use. There is nothing to close.
type Router struct {
	routes  []*route
	gates   []*gate
	local   bool
	tickets sync.Pool
}

// New returns a Router of c, or the first thing that is wrong with it (see
// Config.Validate). It keeps no reference to c's maps and slices.
func New(c Config) (*Router, error) {
	if err := c.Settings.Validate(); err != nil {
		return nil, err
	}
	r := &Router{local: c.RerouteLocal}
	r.tickets.New = func() any { return new(ticket) }
	set, base := c.Settings.orDefault(), time.Now()
	quotas := make(map[string]string)
	add := func(route Route) error {
		compiled, err := compile(route)
		if err != nil {
			return err
		}
		if other, taken := quotas[compiled.Quota]; taken {
			return fmt.Errorf("escalate: routes %q and %q share the quota %q: the second would be the same model tried again",
				other, compiled.Name, compiled.Quota)
		}
		quotas[compiled.Quota] = compiled.Name
		r.routes = append(r.routes, compiled)
		r.gates = append(r.gates, newGate(compiled.Name, compiled.Quota, set, base, &r.tickets))
		return nil
	}
	if err := add(c.Primary); err != nil {
		return nil, fmt.Errorf("%w (primary)", err)
	}
	for i, backup := range c.Backups {
		if err := add(backup); err != nil {
			return nil, fmt.Errorf("%w (backup %d)", err, i+1)
		}
	}
	return r, nil
}

// Routes returns the number of routes, the primary included.
func (r *Router) Routes() int { return len(r.routes) }

// Route returns route i with its Name and Quota filled in, nil if there is none.
// It is the Router's own: do not change it.
func (r *Router) Route(i int) *Route {
	if !r.has(i) {
		return nil
	}
	return &r.routes[i].Route
}

// Quota returns the key of the quota that route i draws on.
func (r *Router) Quota(i int) string {
	if !r.has(i) {
		return ""
	}
	return r.routes[i].Quota
}

// RerouteLocal returns Config.RerouteLocal.
func (r *Router) RerouteLocal() bool { return r.local }

// Plain reports whether Rewrite would leave every request for route i as it is,
// so that there is no need to clone it.
func (r *Router) Plain(i int) bool { return r.has(i) && r.routes[i].plain }

// Allow asks the gate of route i to let a call through, once for each attempt of
// a route. The Permit must be given back by Done on every path.
//
// The error is an *Error with the rest left in RetryAfter, matching
// gobreaker.ErrOpenState while the gate rests, and gobreaker.ErrTooManyRequests
// while probes are under way: then RetryAfter is how long until their place is
// free even if they never answer. It is ErrNoRoute for an index out of range and
// a *PanicError if OnStateChange panicked over the call's becoming a probe.
func (r *Router) Allow(i int) (Permit, error) {
	if !r.has(i) {
		return Permit{}, ErrNoRoute
	}
	return r.gates[i].allow()
}

// Admits reports whether Allow would let a call through now, and if not, the
// RetryAfter of its error. It takes nothing and changes nothing. A call that has
// a permit already asks Permit.Admits.
func (r *Router) Admits(i int) (bool, time.Duration) {
	if !r.has(i) {
		return false, 0
	}
	return r.gates[i].admits()
}

// Watch has f called once, when the gate of route i next opens, or at once if it
// is resting now: a call that waits learns that it should go elsewhere. stop
// ends the watch and may be called at any time, also more than once; f may still
// be running when it returns. f is called without any lock held, by the call
// that opens the gate, and must not block.
func (r *Router) Watch(i int, f func()) (stop func()) {
	if !r.has(i) || f == nil {
		return func() {}
	}
	return r.gates[i].watch(f)
}

// Soonest returns how long until the first of the routes would let a call
// through; 0 if one does now.
func (r *Router) Soonest() time.Duration {
	soonest := time.Duration(-1)
	for _, g := range r.gates {
		ok, rest := g.admits()
		if ok {
			return 0
		}
		if soonest < 0 || rest < soonest {
			soonest = rest
		}
	}
	return max(0, soonest)
}

// Exhausted returns the error of a call for which no route is left: errs are
// what the routes gave, in the order they were tried, all still reachable by
// errors.Is and errors.As. Key and Kind are those of the first *Error among
// them, Attempts is their sum, and RetryAfter is Soonest, or the shortest that
// errs state if some route would let a call through again now.
func (r *Router) Exhausted(errs ...error) *Error {
	out := &Error{Key: r.Quota(0), RetryAfter: r.Soonest(), Err: errors.Join(errs...)}
	stated, first := time.Duration(0), true
	for _, err := range errs {
		var e *Error
		if !errors.As(err, &e) {
			continue
		}
		if first {
			out.Key, out.Kind, first = e.Key, e.Kind, false
		}
		out.Attempts += e.Attempts
		if e.RetryAfter > 0 && (stated == 0 || e.RetryAfter < stated) {
			stated = e.RetryAfter
		}
	}
	if out.RetryAfter == 0 {
		out.RetryAfter = stated
	}
	return out
}

// RouteStats is a picture of one route's gate.
type RouteStats struct {
	Name  string `json:"name"`
	Quota string `json:"quota"`
	// State is "closed", "open" or "half-open"; the last also when the rest is
	// over and no probe has come yet.
	State string `json:"state"`
	// Rest is how long until Allow lets a call through; 0 is now.
	Rest time.Duration `json:"rest"`
	// Kind is why the gate opened last. It means nothing if Openings is 0.
	Kind Kind `json:"kind"`
	// Openings is how often the gate has opened.
	Openings uint64 `json:"openings"`
	// Probes is how many probes are under way.
	Probes int `json:"probes"`
	// Counts are the breaker's since the gate closed, in the present Interval;
	// zero while the gate is not closed.
	Counts gobreaker.Counts `json:"counts"`
	// Late is how many answers failed after their headers.
	Late uint64 `json:"late"`
}

// MarshalJSON names the counts in the manner of all else: gobreaker gives them no names for JSON.
func (s RouteStats) MarshalJSON() ([]byte, error) {
	type plain RouteStats
	type counts struct {
		Requests             uint32 `json:"requests"`
		TotalSuccesses       uint32 `json:"total_successes"`
		TotalFailures        uint32 `json:"total_failures"`
		TotalExclusions      uint32 `json:"total_exclusions"`
		ConsecutiveSuccesses uint32 `json:"consecutive_successes"`
		ConsecutiveFailures  uint32 `json:"consecutive_failures"`
	}
	return json.Marshal(struct {
		plain
		Counts counts `json:"counts"`
	}{plain(s), counts(s.Counts)})
}

// Snapshot returns the picture of every route.
func (r *Router) Snapshot() []RouteStats {
	out := make([]RouteStats, len(r.routes))
	for i, g := range r.gates {
		out[i] = g.stats()
		out[i].Name, out[i].Quota = r.routes[i].Name, r.routes[i].Quota
	}
	return out
}

func (g *gate) stats() RouteStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	s := RouteStats{State: g.state(now).String(), Rest: g.rest(now), Kind: g.kind,
		Openings: g.openings, Late: g.broken.Load()}
	if p := g.closed.Load(); p != nil {
		s.Counts = p.breaker.Counts()
	}
	if g.half != nil {
		for _, p := range g.probes {
			if p.deadline > now {
				s.Probes++
			}
		}
	}
	return s
}

func (r *Router) has(i int) bool { return i >= 0 && i < len(r.routes) }
