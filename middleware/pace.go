package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// PaceConfig says how Pace charges a request. The zero value charges one
// request to the budget of the origin.
type PaceConfig struct {
	// Key names the budget of a request; nil means KeyByOrigin. Under a router
	// it is not asked: there the budget is the route's Quota. Keys with
	// secrets in them must hash them, as KeyByCredential does.
	Key func(*http.Request) string
	// Cost estimates what a request will be charged; nil means one request and
	// no tokens. It must not change the request, nor read its Body: GetBody
	// gives it a copy. An error of it is the request's.
	Cost func(*http.Request) (bucket.Cost, error)
	// Charge is for what Cost cannot do: it estimates, and has a Tap hear what
	// the call really cost. It may name the budget too. What is said of Cost
	// goes for it; only one of the two may be set.
	//
	// A body that came without a GetBody is shown to Cost and Charge up to
	// ReplayLimit, where reading it fails.
	Charge func(*http.Request) (Charge, error)
	// Reader reads what answers say; zero knows the built-in providers.
	Reader retryafter.Reader
	// Observer is told what happens; nil tells nobody. Under an outer layer
	// of ours with an Observer, that one is told instead.
	Observer Observer
}

// Validate names what is wrong with c, or returns nil.
func (c PaceConfig) Validate() error {
	if err := c.Reader.Validate(); err != nil {
		return fmt.Errorf("middleware: PaceConfig.Reader: %w", err)
	}
	if c.Cost != nil && c.Charge != nil {
		return errors.New("middleware: PaceConfig: set Cost or Charge, not both")
	}
	return nil
}

// Pace is the layer that takes a request's budget from l before each send, and
// settles it after, for what the call cost if a Tap has heard that: when the body
// of a served answer ends or is closed, at once when the request was refused or
// never left. A refused answer holds the key
// for as long as the Ladder above would wait, or without a Ladder for as long
// as [retryafter.DefaultPolicy] would.
//
// Under [retryafter.Stop] a key that is held for longer than the ladder waits
// refuses new calls at once, with a *bucket.WaitError, if l has a method
// HeldFor(key string) time.Duration, as *bucket.Local has.
//
// Errors of l (a *bucket.WaitError, bucket.ErrQueueFull and the like) are
// returned as they are, with nothing sent.
func Pace(l bucket.Limiter, c PaceConfig) Middleware {
	return func(next http.RoundTripper) http.RoundTripper {
		return newPace(linkTo(next), l, c, newRegistry())
	}
}

func newPace(next link, l bucket.Limiter, c PaceConfig, meters *registry) http.RoundTripper {
	err := c.Validate()
	if l == nil {
		err = errors.New("middleware: Pace needs a bucket.Limiter")
	}
	if err != nil {
		return &broken{next, err}
	}
	return &paceLayer{link: next, limiter: l, config: c, meters: meters, comparable: reflect.TypeOf(l).Comparable()}
}

type paceLayer struct {
	link
	limiter bucket.Limiter
	config  PaceConfig
	meters  *registry

	comparable bool // limiter can be told from another
}

// doubles reports whether outer is another Pace over the same budget: it takes
// what the call costs, and this one passes it through.
func (l *paceLayer) doubles(outer *paceLayer) bool {
	return outer != nil && outer != l && l.comparable && outer.comparable && outer.limiter == l.limiter
}

func (l *paceLayer) RoundTrip(req *http.Request) (*http.Response, error) {
	return enter(l, req, l.config.Observer)
}

// sending is one send of a request: its grant, from the queue until the body of
// its answer ends. It is that body, too, when the answer is served.
type sending struct {
	layer *paceLayer
	t     *turn
	m     *meter
	cost  bucket.Cost
	grant bucket.Grant
	gate  gateContext
	used  atomic.Bool

	ctx     context.Context // the request's
	rc      io.ReadCloser   // the answer's body
	ear     hearing         // who learns from it what it cost
	watched bool            // the breaker wants to know how it ends
	booked  atomic.Bool     // and has been told
	closing atomic.Bool     // whoever reads it has had enough
	ended   atomic.Bool     // the grant is settled
	lost    bool            // no answer came
}

// sending returns room for a send: the turn's own for the first.
func (t *turn) sending() *sending {
	if s := &t.first; !s.used.Swap(true) {
		return s
	}
	return new(sending)
}

