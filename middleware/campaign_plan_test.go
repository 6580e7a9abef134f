package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
	"github.com/sony/gobreaker/v2"
)

// schedule is one run of the campaign: a stack of layers under a host client, a
// server, and calls. All of it follows from the seed.
type schedule struct {
	seed uint64

	escalate, retry, ladder, pace bool // which layers there are
	built                         bool // by middleware.New; else by Chain
	twice                         int  // 1: wrapped twice; 2: by another of the same configuration
	foreign                       bool // a RoundTripper of somebody else's is between
	host                          string
	hostRetries                   int
	clientTimeout                 time.Duration

	policy      retryafter.Policy
	faults      middleware.RetryPolicy
	bucket      bucket.Config
	limiterKind string
	backups     int
	settings    escalate.Settings
	local       bool
	panics      string // the hook that panics now and then
	tokens      bool   // requests cost tokens, and a Tap hears how many
	oneKey      bool
	steps       bool // somebody asks TakeAt with a clock that steps
	provider    *metertest.Config
	faulty      float64
	calls       []plannedCall

	hooks atomic.Int64 // calls of the hook that panics
}

// plannedCall is what one caller does.
type plannedCall struct {
	id                      int
	start, cancel, deadline time.Duration // 0: never
	method, body            string
	key                     bool // it has an Idempotency-Key
	reads                   int  // of the answer, before it is closed; below 0 all
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func newSchedule(seed uint64) *schedule {
	rng := rand.New(rand.NewPCG(seed, 0x6d65746572))
	some := func(oneIn int) bool { return rng.IntN(oneIn) == 0 }
	s := &schedule{seed: seed, host: pick(rng, "net/http", "net/http", "net/http", "resty", "retryablehttp"), built: some(2)}
	if s.host != "net/http" {
		s.built, s.hostRetries = true, rng.IntN(3)
	}
	s.escalate, s.retry, s.ladder, s.pace = some(2), !some(4), !some(4), !some(4)
	if s.built || !s.escalate && !s.retry && !s.pace {
		s.retry, s.ladder, s.pace = true, true, true
	}
	s.twice, s.foreign = pick(rng, 0, 0, 0, 1, 2), some(4)
	s.clientTimeout = pick(rng, 0, 0, 0, 3*time.Second, time.Minute)
	s.policy = retryafter.DefaultPolicy()
	s.policy.MaxRetries = 1 + rng.IntN(6)
	s.policy.FallbackAfterRetries = rng.IntN(4)
	s.policy.Jitter = pick(rng, 0, time.Second)
	s.policy.MaxDelay = pick(rng, 10*time.Second, time.Minute)
	s.policy.RespectRetryAfter = !some(6)
	s.policy.OverCap = pick(rng, retryafter.Clamp, retryafter.Clamp, retryafter.Stop)
	s.faults = middleware.RetryPolicy{MaxRetries: rng.IntN(5) - 1, AllMethods: some(5)}
	s.backups, s.local = rng.IntN(3), some(2)
	s.settings = escalate.Settings{Timeout: pick(rng, 0, 5*time.Second), Escalations: pick(rng, uint32(0), 2), MaxRequests: pick(rng, uint32(0), 2)}
	s.panics = pick(rng, "", "", "", "", "", "Observer", "Charge", "Key", "Rewrite", "OnStateChange", "ReadyToTrip", "Tap", "Provider")
	s.tokens, s.oneKey, s.steps = some(2), some(4), some(5)
	s.drawBudget(rng)
	s.faulty = pick(rng, 0.2, 0.5, 0.8, 1)
	if some(3) {
		s.provider = &metertest.Config{Name: errHostile.Error(), Seed: seed, Requests: int64(rng.IntN(4) * 20), Tokens: int64(rng.IntN(3) * 3000), Per: pick(rng, time.Second, 10*time.Second, time.Minute),
			Meter: pick(rng, metertest.TokenBucket, metertest.FixedWindow, metertest.RollingWindow), RetryAfter: pick(rng, metertest.Seconds, metertest.Millis, metertest.NoHint, metertest.Zero),
			Dialect: pick(rng, metertest.OpenAI, metertest.Anthropic, metertest.Gemini, metertest.IETF), Up: 20 * time.Millisecond, Latency: 200 * time.Millisecond, Jitter: 0.5,
			Neighbour: metertest.Neighbour{Every: pick(rng, 0, time.Second), Tokens: 100}}
		for range rng.IntN(8) {
			a := pick(rng, refusal("1"), refusal("soon"), metertest.Reply(500, "x"), ok200(), metertest.Answer{})
			a.Fault = pick(rng, metertest.NoFault, metertest.NoFault, metertest.DialError, metertest.ResetBefore, metertest.ResetAfter, metertest.ResetDuringBody, metertest.HangDuringBody)
			s.provider.Script = append(s.provider.Script, a)
		}
	}
	for id := range 1 + rng.IntN(6) {
		c := plannedCall{id: id + 1, method: pick(rng, "GET", "GET", "PUT", "POST", "POST", "POST", "HEAD"), key: some(6), reads: pick(rng, -1, -1, -1, 0, 1, 20)}
		if c.method == "PUT" || c.method == "POST" && !some(4) {
			c.body = pick(rng, "replayable", "replayable", "opaque", "slow", "failing", "blocking")
			if some(40) {
				c.body = "huge"
			}
		}
		c.start = time.Duration(rng.IntN(3)*rng.IntN(3000)) * time.Millisecond
		if some(3) {
			c.cancel = 1 + time.Duration(rng.IntN(20_000))*time.Millisecond
		}
		if some(3) {
			c.deadline = 1 + time.Duration(rng.IntN(90_000))*time.Millisecond
		}
		s.calls = append(s.calls, c)
	}
	return s
}

func (s *schedule) drawBudget(rng *rand.Rand) {
	some := func(oneIn int) bool { return rng.IntN(oneIn) == 0 }
	c := &s.bucket
	for range rng.IntN(3) {
		l := bucket.Limit{Unit: pick(rng, bucket.Requests, bucket.Tokens, bucket.InputTokens), Amount: 1 + int64(rng.IntN(40)), Per: pick(rng, time.Second, 7*time.Second, time.Minute)}
		if l.Unit != bucket.Requests {
			l.Amount *= 100
		}
		if some(3) {
			l.Shape = bucket.Window
		} else if some(3) {
			l.Burst = 1 + l.Amount/3
		}
		c.Limits = append(c.Limits, l)
	}
	c.Adaptive = pick(rng, bucket.AdaptiveDefault, bucket.AdaptiveOff, bucket.AdaptiveOn)
	c.MaxWait = pick(rng, 0, 0, -1, 2*time.Second)
	c.MaxInFlight = pick(rng, 0, 0, 1, 2)
	c.MaxQueue = pick(rng, 0, 0, 0, 2)
	c.Overdue = pick(rng, bucket.OverdueProbe, bucket.OverdueProbe, bucket.OverdueRefuse)
	c.Oversize = pick(rng, bucket.OversizeDebt, bucket.OversizeDebt, bucket.OversizeRefuse)
	s.limiterKind = pick(rng, "local", "local", "local", "local", "failing", "slow", "foreign", "holds nothing")
}

func (s *schedule) String() string {
	return fmt.Sprintf("host %s (%d retries, timeout %v), built %t, twice %d, foreign %t; escalate %t (%d backups, %+v), retry %t %+v, ladder %t %+v, pace %t (%s, one key %t, tokens %t, steps %t) %+v; %s panics; provider %t; %d %% faults; calls %+v",
		s.host, s.hostRetries, s.clientTimeout, s.built, s.twice, s.foreign, s.escalate, s.backups, s.settings.Timeout, s.retry, s.faults, s.ladder, s.policy, s.pace, s.limiterKind, s.oneKey, s.tokens, s.steps, s.bucket,
		s.panics, s.provider != nil, int(s.faulty*100), s.calls)
}

// hook panics if it is the one that the schedule lets panic, every third time.
func (s *schedule) hook(name string) {
	if s.panics == name && s.hooks.Add(1)%3 == 2 {
		panic(fmt.Errorf("%w: %s", errHostile, name))
	}
}

func (s *schedule) observer() middleware.Observer {
	return middleware.ObserverFunc(func(context.Context, middleware.Event) { s.hook("Observer") })
}

func (s *schedule) reader() retryafter.Reader {
	if s.panics != "Provider" {
		return retryafter.Reader{}
	}
	return retryafter.Reader{Providers: []retryafter.Provider{{Name: "own", Hosts: []string{primaryHost}, Header: func(*retryafter.Signal, http.Header, time.Time) { s.hook("Provider") }}}}
}

func (s *schedule) paceConfig() (c middleware.PaceConfig) {
	if s.oneKey || s.panics == "Key" {
		c.Key = func(*http.Request) string { s.hook("Key"); return "one" }
	}
	if s.tokens || s.panics == "Charge" || s.panics == "Tap" {
		c.Charge = func(req *http.Request) (middleware.Charge, error) {
			s.hook("Charge")
			if s.seed%7 == 0 && req.Method == "PUT" && req.GetBody != nil { // an estimator that reads
				if b, err := req.GetBody(); err == nil {
					io.ReadFull(b, make([]byte, 1))
					b.Close()
				}
			}
			tokens := int64(s.seed % 900)
			return middleware.Charge{Cost: bucket.Cost{Requests: 1, InputTokens: tokens, OutputTokens: tokens / 2}, Tap: &hostileTap{s: s}}, nil
		}
	}
	return c
}

type hostileTap struct {
	s *schedule
	n int64
}

func (t *hostileTap) Answered(*http.Response) bool { t.s.hook("Tap"); return t.s.seed%5 != 0 }

func (t *hostileTap) Heard(p []byte) { t.n += int64(len(p)); t.s.hook("Tap") }

func (t *hostileTap) End(error) middleware.Outcome {
	t.s.hook("Tap")
	return middleware.Outcome{Known: t.s.seed%2 == 0, Cost: bucket.Cost{InputTokens: t.n, OutputTokens: -5}}
}

func (s *schedule) router() (*escalate.Router, error) {
	settings := s.settings
	if s.panics == "OnStateChange" {
		settings.OnStateChange = func(string, gobreaker.State, gobreaker.State) { s.hook("OnStateChange") }
	}
	if s.panics == "ReadyToTrip" {
		settings.ReadyToTrip = func(c gobreaker.Counts) bool { s.hook("ReadyToTrip"); return c.ConsecutiveFailures > 1 }
	}
	c := escalate.Config{Primary: escalate.Route{Name: "primary"}, Settings: settings, RerouteLocal: s.local}
	for i := range s.backups {
		r := escalate.Route{Name: fmt.Sprint("backup", i), URL: fmt.Sprintf("http://backup%d.example.net", i)}
		if s.panics == "Rewrite" {
			r.Rewrite = func(*http.Request) error { s.hook("Rewrite"); return nil }
		}
		c.Backups = append(c.Backups, r)
	}
	return escalate.New(c)
}

// routes is how many routes a turn has.
func (s *schedule) routes() int {
	if !s.escalate {
		return 1
	}
	return 1 + s.backups
}

// budget is the most sends of one turn.
func (s *schedule) budget() int {
	n := s.routes()
	if s.ladder {
		n += s.policy.MaxRetries
	}
	if s.retry {
		n += max(0, s.faults.MaxRetries) + zeroMeans(s.faults.MaxRetries, 3)
	}
	return n
}

// weak is a limiter with the faults of one whose store is elsewhere.
type weak struct {
	*bucket.Local
	kind string
	n    atomic.Int64
	mu   sync.Mutex
	out  map[uint64]bucket.Grant
}

var errStore = errors.New("the store is gone")

func (w *weak) Acquire(ctx context.Context, key string, cost bucket.Cost) (bucket.Grant, error) {
	n := w.n.Add(1)
	switch {
	case w.kind == "failing" && n%3 == 0:
		return bucket.Grant{}, errStore
	case w.kind == "slow":
		if err := sleepUntil(ctx, 700*time.Millisecond); err != nil {
			return bucket.Grant{}, bucket.Interrupted(ctx, key)
		}
	case w.kind == "holds nothing" && n%2 == 0:
		return bucket.Grant{}, nil
	}
	g, err := w.Local.Acquire(ctx, key, cost)
	if err != nil || w.kind != "foreign" {
		return g, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out[uint64(n)] = g
	return bucket.NewGrant(w, uint64(n), bucket.GrantInfo{Waited: g.Waited(), Overdue: g.Overdue(), Place: g.Place()}), nil
}

// of returns the grant of id; ends forgets it.
func (w *weak) of(id uint64, ends bool) bucket.Grant {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.out[id]
	if ends {
		delete(w.out, id)
	}
	return g
}

func (w *weak) Served(id uint64)                        { w.of(id, false).Served() }
func (w *weak) Report(id uint64, meters []bucket.Meter) { w.of(id, false).Report(meters...) }
func (w *weak) Refused(id uint64, hold time.Duration)   { w.of(id, true).Refused(hold) }
func (w *weak) Settle(id uint64, cost bucket.Cost)      { w.of(id, true).Settle(cost) }
func (w *weak) Cancel(id uint64)                        { w.of(id, true).Cancel() }
