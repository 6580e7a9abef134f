package middleware

import (
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Charge is what a request is charged, and who learns from its answer what it
// really cost: what PaceConfig.Charge returns.
type Charge struct {
	// Key names the budget. It counts where neither a router nor
	// PaceConfig.Key names it; empty means the origin.
	Key string
	// Cost is the estimate, taken before the request is sent.
	Cost bucket.Cost
	// Tap hears the answer; nil settles for the estimate.
	Tap Tap
}

// Tap hears the answer to one request while the caller reads it. It is used by
// one goroutine at a time, though not always the same. If the request is
// refused, or never sent, no method of it is called.
//
// A panic of a Tap ends its hearing, and becomes the error of the body's Close.
type Tap interface {
	// Answered is told of a served answer when its headers are here, before
	// the caller has it. It must neither change resp nor touch its Body. False
	// settles for the estimate: the body is not heard and End not called.
	Answered(resp *http.Response) bool
	// Heard is given each piece of the body when the caller has read it, never
	// before. It must neither change nor keep p.
	Heard(p []byte)
	// End is called once, when the body has ended (io.EOF), broken off (that
	// error) or was closed before it ended (nil). What it returns settles the
	// call.
	End(err error) Outcome
}

// Outcome is what a Tap has learned.
type Outcome struct {
	// Cost is what the call really cost; only where Known, else the estimate
	// stands.
	Cost  bucket.Cost
	Known bool
	// Late is what an error within the body said, after a status that promised
	// a success: a stream that turns into a refusal. The caller has read it, so
	// nothing is sent again: the key is held, and the breaker told. Its Class
	// is retryafter.OK where there was none.
	Late retryafter.Signal
}

// charge asks the hooks what req will be charged.
func (l *paceLayer) charge(t *turn, req *http.Request) (Charge, error) {
	c := Charge{Cost: bucket.Cost{Requests: 1}}
	if l.config.Cost == nil && l.config.Charge == nil {
		return c, nil
	}
	var err error
	if b, ok := req.Body.(*sendBody); ok {
		b.looking.Add(1)
		defer func() {
			b.looking.Add(-1)
			b.renew()
		}()
	}
	if l.config.Charge != nil {
		t.hook("PaceConfig.Charge", func() { c, err = l.config.Charge(req) })
	} else {
		t.hook("PaceConfig.Cost", func() { c.Cost, err = l.config.Cost(req) })
	}
	return c, err
}

// look opens the body for a hook: what that reads does not count as sent, and a
// body that is only kept for replays is not drawn further than it is kept.
func (b *sendBody) look() (io.ReadCloser, error) {
	switch rc := b.rc.(type) {
	case *sendBody:
		return rc.look()
	case *copyReader:
		r, err := rc.copy.open()
		if err != nil {
			return nil, err
		}
		return &keptReader{r, ReplayLimit}, nil
	}
	b.looked.Store(true)
	return b.fresh()
}

// renew puts a fresh body in the place of one that a hook has looked at: some
// clients' GetBody rewinds the very reader that is the body.
func (b *sendBody) renew() {
	if inner, ok := b.rc.(*sendBody); ok {
		inner.renew()
		return
	}
	if !b.looked.Swap(false) || b.read.Load() {
		return
	}
	if rc, err := b.fresh(); err == nil {
		b.rc.Close()
		b.rc = rc
	}
}

// keptReader reads what is kept of a body, and fails where that ends before the
// body does.
type keptReader struct {
	io.ReadCloser
	left int
}

func (r *keptReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errNoReplay
	}
	n, err := r.ReadCloser.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// hearing joins a Tap to the body of an answer. Read and Close may come from two
// goroutines at once: whoever finds the tap busy leaves the end to the other.
type hearing struct {
	tap   Tap // nil: nobody listens
	state atomic.Uint32
	err   error // that the body ended with; written before ended is claimed
}

const (
	idle uint32 = iota
	busy
	ending // busy, and to be ended then
	over
)

// answered tells the tap of the answer; it hears the body if it wants to.
func (s *sending) answered(resp *http.Response, tap Tap) {
	wanted := false
	s.t.hook("Tap", func() { wanted = tap.Answered(resp) })
	if wanted {
		s.ear.tap = tap
	}
}

// heard passes p on to the tap.
func (s *sending) heard(p []byte) {
	if !s.ear.state.CompareAndSwap(idle, busy) {
		return
	}
	ok := false
	s.t.hook("Tap", func() { s.ear.tap.Heard(p); ok = true })
	if !ok {
		s.ear.state.Store(over)
		s.settled(Outcome{})
		return
	}
	if !s.ear.state.CompareAndSwap(busy, idle) {
		s.endHearing()
	}
}

// hearEnd asks the tap what the call cost, and settles.
func (s *sending) hearEnd(err error) {
	for {
		switch s.ear.state.Load() {
		case idle:
			s.ear.err = err
			if s.ear.state.CompareAndSwap(idle, ending) {
				s.endHearing()
				return
			}
		case busy:
			s.ear.err = err
			if s.ear.state.CompareAndSwap(busy, ending) {
				return // by the reader, in a moment
			}
		default:
			return
		}
	}
}

func (s *sending) endHearing() {
	s.ear.state.Store(over)
	var o Outcome
	s.t.hook("Tap", func() { o = s.ear.tap.End(s.ear.err) })
	s.settled(o)
}

// settled ends the grant with what the tap has learned.
func (s *sending) settled(o Outcome) {
	reserved := s.cost.Of(bucket.Tokens)
	if o.Known {
		s.cost = bucket.Cost{
			Requests:     s.cost.Requests,
			InputTokens:  max(o.Cost.InputTokens, 0),
			OutputTokens: max(o.Cost.OutputTokens, 0),
		}
	}
	if o.Late.Class != retryafter.OK {
		s.turnedDown(o.Late)
	}
	s.grant.Settle(s.cost)
	s.m.tally.settled(reserved, s.cost.Of(bucket.Tokens), s.lost)
	if s.t.observer != nil {
		s.t.observe(s.t.Context, Event{Kind: Settled, Key: s.m.key, Cost: s.cost})
	}
}

// turnedDown acts on a refusal that came in the middle of a served answer.
func (s *sending) turnedDown(sig retryafter.Signal) {
	t, m := s.t, s.m
	if s.watched && !s.booked.Swap(true) {
		t.late(kindOf(sig.Class))
	}
	if v := (verdict{sig: sig}); !v.refused() {
		return
	}
	m.refused(s.layer.meters.now(), sig.Class)
	t.observe(t.Context, Event{Kind: Refused, Key: m.key,
		Status: http.StatusOK, Class: sig.Class, Wait: sig.RetryAfter, Hinted: sig.HasHint})
	if sig.Class == retryafter.QuotaExhausted {
		return // waiting will not cure it
	}
	limiter, ok := s.layer.limiter.(interface {
		Hold(key string, until time.Time)
	})
	if !ok {
		return
	}
	policy := t.policy.Load()
	if policy == nil {
		p := retryafter.DefaultPolicy()
		policy = &p
	}
	hold := policy.Jittered(policy.Backoff(sig.RetryAfter, sig.HasHint))
	limiter.Hold(m.key, time.Now().Add(min(hold, math.MaxInt64/2)))
	t.observe(t.Context, Event{Kind: Held, Key: m.key, Wait: hold, Class: sig.Class})
}
