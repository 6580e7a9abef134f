package bucket

import (
	"fmt"
	"maps"
	"math"
	"time"
)

// Source says where a limit comes from. The zero Source is Configured.
type Source uint8

const (
	Configured Source = iota // by Config.Limits, LimitsFor or SetLimits
	Stated                   // by the server, in its answers; see Grant.Report
	Inferred                 // from what the server refused, for want of anything else
)

var sourceNames = [...]string{"configured", "stated", "refusals"}

// String returns configured, stated or refusals.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("Source(%d)", uint8(s))
}

// MarshalText is String, for JSON and logs.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Source) UnmarshalText(text []byte) error {
	for k := range sourceNames {
		if sourceNames[k] == string(text) {
			*s = Source(k)
			return nil
		}
	}
	return fmt.Errorf("bucket: unknown source %q", text)
}

// Learned is what Adaptive knows of one key's server. It goes to JSON and back, and on start to
// Config.Learned, so that a program need not find out again what it knew before.
type Learned struct {
	// Metering is how the server meters, as its refusals show it.
	Metering Metering `json:"metering,omitempty"`
	// Boundary is an end of the server's windows, where it counts in windows, and Period how long they are;
	// 0 means the shortest Per of Limits. Given back, it counts where a limit of that Per still is.
	Boundary time.Time     `json:"boundary,omitzero"`
	Period   time.Duration `json:"period,omitempty"` // nanoseconds
	// Guessed says that no Retry-After has shown those windows, only when calls were served and when not.
	Guessed bool `json:"guessed,omitempty"`
	// Limits are those of the key, one for each meter.
	Limits []LearnedLimit `json:"limits,omitempty"`
}

// LearnedLimit is one meter of the server's.
type LearnedLimit struct {
	Unit   Unit          `json:"unit"`
	Amount int64         `json:"amount"`          // per Per
	Per    time.Duration `json:"per"`             // nanoseconds
	Shape  Shape         `json:"shape,omitempty"` // Window where answers state that it comes back at once
	End    time.Time     `json:"end,omitzero"`    // of such a window
	Burst  int64         `json:"burst,omitempty"` // what it holds; 0 means Amount
	// Doubtful says that refusals have shown Burst in one crowd only: others may have emptied the bucket.
	// Whoever is given it back tries for more once, with calls a gap apart, and knows then.
	Doubtful bool `json:"doubtful,omitempty"`

	Rate   float64 `json:"rate,omitempty"` // share of Amount per Per that was left for this program; 0 means 1
	Source Source  `json:"source"`         // of Amount and Per
}

// Metering is how a server meters. The zero Metering is not known.
type Metering string

const (
	Buckets Metering = "bucket" // it refills continuously
	Windows Metering = "window" // it counts anew at each boundary
)

// validate names the first thing wrong with what was given back for key.
func (l Learned) validate(key string) error {
	switch {
	case l.Metering != "" && l.Metering != Buckets && l.Metering != Windows:
		return fmt.Errorf("bucket: Learned[%q]: unknown metering %q", key, l.Metering)
	case l.Metering == Windows && l.Boundary.IsZero():
		return fmt.Errorf("bucket: Learned[%q]: windows without a Boundary", key)
	case l.Period < 0:
		return fmt.Errorf("bucket: Learned[%q]: Period must not be negative, is %v", key, l.Period)
	case len(l.Limits) > maxLimits:
		return fmt.Errorf("bucket: Learned[%q]: %d limits, at most %d", key, len(l.Limits), maxLimits)
	}
	for _, m := range l.Limits {
		most := int64(maxCost)
		if m.Source == Configured {
			most = math.MaxInt64 // as Limit.Validate has it
		}
		of := fmt.Sprintf("bucket: Learned[%q]: limit of %s", key, m.Unit)
		switch {
		case m.Unit > OutputTokens || m.Shape > Window || m.Source > Inferred:
			return fmt.Errorf("%s: unknown Unit, Shape or Source", of)
		case m.Amount <= 0 || m.Amount > most:
			return fmt.Errorf("%s: Amount must be in [1, 2^44], is %d", of, m.Amount)
		case m.Per <= 0:
			return fmt.Errorf("%s: Per must be positive, is %v", of, m.Per)
		case m.Burst < 0 || m.Burst > most:
			return fmt.Errorf("%s: Burst must be in [0, 2^44], is %d", of, m.Burst)
		case math.IsNaN(m.Rate) || m.Rate < 0 || m.Rate > 1:
			return fmt.Errorf("%s: Rate must be in (0, 1], or 0 for 1; is %v", of, m.Rate)
		}
	}
	return nil
}

// Learned returns what was learned of each key, also of those whose use is still to come: what
// Config.Learned takes. It is empty without Adaptive.
func (l *Local) Learned() map[string]Learned {
	all := maps.Clone(l.learned)
	if all == nil {
		all = make(map[string]Learned)
	}
	for _, key := range l.Keys() {
		a := l.peek(key)
		if a == nil {
			continue
		}
		if k := a.learned(max(l.now(), a.clock)); k != nil {
			all[key] = *k
		}
		a.mu.Unlock()
	}
	return all
}