func (l *paceLayer) roundTrip(t *turn, req *http.Request) (*http.Response, error) {
	outermost := claim(&t.pace, l)
	if !outermost && l.doubles(t.pace.Load()) {
		return l.send(t, req)
	}
	m, charge, err := l.price(t, req)
	if err != nil {
		return nil, err
	}
	cost := charge.Cost
	s := t.sending()
	s.layer, s.t, s.m, s.cost, s.ctx = l, t, m, cost, req.Context()
	if err := s.acquire(req); err != nil {
		return nil, err
	}
	if outermost {
		t.attempts.Add(1)
	}
	if t.observer != nil {
		t.observe(t.Context, Event{Kind: Sent, Key: m.key, Cost: cost})
		if err := t.hookFailed(); err != nil {
			s.grant.Cancel()
			return nil, err
		}
	}
	m.sent(l.meters.now())

	answered := false
	defer func() {
		if !answered { // an error, or a panic
			m.tally.failed.Add(1)
			s.lost = true
			s.settle(nil)
		}
	}()
	resp, err := l.send(t, req)
	if err != nil {
		t.inTrouble(func(tr *trouble) { tr.key = m.key })
		if neverSent(req, err) {
			s.ended.Store(true)
			s.grant.Cancel()
			m.tally.gaveBack(cost)
		}
		return resp, err
	}
	answered = true
	if resp.StatusCode >= 400 {
		t.inTrouble(func(tr *trouble) { tr.key = m.key })
		source := l.meters.source(m, &l.config.Reader, req.URL.Host).Source
		if v := t.judgeNew(resp, req, source, needOf(cost)); v.refused() {
			s.refused(resp, source, v)
			return resp, nil
		}
	}
	s.served(resp, req.Method, req.URL.Host, charge.Tap)
	return resp, nil
}

// price returns whose budget req draws on, and what it will be charged.
func (l *paceLayer) price(t *turn, req *http.Request) (m *meter, c Charge, err error) {
	if c, err = l.charge(t, req); err != nil {
		return nil, c, &localError{fmt.Errorf("middleware: cost of a request: %w", err)}
	}
	switch {
	case t.router() != nil:
		m = l.meters.meter(t.quota())
	case l.config.Key != nil:
		var key string
		t.hook("PaceConfig.Key", func() { key = l.config.Key(req) })
		m = l.meters.meter(key)
	case c.Key != "":
		m = l.meters.meter(c.Key)
	default:
		m = l.meters.ofOrigin(req.URL.Scheme, req.URL.Host)
	}
	return m, c, t.hookFailed()
}

// acquire takes the send's budget, waiting for it where it must.
func (s *sending) acquire(req *http.Request) error {
	t, key := s.t, s.m.key
	ctx := req.Context()
	if err := s.stopped(); err != nil {
		return err
	}
	if place, ok := t.placeIn(key); ok {
		ctx = bucket.WithPlace(ctx, place)
	}
	watched := t.router() != nil && !t.probe.Load()
	if watched {
		s.gate.Context, s.gate.t = ctx, t
		ctx = &s.gate
	}
	g, err := s.layer.limiter.Acquire(ctx, key, s.cost)
	opened := watched && s.gate.release()
	if err != nil {
		if opened && alive(req.Context()) {
			return errGateOpened{key}
		}
		if !isLocal(req.Context(), err) {
			err = &localError{err}
		}
		return err
	}
	s.grant = g
	waited := g.Waited()
	s.m.tally.waited(waited)
	if waited == 0 {
		return nil
	}
	if t.resting() {
		g.Cancel()
		return errGateOpened{key}
	}
	kind := Waited
	if g.Overdue() {
		kind = Overdue
	}
	t.observe(t.Context, Event{Kind: kind, Key: key, Wait: waited})
	return nil
}

// stopped returns the refusal of a call whose key is held for longer than the
// ladder ever waits, under retryafter.Stop.
func (s *sending) stopped() error {
	policy := s.t.policy.Load()
	if policy == nil || policy.OverCap != retryafter.Stop {
		return nil
	}
	l, ok := s.layer.limiter.(interface {
		HeldFor(key string) time.Duration
	})
	if !ok {
		return nil
	}
	if wait := l.HeldFor(s.m.key); wait > policy.MaxDelay+policy.Jitter {
		return &bucket.WaitError{Key: s.m.key, Wait: wait}
	}
	return nil
}

