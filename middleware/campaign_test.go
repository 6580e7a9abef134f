package middleware_test

import (
	"flag"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

var (
	campaignRuns = flag.Int("campaign.runs", 4000, "schedules that TestCampaign plays")
	campaignSeed = flag.Uint64("campaign.seed", 0, "the one seed that TestCampaign plays; 0 plays seeds from 1 to campaign.runs")
)

// Random stacks of layers, under random hosts, over servers that do whatever a
// server can do, on virtual time. What must hold after each schedule is in
// campaign.check. Jitter, and who of two is first at one instant, are not the
// seed's: a seed that fails may have to be replayed with -count.
func TestCampaign(t *testing.T) {
	first, last := uint64(1), uint64(*campaignRuns)
	if *campaignSeed != 0 {
		first, last = *campaignSeed, *campaignSeed
	}
	var total campaign
	failed := 0
	for seed := first; seed <= last && failed < 10; seed++ {
		s := newSchedule(seed)
		c := s.play(t)
		total.count(c)
		if len(c.wrong) > 0 {
			failed++
			t.Errorf("go test ./middleware -run '^TestCampaign$' -campaign.seed %d\n\t%s\n%v", seed, strings.Join(c.wrong, "\n\t"), s)
		}
		if *campaignSeed != 0 {
			t.Log(s)
			for _, send := range c.sends {
				t.Logf("%+v", *send)
			}
		}
	}
	t.Logf("%d schedules: %d calls, %d sends, %d refused, %d faults, %d calls served, %d cancelled",
		last-first+1, total.calls, total.sent, total.refused, total.faults, total.served, total.cancelled)
}

// campaign is a schedule under way, or the sums of several.
type campaign struct {
	*schedule
	*hostile
	router  *escalate.Router
	limiter bucket.Limiter
	local   *bucket.Local
	stacks  []*middleware.Stack
	client  *http.Client
	resty   *resty.Client
	retry   *retryablehttp.Client

	calls, sent, refused, faults, served, cancelled int
}

func (c *campaign) count(o *campaign) {
	c.calls += len(o.schedule.calls)
	c.served += o.served
	c.cancelled += o.cancelled
	for _, s := range o.sends {
		c.sent++
		switch s.status {
		case 429, 503, 529:
			c.refused++
		case 0:
			c.faults++
		}
	}
}

// play runs s in a bubble of its own.
func (s *schedule) play(t *testing.T) (c *campaign) {
	c = &campaign{schedule: s}
	c.hostile = &hostile{seed: s.seed, faulty: s.faulty, mayPanic: s.host == "net/http" && s.clientTimeout == 0}
	defer func() {
		if p := recover(); p != nil { // a goroutine that never ends, for one
			c.complain("panic: %v", p)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		c.start = time.Now()
		if s.provider != nil {
			c.real = metertest.New(*s.provider).Transport()
		}
		if err := c.build(); err != nil {
			c.complain("building: %v", err)
			return
		}
		before := runtime.NumGoroutine()
		var calls sync.WaitGroup
		for i := range s.calls {
			calls.Go(func() { c.call(&s.calls[i]) })
		}
		if s.steps {
			calls.Go(c.stepClock)
		}
		calls.Wait()
		time.Sleep(time.Minute) // a caller's body may block for that long
		synctest.Wait()
		c.check(before)
	})
	return c
}

// build makes the layers, and the client above them.
func (c *campaign) build() (err error) {
	if c.escalate {
		if c.router, err = c.schedule.router(); err != nil {
			return err
		}
	}
	var base http.RoundTripper = c.hostile
	wraps := 1
	if c.twice > 0 {
		wraps = 2
	}
	for i := range wraps {
		if c.limiter == nil || c.twice == 2 {
			if err := c.makeLimiter(); err != nil {
				return err
			}
		}
		if c.foreign && i > 0 {
			base = addsHeader{base}
		}
		if base, err = c.wrap(base); err != nil {
			return err
		}
	}
	c.client = &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) { return c.enter(base, req) }), Timeout: c.clientTimeout}
	switch c.host {
	case "resty":
		c.resty = resty.NewWithClient(&http.Client{Transport: c.hostile, Timeout: c.clientTimeout}).SetRetryCount(c.hostRetries).SetLogger(silent{})
		if c.twice > 0 {
			c.resty.SetTransport(addsHeader{c.stacks[0].Transport(c.hostile)})
		}
		return meteredresty.Install(c.resty, c.stacks[len(c.stacks)-1])
	case "retryablehttp":
		c.retry = retryablehttp.NewClient()
		c.retry.Logger, c.retry.RetryMax, c.retry.HTTPClient = nil, c.hostRetries, &http.Client{Transport: c.hostile, Timeout: c.clientTimeout}
		if c.twice > 0 {
			c.retry.HTTPClient.Transport = addsHeader{c.stacks[0].Transport(c.hostile)}
		}
		return meteredretryable.Install(c.retry, c.stacks[len(c.stacks)-1])
	}
	return nil
}