// learned returns what is known of the server of a; nil if that is nothing.
func (a *account) learned(now int64) *Learned {
	p := a.pacer
	if p == nil {
		return nil
	}
	var k Learned
	switch p.mode {
	case drawing:
		k.Metering = Buckets
	case counting:
		k.Metering, k.Boundary, k.Period, k.Guessed = Windows, a.local.time(p.boundary), time.Duration(p.period), !p.stated
	}
	known := k.Metering != ""
	for i := range a.meters {
		m := &a.meters[i]
		if m.shadows > 0 {
			break
		}
		l := LearnedLimit{Unit: m.limit.Unit, Amount: m.limit.Amount, Per: m.limit.Per, Burst: m.limit.Burst, Shape: m.limit.Shape}
		if m.learnt != nil {
			known = true
			l.Source = m.learnt.source
			if m.log != nil && m.log.edge != 0 {
				l.End = a.local.time(m.log.end(now))
			}
		}
		if i < len(p.estimates) {
			e := &p.estimates[i]
			if burst := e.sure(); burst < e.brim {
				l.Burst, l.Doubtful = mulDiv(burst, m.limit.Amount, int64(m.limit.Per)), e.vain == 0
				if mulDiv(l.Burst, int64(m.limit.Per), m.limit.Amount) < burst {
					l.Burst++ // or it would shrink from start to start
				}
			}
			switch {
			case e.learned >= million:
			case l.Source == Inferred: // nobody has published another
				l.Amount = max(mulDiv(l.Amount, e.learned, million), 1)
			default:
				l.Rate = float64(e.learned) / million
			}
		}
		k.Limits = append(k.Limits, l)
	}
	if !known {
		return nil
	}
	return &k
}

// restore takes over what was learned before; a is new. What is configured stays as it is.
func (a *account) restore(now int64, k Learned) {
	p := a.pacer
	if p == nil {
		return
	}
	n := len(a.meters)
	of := make([]*LearnedLimit, n, n+len(k.Limits))
	for i := range k.Limits {
		l := &k.Limits[i]
		configured := false
		for j := range n {
			if m := &a.meters[j]; m.limit.Unit == l.Unit {
				if configured = true; m.limit.Per == l.Per && of[j] == nil {
					of[j] = l
				}
			}
		}
		if configured || l.Source == Configured || a.slots >= maxLimits {
			continue
		}
		m := newMeter(Limit{Unit: l.Unit, Amount: l.Amount, Per: l.Per, Shape: l.Shape, Burst: l.stated()}, a.headroom(l.Source))
		m.learnt = &learnt{source: l.Source, refills: l.Shape == TokenBucket}
		if m.log != nil && !l.End.IsZero() {
			m.learnt.edge = cycled(a.local.instant(l.End), m.log.per, now)
			m.log.move(m.learnt.edge, m.log.per)
		}
		if l.Source == Inferred {
			m.learnt.holds = l.Burst
			a.inferred.raised = max(now, 1)
		}
		a.grow(now, len(a.meters), m)
		of = append(of, l)
	}
	if k.Metering == "" || len(a.meters) == 0 {
		return
	}
	p.estimate(a, now)
	for i := range p.estimates {
		e, l := &p.estimates[i], of[i]
		if l == nil {
			continue
		}
		if l.Burst > 0 {
			e.burst = min(max(mulDiv(l.Burst, int64(l.Per), l.Amount), 1), e.brim)
			e.prove(e.burst)
			if l.Doubtful {
				e.try(e.brim)
			} else if e.burst < e.brim {
				e.vain = 1
			}
		}
		if l.Rate > 0 {
			e.learned = max(int64(l.Rate*million), 1)
		}
	}
	p.mode = drawing
	period := p.longer(0)
	if k.Period > 0 {
		period = periodic(k.Period)
	}
	if k.Metering == Windows && period == p.longer(period) { // else they were of a limit that is no more
		p.mode, p.gap, p.halved = counting, p.alone(), now
		p.period, p.blur, p.stated = period, grain, !k.Guessed
		p.boundary = cycled(a.local.instant(k.Boundary), p.period, now)
	}
}

// stated is the burst of a meter that is not Configured, as far as it is one that holds for sure.
func (l *LearnedLimit) stated() int64 {
	if l.Doubtful || l.Shape == Window || (l.Burst > l.Amount) != (l.Source == Inferred) {
		return 0
	}
	return l.Burst
}

// cycled is the end of the window that is on, of which at is one end.
func cycled(at, period, now int64) int64 {
	if at > later(now, period) {
		at -= (at - now - 1) / period * period
	}
	return nextOnGrid(at, period, now+1)
}