// refused gives the budget back and holds the key.
func (s *sending) refused(resp *http.Response, source *retryafter.Source, v verdict) {
	t, m := s.t, s.m
	t.setPlace(m.key, s.grant.Place())
	s.report(v.sig.Windows)
	s.ended.Store(true)
	if v.sig.HasHint {
		s.grant.RefusedHinted(v.hold, v.sig.RetryAfter)
	} else {
		s.grant.Refused(v.hold)
	}
	if s.grant != (bucket.Grant{}) { // a zero grant holds nothing
		t.holding(resp)
	}

	m.tally.gaveBack(s.cost)
	m.refused(s.layer.meters.now(), v.sig.Class)
	if t.observer != nil {
		t.observe(t.Context, Event{Kind: Refused, Key: m.key,
			Status: resp.StatusCode, Class: v.sig.Class, Wait: v.rest, Hinted: v.sig.HasHint || v.rest > 0})
		s.doubtHint(v.sig, resp.Header)
		s.unreadable(source, resp.Header)
		if v.hold > 0 {
			t.observe(t.Context, Event{Kind: Held, Key: m.key, Wait: v.hold, Class: v.sig.Class})
		}
	}
}

// served reports what the answer says is left, and settles when its body ends.
func (s *sending) served(resp *http.Response, method, host string, tap Tap) {
	s.m.tally.served.Add(1)
	var room [8]retryafter.Window
	source := s.layer.meters.source(s.m, &s.layer.config.Reader, host)
	shown, looked := source.families(resp.Header)
	if shown != 0 {
		s.report(source.WindowsOf(shown, room[:0], resp.Header, time.Now()))
	}
	if looked && s.t.observer != nil {
		s.unreadable(source.Source, resp.Header)
	}
	s.grant.Served()
	if tap != nil {
		s.answered(resp, tap)
	}
	s.rc = resp.Body
	if w, ok := resp.Body.(io.Writer); ok { // 101 Switching Protocols
		resp.Body = struct {
			io.ReadCloser
			io.Writer
		}{s, w}
		return
	}
	if resp.Body == http.NoBody || method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified {
		s.settle(io.EOF) // nothing more is to come, whether or not the caller closes the body
		return
	}
	resp.Body = s
}

// report tells the bucket what the server says is left.
func (s *sending) report(windows []retryafter.Window) {
	var meters [8]bucket.Meter
	n := 0
	for i := range windows {
		w := &windows[i]
		unit, ok := unitOf(w.Unit)
		if !ok || w.Remaining < 0 || n == len(meters) {
			continue
		}
		reset, ok := s.believed(unit, w)
		if !ok {
			continue
		}
		meters[n] = bucket.Meter{Unit: unit, Limit: w.Limit, Remaining: w.Remaining, Reset: reset, Per: w.Per, Refills: w.Refills}
		n++
	}
	if n > 0 {
		s.grant.Report(meters[:n]...)
	}
}

// settle ends the grant, once, for what the tap has heard or else for the
// estimate. err is what the body ended with, nil if it was closed.
func (s *sending) settle(err error) {
	if s.ended.Swap(true) {
		return
	}
	if s.ear.tap != nil {
		s.hearEnd(err)
		return
	}
	s.settled(Outcome{})
}

// Read is the answer's body; the grant is settled where it ends.
func (s *sending) Read(p []byte) (int, error) {
	n, err := s.rc.Read(p)
	if s.ear.tap != nil && n > 0 {
		s.heard(p[:n])
	}
	if err != nil {
		if s.watched && !s.closing.Load() && !s.ended.Load() && err != io.EOF && alive(s.ctx) && !s.booked.Swap(true) {
			s.t.late(escalate.Transport)
		}
		s.settle(err)
	}
	return n, err
}

// Close closes the answer's body, and settles the grant if nothing has yet.
func (s *sending) Close() error {
	s.closing.Store(true)
	err := s.rc.Close()
	s.settle(nil)
	if hookErr := s.t.hookFailed(); err == nil {
		err = hookErr
	}
	return err
}

// neverSent reports whether err says that nothing of req reached the server.
func neverSent(req *http.Request, err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns) || unread(req)
}
