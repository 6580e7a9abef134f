package metertest

import (
	"crypto/sha256"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A Provider is a metered API. It is an http.Handler, for httptest.NewServer and
// the like, and has an in-memory Transport. Both draw on the same meters, scripts
// and ledger. All methods are safe for concurrent use.
//
// In a synctest bubble make it inside: its clock starts in New.
type Provider struct {
	cfg     Config
	invalid error
	start   time.Time

	mu        sync.Mutex
	rng       *rand.Rand
	amount    [2]int64 // requests, tokens, as in force
	burst     [2]int64
	meters    [2]meter // nil: unmetered
	neighbour *neighbour
	script    script
	forced    int
	ledger    []Entry
	served    int
	refused   int
	tokens    int64

	conns conns
}

// units are the names of the meters, in their order in Provider.
var units = [2]string{"requests", "tokens"}

// New returns a provider whose meters are full and whose clock starts now. It
// keeps no goroutine and needs no closing. See Config.Validate for what happens to
// an invalid Config.
func New(c Config) *Provider {
	invalid := c.Validate()
	if invalid != nil {
		c = Config{Name: c.Name} // nothing of it may take effect
	}
	if c.Per == 0 {
		c.Per = time.Minute
	}
	if c.Name == "" {
		c.Name = "metertest"
	}
	if c.Cost == nil {
		c.Cost = func(r *http.Request, _ []byte) int64 {
			n, err := strconv.ParseInt(r.Header.Get(TokensHeader), 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	p := &Provider{
		cfg:       c,
		invalid:   invalid,
		start:     time.Now(),
		rng:       rand.New(rand.NewPCG(c.Seed, 0)),
		neighbour: newNeighbour(c.Neighbour, c.Seed),
	}
	p.amount, p.burst = [2]int64{c.Requests, c.Tokens}, [2]int64{c.RequestBurst, c.TokenBurst}
	for i := range p.meters {
		p.meters[i] = newMeter(c.Meter, 0, p.amount[i], p.burst[i], c.Per, c.Offset)
	}
	p.script.add(Match{}, c.Script)
	return p
}

// Script appends answers that are given, in this order, to the next requests,
// whoever sends them, before the meters are asked. An invalid Answer is given as
// status 500 and the reason as text.
func (p *Provider) Script(answers ...Answer) { p.ScriptFor(Match{}, answers...) }

// ScriptFor is Script for the requests that m selects. A request gets its answer
// from the first script made that matches it and has one left. To know the Model
// the body must be read: a fault that should leave it unread then needs a request
// with GetBody, or a model in the path.
func (p *Provider) ScriptFor(m Match, answers ...Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script.add(m, answers)
}

// ClearScript drops all scripted answers that were not given yet.
func (p *Provider) ClearScript() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = script{}
}

// SetStatus makes every answer from now on this status, with a body in the
// dialect and no limit headers, whatever scripts and meters say: 529 kills the
// provider. 0 brings it back.
func (p *Provider) SetStatus(code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forced = code
}

// SetLimits changes the limits in the middle of the run; 0 or less leaves that
// unmetered. What was taken stays taken; a level above the new brim falls to it.
// Bursts that Config or SetBursts stated stay, others follow the limit.
func (p *Provider) SetLimits(requests, tokens int64) {
	p.reset(func() { p.amount = [2]int64{max(requests, 0), max(tokens, 0)} })
}

// SetBursts changes the capacities of TokenBucket meters; 0 or less means the
// limit.
func (p *Provider) SetBursts(requests, tokens int64) {
	p.reset(func() { p.burst = [2]int64{max(requests, 0), max(tokens, 0)} })
}

func (p *Provider) reset(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := time.Since(p.start)
	p.neighbour.catchUp(at, p.charge) // by the limits of his time
	change()
	for i, m := range p.meters {
		switch {
		case p.amount[i] == 0:
			p.meters[i] = nil
		case m == nil:
			p.meters[i] = newMeter(p.cfg.Meter, at, p.amount[i], p.burst[i], p.cfg.Per, p.cfg.Offset)
		default:
			m.resize(at, p.amount[i], p.burst[i])
		}
	}
}

// charge asks both meters and takes from both or, mostly, from none. Called with
// mu held.
func (p *Provider) charge(at time.Duration, tokens int64) bool {
	need := [2]int64{1, tokens}
	for i, m := range p.meters {
		if m != nil && m.wait(at, need[i]) > 0 {
			if p.cfg.RefusedCostsRequest && p.meters[0] != nil {
				p.meters[0].takeAtMost(at, 1)
			}
			return false
		}
	}
	for i, m := range p.meters {
		if m != nil {
			m.take(at, need[i])
		}
	}
	return true
}

// judge decides about one call and reads the meters behind it. Called with mu
// held.
func (p *Provider) judge(now time.Time, tokens int64) verdict {
	at := now.Sub(p.start)
	p.neighbour.catchUp(at, p.charge)
	v := verdict{admitted: p.charge(at, tokens), now: now, tokens: tokens, hint: p.cfg.RetryAfter}
	if v.admitted && (p.cfg.Dialect == Bare || p.cfg.Dialect == Gemini) {
		return v // nobody will ask for the readings
	}
	need := [2]int64{1, tokens}
	for i, m := range p.meters {
		if m == nil {
			continue
		}
		r := reading{unit: units[i], limit: m.limit(), left: m.left(at), more: m.more(at), full: m.full(at), per: p.cfg.Per, need: need[i]}
		if !v.admitted {
			r.wait = m.wait(at, need[i])
			v.wait = max(v.wait, r.wait)
		}
		v.readings = append(v.readings, r)
	}
	return v
}

// A reply is all that is to be done for one request once it was decided.
type reply struct {
	Answer               // Status and Header are final
	down   time.Duration // until the headers
}

// spread is d with the jitter. Called with mu held.
func (p *Provider) spread(d time.Duration) time.Duration {
	if p.cfg.Jitter == 0 || d == 0 {
		return d
	}
	return time.Duration(float64(d) * (1 + p.cfg.Jitter*(2*p.rng.Float64()-1)))
}

// up draws how long a request is on its way.
func (p *Provider) up() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spread(p.cfg.Up)
}

// down is the time from the decision to the headers of a status. Called with mu
// held.
func (p *Provider) down(status int) time.Duration {
	whole := p.cfg.Latency
	if status >= 400 {
		whole = p.cfg.RefusedLatency
	}
	return p.spread(max(whole-p.cfg.Up, 0))
}

// beforeBody gives the reply that is due without reading the body, if one is.
func (p *Provider) beforeBody(r *http.Request, peek func() (string, bool)) (reply, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.invalid != nil || p.forced != 0 || len(p.script.rules) == 0 {
		return reply{}, false
	}
	a, ok := p.script.beforeBody(r, peek)
	if !ok {
		return reply{}, false
	}
	return p.scripted(a, p.entry(r, nil, "")), true
}

// decide gives the reply to a request that is here as a whole.
func (p *Provider) decide(r *http.Request, body []byte) reply {
	model := modelOf(r, body)
	tokens := max(p.cfg.Cost(r, body), 0)
	e := p.entry(r, body, model)
	e.Tokens = tokens

	p.mu.Lock()
	a, scripted := Answer{}, false
	switch {
	case p.invalid != nil:
		a, scripted = Reply(500, p.cfg.Name+": "+p.invalid.Error()+"\n"), true
	case p.forced != 0:
		c := p.cfg.Dialect.failure(p.forced)
		a, scripted = Answer{Status: p.forced, Header: c.header, Body: c.body}, true
	default:
		a, scripted = p.script.withBody(r, model)
	}
	if scripted && (a.Status != 0 || a.silent()) || a.validate() != nil {
		defer p.mu.Unlock()
		return p.scripted(a, e)
	}

	e.At = time.Now()
	v := p.judge(e.At, tokens)
	if !v.admitted {
		defer p.mu.Unlock()
		c := p.cfg.Dialect.refused(&v)
		p.cfg.Dialect.limits(c.header, &v)
		e.Status = c.status
		p.note(e)
		return reply{Answer{Status: c.status, Header: c.header, Body: c.body}, p.down(c.status)}
	}
	e.Admitted, e.Status, e.Fault = true, http.StatusOK, a.Fault
	row := p.note(e)
	down := p.down(http.StatusOK)
	p.mu.Unlock()

	if !scripted {
		a = p.respond(r, body, model, tokens)
		if a.Status != http.StatusOK || a.silent() {
			p.mu.Lock()
			p.ledger[row].Status, p.ledger[row].Fault = a.Status, a.Fault
			if a.silent() {
				p.ledger[row].Status = 0
			}
			p.mu.Unlock()
		}
	}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	a.Header = a.Header.Clone()
	if a.Header == nil {
		a.Header = make(http.Header)
	}
	p.cfg.Dialect.limits(a.Header, &v)
	return reply{a, down + a.Delay}
}

// respond writes the answer of an admitted call.
func (p *Provider) respond(r *http.Request, body []byte, model string, tokens int64) Answer {
	if p.cfg.Respond == nil {
		c := p.cfg.Dialect.served(model, tokens)
		return Answer{Status: c.status, Header: c.header, Body: c.body}
	}
	a := p.cfg.Respond(r, body)
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	if err := a.validate(); err != nil {
		return Reply(500, err.Error()+"\n")
	}
	return a
}

// scripted notes and returns the reply that a is. Called with mu held.
func (p *Provider) scripted(a Answer, e Entry) reply {
	if err := a.validate(); err != nil {
		a = Reply(500, err.Error()+"\n")
	}
	e.At, e.Status, e.Fault = time.Now(), a.Status, a.Fault
	if a.silent() {
		e.Status = 0
	}
	e.Admitted = e.Status != 0 && e.Status < 400
	p.note(e)
	a.Header = a.Header.Clone()
	if a.Header == nil {
		a.Header = make(http.Header)
	}
	return reply{a, p.down(a.Status) + a.Delay}
}

// silent tells whether a has a fault that lets no header through. It does not ask
// the meters then.
func (a *Answer) silent() bool {
	switch a.Fault {
	case DialError, ResetBefore, ResetAfter, Hang:
		return true
	}
	return false
}

func (p *Provider) entry(r *http.Request, body []byte, model string) Entry {
	e := Entry{
		Method:        r.Method,
		Host:          hostOf(r),
		Path:          r.URL.Path,
		Query:         r.URL.RawQuery,
		Model:         model,
		Header:        r.Header.Clone(),
		BodyLen:       int64(len(body)),
		BodySHA256:    sha256.Sum256(body),
		ContentLength: r.ContentLength,
	}
	if e.Method == "" {
		e.Method = http.MethodGet
	}
	return e
}
