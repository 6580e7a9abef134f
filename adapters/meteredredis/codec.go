package meteredredis

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

//go:embed budget.lua
var source string

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
	speaker  *speaker
	epoch    int64 // known; 0 if none is
	beat     bool
	declared *declaration
	ops      [][]string
	back     *comeback     // that the ops tell of
	age      time.Duration // of the head
	groups   []group
	due      time.Time // when it goes at the latest
	left     time.Time // when it went
}

// A speaker is what is the same in all calls of a process for a budget.
type speaker struct {
	pid, fresh string
	rest       []byte // of the arguments that come before the declaration
	limits     int
}

// newSpeaker returns the speaker of a process on a budget; fresh is the budget's epoch if it begins here.
func newSpeaker(pid, fresh int64, c *Config, limits []limit) *speaker {
	s := &speaker{pid: whole(pid), fresh: whole(fresh), limits: len(limits)}
	put := func(w string) { s.rest = append(append(s.rest, w...), ',') }
	put(whole(max(c.MaxWait, 0).Microseconds()))
	put(whole(c.answerTime().Microseconds()))
	put(truth(c.Overdue == bucket.OverdueRefuse))
	put(strconv.Itoa(len(limits)))
	for i := range limits {
		l := &limits[i]
		put(strconv.Quote(l.name)) // of our own making: no character of it is special
		put(float(l.rate))
		put(whole(l.capacity))
		put(float(l.per))
		put(truth(l.Shape == bucket.Window))
	}
	return s
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

func truth(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func float(x float64) string { return strconv.FormatFloat(x, 'g', 17, 64) }

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// The operations of a batch, by the numbers that the script has for them; what follows each is said there.
const (
	opRefund = "1" // limit, cost, instant of the admission
	opExtra  = "2" // limit, cost
	opBack   = "3" // limit, level, away, spent, rate, and what the store may have let go in all
	opHold   = "4" // span
	opServed = "5" // ramp
	opLeft   = "6" // ramp
	opProbed = "7"
	opReport = "8" // limit, number, charged and extra of the admission; remaining; whether it is literal
	opReturn = "9" // away, grace; the wait of the answer is how long to stay away yet
)

// argument is b as the script reads it: a JSON array.
func (b *batch) argument() string {
	a := make([]byte, 0, 64+len(b.speaker.rest)+64*len(b.ops)+32*len(b.groups))
	put := func(w string) { a = append(append(a, w...), ',') }
	a = append(a, '[')
	put(whole(b.epoch))
	put(b.speaker.fresh)
	put(b.speaker.pid)
	put(truth(b.beat))
	a = append(a, b.speaker.rest...)
	put(truth(b.declared != nil))
	if b.declared != nil {
		for _, level := range b.declared.levels {
			put(float(level))
		}
		put(whole(b.declared.hold.Microseconds()))
	}
	put(strconv.Itoa(len(b.ops)))
	for _, op := range b.ops {
		for _, w := range op {
			put(w)
		}
	}
	put(whole(b.age.Microseconds()))
	put(strconv.Itoa(len(b.groups)))
	for _, g := range b.groups {
		a = append(strconv.AppendInt(a, int64(g.n), 10), ',')
		for _, c := range g.costs {
			a = append(strconv.AppendInt(a, c, 10), ',')
		}
	}
	a[len(a)-1] = ']'
	return string(a)
}

// A reply is what the script answers.
type reply struct {
	declare   bool // nothing was done: say first what you knew
	granted   int
	probe     int           // 1: the one granted is an overdue probe; 2: the head is overdue, refuse it
	wait      time.Duration // until the next one may come; 0 if all left
	hold      time.Duration
	epoch     int64
	at        int64         // the instant of the admissions, on the server's clock
	number    int64         // of admissions before them
	ramp      int64         // the ramp that they belong to; 0 is none
	processes int           // seen lately; 0 if it was not asked for
	differ    bool          // another process has lower limits
	window    time.Duration // a window keeps the head for as long, whatever other processes claim; 0 if none does
	binding   int           // which limit it is
	limits    []limitReply
}

type limitReply struct {
	available float64 // rounded down to a millionth, and nine billion thousands at most
	charged   int64   // on this budget before these admissions
	extra     int64   // charged beyond estimates
}

var errReply = errors.New("meteredredis: the script's answer cannot be read")

// parseReply reads the answer of the script for k limits.
func parseReply(words []int64, k int) (reply, error) {
	if len(words) == 0 {
		return reply{declare: true}, nil
	}
	const head = 12
	if len(words) != head+3*k || words[0] < 0 || words[1] < 0 || words[2] < 0 || words[3] < 0 || words[8] < 0 ||
		words[10] < 0 || words[11] < 0 || words[11] > int64(k) {
		return reply{}, fmt.Errorf("%w: %v for %d limits", errReply, words, k)
	}
	r := reply{
		granted: int(words[0]), probe: int(words[1]), wait: span(float64(words[2])), hold: span(float64(words[3])),
		epoch: words[4], at: words[5], number: words[6], ramp: words[7], processes: int(words[8]), differ: words[9] == 1,
		window: span(float64(words[10])), binding: int(max(words[11]-1, 0)),
		limits: make([]limitReply, k),
	}
	for i := range r.limits {
		at := head + 3*i
		r.limits[i] = limitReply{float64(words[at]) / 1e6, words[at+1], words[at+2]}
	}
	return r, nil
}
