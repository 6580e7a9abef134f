package middleware

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// verdict is what an answer said, and what the ladder makes of it. The layer
// that sees the answer first passes it; those above go by it.
type verdict struct {
	at     time.Time // when the answer came
	sig    retryafter.Signal
	prefix []byte            // of the body, where it was read
	rest   time.Duration     // how long the server asks for, in whatever way; 0 if it does not
	act    retryafter.Action // only where refused
	wait   time.Duration     // before the next try, jitter included
	hold   time.Duration     // of the key, jitter included
	held   bool              // a Pace layer holds the key for it: nobody else need wait
}

// refused reports whether the server turned the call away, rather than failing at it.
func (v verdict) refused() bool {
	switch v.sig.Class {
	case retryafter.RateLimited, retryafter.Overloaded, retryafter.QuotaExhausted:
		return true
	}
	return false
}

// judge returns the verdict on resp, an answer with an error status. A turn
// judges an answer once: if a layer below has done so, its verdict stands, also
// when a foreign layer in between has put the answer into a new Response.
func (t *turn) judge(resp *http.Response, req *http.Request, source *retryafter.Source) verdict {
	var v verdict
	var known bool
	t.inTrouble(func(tr *trouble) {
		known = tr.judged == resp || tr.judged != nil && !tr.stale && tr.judged.StatusCode == resp.StatusCode
		v = tr.verdict
	})
	if known {
		return v
	}
	return t.judgeNew(resp, req, source, needOf(bucket.Cost{Requests: 1}))
}

// judgeNew is judge for Pace, where an answer comes straight from below: only
// another Pace can have judged it. need is what the call needs of a window.
func (t *turn) judgeNew(resp *http.Response, req *http.Request, source *retryafter.Source, need func(string) int64) verdict {
	var v verdict
	var known bool
	t.inTrouble(func(tr *trouble) { v, known = tr.verdict, tr.judged == resp })
	if known {
		return v
	}
	now := time.Now()
	v = verdict{at: now, sig: retryafter.Signal{Class: retryafter.Other}}
	if source.ReadsBody(resp.StatusCode) {
		v.prefix = peek(resp)
	}
	t.hook("Provider", func() { v.sig = source.Classify(resp.StatusCode, resp.Header, v.prefix, now) })
	policy := t.policy.Load()
	if policy == nil { // no Ladder in this chain: the default one says how long to hold the key
		p := retryafter.DefaultPolicy()
		policy = &p
	}
	if policy.RespectRetryAfter {
		if v.rest = v.sig.RetryAfter; !v.sig.HasHint {
			v.rest, _ = v.sig.Wait(need)
		}
	}
	if v.refused() {
		t.step(&v, req, policy, need)
	}
	t.inTrouble(func(tr *trouble) { tr.judged, tr.verdict, tr.stale = resp, v, false })
	return v
}

// step asks the ladder what to do about a refusal.
func (t *turn) step(v *verdict, req *http.Request, policy *retryafter.Policy, need func(string) int64) {
	jitter := policy.Jittered(0)
	r := retryafter.Refusal{Signal: v.sig, Route: t.routeLeft(), Need: need}
	if r.Left, r.HasDeadline = left(req.Context()); r.HasDeadline {
		r.Left -= jitter
	}
	t.inTrouble(func(tr *trouble) {
		tr.refused++
		r.Total, r.OnRoute = tr.resends+1, tr.refused
	})
	v.act, v.wait = policy.Step(r)
	v.wait += min(jitter, math.MaxInt64-v.wait)
	switch {
	case v.sig.Class == retryafter.QuotaExhausted: // waiting will not cure it
	case v.act == retryafter.Escalate: // the gate rests for all of it; the key only has to see to its edge
		v.hold = min(v.wait, policy.MaxDelay+jitter)
	default:
		v.hold = v.wait
	}
	if v.act == retryafter.Wait && t.probe.Load() {
		// The probe has found out what it was sent for: the gate rests again.
		if v.act = retryafter.Return; r.Route {
			v.act = retryafter.Escalate
		}
	}
}

// holding notes that a Pace layer holds the key for the verdict on resp.
func (t *turn) holding(resp *http.Response) {
	t.inTrouble(func(tr *trouble) {
		if tr.judged == resp {
			tr.verdict.held = true
		}
	})
}

// forgetVerdict marks the verdict as one on an answer before the next send.
func (t *turn) forgetVerdict() {
	if t.trouble.Load() != nil {
		t.inTrouble(func(tr *trouble) { tr.stale = true })
	}
}

// refusal keeps what a refused answer said, and throws the answer away.
func (t *turn) refusal(resp *http.Response, v verdict) *retryafter.RefusedError {
	if v.prefix == nil {
		v.prefix = peek(resp)
	}
	discard(resp)
	return &retryafter.RefusedError{
		Signal:   v.sig,
		Status:   resp.StatusCode,
		Header:   resp.Header,
		Body:     v.prefix,
		Attempts: int(t.attempts.Load()),
	}
}

// escalation is the typed error of a failed answer that makes the turn give its
// route up. The answer is thrown away.
func (t *turn) escalation(resp *http.Response, v verdict) *escalate.Error {
	return &escalate.Error{
		Key:        t.quota(),
		Kind:       kindOf(v.sig.Class),
		Attempts:   int(t.attempts.Load()),
		RetryAfter: v.rest,
		Err:        t.refusal(resp, v),
	}
}

func kindOf(c retryafter.Class) escalate.Kind {
	switch c {
	case retryafter.RateLimited:
		return escalate.RateLimit
	case retryafter.Overloaded:
		return escalate.Overloaded
	case retryafter.QuotaExhausted:
		return escalate.Quota
	}
	return escalate.Server
}

// unitOf maps the name of a server's meter to the unit of ours.
func unitOf(name string) (bucket.Unit, bool) {
	switch name {
	case "requests":
		return bucket.Requests, true
	case "tokens":
		return bucket.Tokens, true
	case "input_tokens":
		return bucket.InputTokens, true
	case "output_tokens":
		return bucket.OutputTokens, true
	}
	return 0, false
}

// needOf tells Signal.Wait what a call of this cost needs of a window. Of tokens
// that nobody has counted it may need all.
func needOf(cost bucket.Cost) func(unit string) int64 {
	return func(unit string) int64 {
		switch unit {
		case "requests":
			return cost.Requests
		case "tokens":
			return known(cost.InputTokens + cost.OutputTokens)
		case "input_tokens":
			return known(cost.InputTokens)
		case "output_tokens":
			return known(cost.OutputTokens)
		}
		return math.MaxInt64
	}
}

func known(tokens int64) int64 {
	if tokens <= 0 {
		return math.MaxInt64
	}
	return tokens
}

// alive reports whether the caller still wants the answer.
func alive(ctx context.Context) bool { return ctx.Err() == nil }
