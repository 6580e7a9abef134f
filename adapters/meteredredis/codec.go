package meteredredis

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

//go:embed budget.lua
var source string

// none stands in the script's arguments for no epoch.
const none = "-"

// A limit is one meter as the script knows it.
type limit struct {
	bucket.Limit
	name     string  // of its field
	rate     float64 // a microsecond
	capacity int64
	per      float64 // microseconds
}

// limitsOf scales limits and leaves out those that are off.
func limitsOf(limits []bucket.Limit, headroom float64) []limit {
	var out []limit
	for _, l := range limits {
		if l.Amount <= 0 {
			continue
		}
		whole := l.Amount
		if l.Burst > 0 {
			whole = l.Burst
		}
		m := limit{Limit: l, per: micros(l.Per)}
		m.rate = float64(l.Amount) * headroom / m.per
		m.capacity = max(int64(float64(whole)*headroom+1e-6), 1)
		m.name = fmt.Sprintf("%s/%d/%s", l.Unit, l.Per.Microseconds(), l.Shape)
		for i := range out { // twice the same kind: two buckets of one period
			if out[i].name == m.name {
				m.name += "/" + strconv.Itoa(len(out))
			}
		}
		out = append(out, m)
	}
	return out
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// span is a number of microseconds as a Duration, rounded up.
func span(us float64) time.Duration {
	if us >= math.MaxInt64/2e3 {
		return math.MaxInt64 / 2
	}
	return time.Duration(math.Ceil(us * 1e3))
}

// A batch is one call of the script.
type batch struct {
	epoch    string // known; none if none is
	fresh    string // the epoch of a budget that begins here
	pid      string
	beat     bool
	maxWait  time.Duration
	answer   time.Duration
	refuse   bool // whoever is overdue
	limits   []limit
	declared *declaration
	ops      [][]string
	spent    []float64     // of the ops, what was admitted while the store was away
	age      time.Duration // of the head
	groups   []group
	due      time.Time // when it goes at the latest
}

// A declaration is what a process knew of a budget that the store has lost.
type declaration struct {
	levels []float64
	hold   time.Duration
}

// A group is so many calls of one cost, which is given for each limit.
type group struct {
	n     int
	costs []int64
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func float(x float64) string { return strconv.FormatFloat(x, 'g', 17, 64) }

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// args is b as the script reads it.
func (b *batch) args() []any {
	a := make([]any, 0, 12+5*len(b.limits)+4*len(b.ops)+len(b.groups)*(1+len(b.limits)))
	put := func(s string) { a = append(a, s) }
	put(b.epoch)
	put(b.fresh)
	put(b.pid)
	put(flag(b.beat))
	put(float(micros(max(b.maxWait, 0))))
	put(float(micros(b.answer)))
	put(flag(b.refuse))
	put(strconv.Itoa(len(b.limits)))
	for i := range b.limits {
		l := &b.limits[i]
		put(l.name)
		put(float(l.rate))
		put(whole(l.capacity))
		put(float(l.per))
		put(flag(l.Shape == bucket.Window))
	}
	put(flag(b.declared != nil))
	if b.declared != nil {
		for _, level := range b.declared.levels {
			put(float(level))
		}
		put(float(micros(b.declared.hold)))
	}
	put(strconv.Itoa(len(b.ops)))
	for _, op := range b.ops {
		for _, s := range op {
			put(s)
		}
	}
	put(float(micros(b.age)))
	put(strconv.Itoa(len(b.groups)))
	for _, g := range b.groups {
		put(strconv.Itoa(g.n))
		for _, c := range g.costs {
			put(whole(c))
		}
	}
	return a
}

// A reply is what the script answers.
type reply struct {
	declare   bool // nothing was done: say first what you knew
	granted   int
	probe     int           // 1: the one granted is an overdue probe; 2: the head is overdue, refuse it
	wait      time.Duration // until the next one may come; 0 if all left
	hold      time.Duration
	epoch     string
	at        float64 // the instant of the admissions, on the server's clock
	number    float64 // of admissions before them
	ramp      int64   // the ramp that they belong to; 0 is none
	processes int     // seen lately; 0 if it was not asked for
	differ    bool    // another process has lower limits
	limits    []limitReply
}

type limitReply struct {
	available float64
	charged   float64 // on this budget before these admissions
	extra     float64 // charged beyond estimates
	capacity  float64
}

var errReply = errors.New("meteredredis: the script's answer cannot be read")

// parseReply reads the answer of the script for k limits.
func parseReply(s string, k int) (reply, error) {
	if s == "declare" {
		return reply{declare: true}, nil
	}
	const head = 11
	words := strings.Split(s, " ")
	if len(words) != head+4*k || words[0] != "ok" {
		return reply{}, fmt.Errorf("%w: %d words for %d limits", errReply, len(words), k)
	}
	bad := false
	number := func(i int) float64 {
		x, err := strconv.ParseFloat(words[i], 64)
		bad = bad || err != nil || math.IsNaN(x) || math.IsInf(x, 0)
		return x
	}
	count := func(i int) int {
		x := number(i)
		bad = bad || x < 0 || x > 1<<31
		if bad {
			return 0
		}
		return int(x)
	}
	r := reply{
		granted: count(1), probe: count(2), wait: span(max(number(3), 0)), hold: span(max(number(4), 0)),
		epoch: words[5], at: number(6), number: number(7), ramp: int64(count(8)), processes: count(9), differ: count(10) == 1,
		limits: make([]limitReply, k),
	}
	for i := range r.limits {
		at := head + 4*i
		r.limits[i] = limitReply{number(at), number(at + 1), number(at + 2), number(at + 3)}
	}
	if bad || r.epoch == "" {
		return reply{}, fmt.Errorf("%w: %.200q", errReply, s)
	}
	return r, nil
}