func (c *campaign) makeLimiter() (err error) {
	config := c.bucket
	if config.Adaptive == bucket.AdaptiveDefault && c.built {
		config.Adaptive = bucket.AdaptiveOn
	}
	if c.local, err = bucket.New(config); err != nil {
		return err
	}
	c.limiter = c.local
	if c.limiterKind != "local" {
		c.limiter = &weak{Local: c.local, kind: c.limiterKind, out: map[uint64]bucket.Grant{}}
	}
	return nil
}

// wrap puts the layers over base.
func (c *campaign) wrap(base http.RoundTripper) (http.RoundTripper, error) {
	if c.built {
		var router *escalate.Router
		if c.escalate {
			router = c.router
		}
		s, err := middleware.New(middleware.Config{Limiter: c.limiter, Pace: c.paceConfig(), Ladder: c.policy, Retry: c.schedule.faults, Router: router, Reader: c.reader(), Observer: c.observer()})
		if err != nil {
			return nil, err
		}
		c.stacks = append(c.stacks, s)
		return s.Transport(base), nil
	}
	var layers []middleware.Middleware
	add := func(on bool, m middleware.Middleware) {
		if on {
			layers = append(layers, m)
			if c.foreign {
				layers = append(layers, func(next http.RoundTripper) http.RoundTripper { return addsHeader{next} })
			}
		}
	}
	pace := c.paceConfig()
	pace.Reader, pace.Observer = c.reader(), c.observer()
	add(c.escalate, middleware.Escalate(c.router))
	add(c.schedule.retry, middleware.Retry(c.schedule.faults))
	add(c.ladder, middleware.Ladder(c.policy))
	add(c.pace, middleware.Pace(c.limiter, pace))
	return middleware.Chain(base, layers...), nil
}

// addsHeader is a RoundTripper as others write them.
type addsHeader struct{ next http.RoundTripper }

func (a addsHeader) RoundTrip(req *http.Request) (*http.Response, error) {
	r := req.Clone(req.Context())
	r.Header.Add("X-Passed", "by")
	return a.next.RoundTrip(r)
}

type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// stepClock asks the limiter as somebody does whose clock is set back and forth.
func (c *campaign) stepClock() {
	rng := rand.New(rand.NewPCG(c.schedule.seed, 1))
	for range 10 {
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		at := time.Now().Add(time.Duration(rng.IntN(120)-100) * time.Second)
		if g, wait := c.local.TakeAt(at, "http://"+primaryHost+":80", bucket.Cost{Requests: 1}); wait == 0 {
			g.Report(bucket.Meter{Unit: bucket.Requests, Limit: -1, Remaining: rng.Int64() - 5, Reset: -time.Hour})
			pick(rng, g.Cancel, g.Served, func() {}, func() { g.Refused(-time.Hour) })()
			g.Settle(bucket.Cost{Requests: rng.Int64N(3)})
		}
	}
}

// goroutinesMade counts all goroutines ever started, where the runtime tells.
func goroutinesMade() uint64 {
	s := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	if metrics.Read(s); s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
