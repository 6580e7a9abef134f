package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"time"

	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// A view is what the page is told: durations are milliseconds.
type view struct {
	At     int64   `json:"at"`
	Keys   []key   `json:"keys"`
	Routes []route `json:"routes,omitempty"`
}

type key struct {
	Name     string            `json:"name"`
	Health   middleware.Health `json:"health"`
	Wasted1  float64           `json:"wasted1"`
	Wasted5  float64           `json:"wasted5"`
	Wasted15 float64           `json:"wasted15"`
	Sends    int64             `json:"sends"`
	Refused  map[string]int64  `json:"refused,omitempty"`
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
func look(stack *middleware.Stack) view {
	s := stack.Stats()
	v := view{At: time.Now().UnixMilli(), Keys: make([]key, len(s.Keys))}
	for i := range s.Keys {
		v.Keys[i] = keyOf(&s.Keys[i])
	}
	for _, r := range s.Routes {
		v.Routes = append(v.Routes, routeOf(r))
	}
	return v
}

func keyOf(s *middleware.KeyStats) key {
	k := key{
		Name: shown(s.Key), Health: s.Health, Wasted1: s.Wasted1, Wasted5: s.Wasted5, Wasted15: s.Wasted15,
		Sends: s.Sends, Failed: s.Failed, Queued: s.Budget.Queued, InFlight: s.Budget.InFlight,
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
		k.Levels = append(k.Levels, level{l.Limit.Unit.String(), l.Limit.Per.Seconds(), l.Available, l.Capacity})
	}
	for i, slot := range s.History {
		k.History[i] = [2]int64{slot.Sent, slot.Refused}
	}
	return k
}

func routeOf(r escalate.RouteStats) route {
	out := route{Name: shown(r.Name), State: r.State, Rest: r.Rest.Milliseconds(), Openings: r.Openings}
	if r.Openings > 0 {
		out.Why = r.Kind.String()
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }

// shown is how a key is shown: without what a URL has of credentials and parameters, and not longer than a line.
func shown(key string) string {
	if u, err := url.Parse(key); err == nil && u.Host != "" && (u.User != nil || u.RawQuery != "") {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		key = u.String()
	}
	const most, head = 72, 56
	if len(key) <= most {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return string([]rune(key)[:min(head, len([]rune(key)))]) + "… #" + hex.EncodeToString(sum[:4])
}
