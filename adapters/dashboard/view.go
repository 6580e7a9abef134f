package dashboard

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// mostKeys are shown; of more, those that are worst off.
const mostKeys = 400

// A view is what the page is told: durations are milliseconds.
type view struct {
	At     int64                     `json:"at"`
	Total  int                       `json:"total"`  // keys, those that are not shown included
	Health map[middleware.Health]int `json:"health"` // how many keys are
	Keys   []key                     `json:"keys"`   // sorted by key
	Routes []route                   `json:"routes,omitempty"`
}

type key struct {
	Name     string            `json:"name"`
	Health   middleware.Health `json:"health"`
	Wasted1  float64           `json:"wasted1"`
	Wasted5  float64           `json:"wasted5"`
	Wasted15 float64           `json:"wasted15"`
	Sends    int64             `json:"sends"`
	Refused  map[string]int64  `json:"refused,omitempty"`
	Foreign  int64             `json:"foreign,omitempty"` // refusals that others caused
	Failed   int64             `json:"failed"`
	Queued   int               `json:"queued"`
	InFlight int               `json:"in_flight"`
	Held     int64             `json:"held"`
	Wait50   float64           `json:"wait50"`
	Wait99   float64           `json:"wait99"`
	Levels   []level           `json:"levels,omitempty"`
	History  [][2]int64        `json:"history,omitempty"` // sent, refused; not in every view
}

type level struct {
	Unit      string  `json:"unit"`
	Per       float64 `json:"per"` // seconds
	Available float64 `json:"available"`
	Capacity  float64 `json:"capacity"`
}

type route struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Rest     int64  `json:"rest"`
	Why      string `json:"why,omitempty"`
	Openings uint64 `json:"openings"`
}

// look is the view of a Stack, histories included.
func look(stack *middleware.Stack, names *names) view {
	s := stack.Stats()
	v := view{At: time.Now().UnixMilli(), Total: len(s.Keys), Health: map[middleware.Health]int{}}
	for i := range s.Keys {
		v.Health[s.Keys[i].Health]++
	}
	worst := worst(s.Keys)
	v.Keys = make([]key, len(worst))
	for i, k := range worst {
		v.Keys[i] = keyOf(k, names)
	}
	for _, r := range s.Routes {
		v.Routes = append(v.Routes, routeOf(r, names))
	}
	return v
}

// worst returns the keys to show, in the order in which they come: all, or those that are refused most, held,
// waited for and used most.
func worst(all []middleware.KeyStats) []*middleware.KeyStats {
	keys := make([]*middleware.KeyStats, len(all))
	for i := range all {
		keys[i] = &all[i]
	}
	if len(keys) <= mostKeys {
		return keys
	}
	slices.SortFunc(keys, func(a, b *middleware.KeyStats) int {
		return cmp.Or(cmp.Compare(b.Wasted5, a.Wasted5), cmp.Compare(b.Budget.HeldFor, a.Budget.HeldFor),
			cmp.Compare(b.Budget.Queued, a.Budget.Queued), cmp.Compare(b.Sends, a.Sends), cmp.Compare(a.Key, b.Key))
	})
	keys = keys[:mostKeys]
	slices.SortFunc(keys, func(a, b *middleware.KeyStats) int { return cmp.Compare(a.Key, b.Key) })
	return keys
}

func keyOf(s *middleware.KeyStats, names *names) key {
	k := key{
		Name: names.of(s.Key), Health: s.Health, Wasted1: s.Wasted1, Wasted5: s.Wasted5, Wasted15: s.Wasted15,
		Sends: s.Sends, Failed: s.Failed, Foreign: s.RefusedBy.Foreign, Queued: s.Budget.Queued, InFlight: s.Budget.InFlight,
		Held:   s.Budget.HeldFor.Milliseconds(),
		Wait50: millis(s.WaitP50), Wait99: millis(s.WaitP99),
		History: make([][2]int64, len(s.History)),
	}
	for class, n := range s.Refused {
		if k.Refused == nil {
			k.Refused = map[string]int64{}
		}
		k.Refused[class.String()] = n
	}
	for _, l := range s.Budget.Levels {
		if finite(l.Available) && finite(l.Capacity) { // JSON has no others; a Limiter of the user's may
			k.Levels = append(k.Levels, level{l.Limit.Unit.String(), l.Limit.Per.Seconds(), l.Available, l.Capacity})
		}
	}
	for i, slot := range s.History {
		k.History[i] = [2]int64{slot.Sent, slot.Refused}
	}
	return k
}

func routeOf(r escalate.RouteStats, names *names) route {
	out := route{Name: names.of(r.Name), State: r.State, Rest: r.Rest.Milliseconds(), Openings: r.Openings}
	if r.Openings > 0 {
		out.Why = r.Kind.String()
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
