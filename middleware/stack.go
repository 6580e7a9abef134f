package middleware

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// DefaultHeadroom is the share of the stated limits that a Stack uses where
// Config.Bucket.Headroom is zero: a little below the provider's cap, because
// estimates err and retries happen.
const DefaultHeadroom = 0.9

// Config configures a Stack. The zero value works: a ladder and transport
// retries with their defaults, and a key that is held for all when the server
// refuses one. Without limits a key is paced by what the server's answers state, and
// a crowd that nobody has answered yet leaves a gap apart.
type Config struct {
	// Bucket configures the local limiter, unless Limiter is set. A zero
	// Headroom is DefaultHeadroom here, and a zero Adaptive is AdaptiveOn.
	Bucket bucket.Config
	// Limiter replaces the local limiter, for a budget that several processes
	// share.
	Limiter bucket.Limiter
	// Pace says how requests are charged. Its Reader and Observer must be
	// zero: all layers use those below.
	Pace PaceConfig
	// Ladder is the policy for refusals; wholly zero means retryafter.DefaultPolicy.
	Ladder retryafter.Policy
	// Retry is the policy for transport faults; zero means its defaults.
	Retry RetryPolicy
	// Router picks among a primary route and its backups; nil sends every
	// request where its URL points.
	Router *escalate.Router
	// Reader reads what answers say; zero knows the built-in providers.
	Reader retryafter.Reader
	// Observer is told what happens; nil tells nobody.
	Observer Observer
}

// Validate names what is wrong with c, or returns nil.
func (c Config) Validate() error {
	if c.Limiter != nil && (len(c.Bucket.Limits) > 0 || c.Bucket.LimitsFor != nil) {
		return errors.New("middleware: Config.Limiter and the limits of Config.Bucket are both set; the limiter has limits of its own")
	}
	if c.Limiter == nil {
		if err := c.Bucket.Validate(); err != nil {
			return fmt.Errorf("middleware: Config.Bucket: %w", err)
		}
	}
	if p := c.Pace; p.Observer != nil || p.Reader.Providers != nil || p.Reader.Hosts != nil {
		return errors.New("middleware: set Config.Reader and Config.Observer, not those of Config.Pace")
	}
	if err := c.Pace.Validate(); err != nil {
		return err
	}
	if err := c.Ladder.OrDefault().Validate(); err != nil {
		return fmt.Errorf("middleware: Config.Ladder: %w", err)
	}
	if err := c.Retry.Validate(); err != nil {
		return err
	}
	if err := c.Reader.Validate(); err != nil {
		return fmt.Errorf("middleware: Config.Reader: %w", err)
	}
	if c.Router != nil && c.Router.Routes() > maxRoutes {
		return fmt.Errorf("middleware: Config.Router has %d routes, at most %d can be told apart", c.Router.Routes(), maxRoutes)
	}
	return nil
}

// Stack is all the layers in their right order, over one budget. It is safe for
// concurrent use; clients that share a quota should share a Stack.
type Stack struct {
	config  Config
	limiter bucket.Limiter
	meters  *registry
}

// New returns the Stack of c, or what is wrong with c.
func New(c Config) (*Stack, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Stack{config: c, limiter: c.Limiter, meters: newRegistry()}
	if s.limiter == nil {
		if c.Bucket.Headroom == 0 {
			c.Bucket.Headroom = DefaultHeadroom
		}
		if c.Bucket.Adaptive == bucket.AdaptiveDefault {
			c.Bucket.Adaptive = bucket.AdaptiveOn
		}
		local, err := bucket.New(c.Bucket)
		if err != nil {
			return nil, fmt.Errorf("middleware: Config.Bucket: %w", err)
		}
		s.limiter = local
	}
	return s, nil
}

// Limiter returns the limiter that the Stack paces by: a *bucket.Local, unless
// Config.Limiter was set.
func (s *Stack) Limiter() bucket.Limiter { return s.limiter }

// Transport returns a RoundTripper that sends through the Stack's layers and
// then base; nil means http.DefaultTransport. Transports of one Stack share its
// budget, breakers and figures.
func (s *Stack) Transport(base http.RoundTripper) http.RoundTripper {
	c := s.config
	pace := c.Pace
	pace.Reader, pace.Observer = c.Reader, c.Observer
	rt := newPace(linkTo(base), s.limiter, pace, s.meters)
	rt = newLadder(linkTo(rt), c.Ladder, c.Reader, c.Observer)
	rt = newRetry(linkTo(rt), c.Retry, c.Reader, c.Observer)
	if c.Router != nil {
		rt = newEscalate(linkTo(rt), c.Router, c.Reader, c.Observer)
	}
	return rt
}

// Stats returns the figures of every key that the Stack has seen lately, and of
// its routes.
func (s *Stack) Stats() Stats {
	st := Stats{Keys: s.meters.snapshot(s.limiter)}
	if s.config.Router != nil {
		st.Routes = s.config.Router.Snapshot()
	}
	return st
}

// Learned returns what pacing has learned of each key's server: how it meters, and
// what limits it states. Save it, as JSON say, and give it back on start as
// Config.Bucket.Learned. It is empty where the limiter learns nothing.
func (s *Stack) Learned() map[string]bucket.Learned {
	if l, ok := s.limiter.(interface {
		Learned() map[string]bucket.Learned
	}); ok {
		return l.Learned()
	}
	return map[string]bucket.Learned{}
}
