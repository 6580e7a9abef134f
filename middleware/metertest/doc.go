// Package metertest is a metered API to test against, as net/http/httptest is a
// server to test against. A [Provider] counts requests and tokens as real ones do,
// refuses what is over its limits in the words of real ones, breaks connections on
// demand, and keeps a ledger of what reached it. [TestRoundTripper] is the contract
// of a layer around an http.RoundTripper, as a test.
//
// # A provider in memory, on virtual time
//
// Rate limits are about minutes, and tests should not be. Inside a bubble of
// testing/synctest time passes when everybody waits, so a test of an hour of
// refusals takes milliseconds, and every instant in it is exact. Make the provider,
// and whatever is tested, inside the bubble:
//
//	func TestObeysRetryAfter(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			p := metertest.New(metertest.Config{
//				Requests:       600,
//				RequestBurst:   10, // 600 a minute, enforced as 10 a second
//				Up:             10 * time.Millisecond,
//				Latency:        250 * time.Millisecond,
//				RefusedLatency: 20 * time.Millisecond,
//			})
//			client := &http.Client{Transport: mine(p.Transport())}
//			// ... use client ...
//			if p.Refused() > 0 {
//				t.Errorf("%d of %d calls were refused", p.Refused(), p.Hits())
//			}
//			if n := p.OpenBodies(); n > 0 {
//				t.Errorf("%d answers were not closed", n)
//			}
//		})
//	}
//
// Everything in memory ends by itself: a bubble that does not end has a goroutine
// of the tested program in it. A Provider is an http.Handler as well, so the same
// one goes behind httptest.NewServer where the network itself matters; times are
// real there.
//
// # Scripts
//
// A meter decides by itself; a script says what to answer, in order, and meters
// are asked again when it has run out:
//
//	p.Script(
//		metertest.Reply(429, "x", "Retry-After", "2"),
//		metertest.Answer{Fault: metertest.ResetAfter},
//		metertest.Reply(200, "ok"),
//	)
//
// [Answer] also streams events, sends bodies without end, lies about lengths and
// hangs. [Provider.ScriptFor] is for the requests of one host, path or model, so
// that one provider can be two. [Provider.SetStatus] kills it, [Hosts] makes a
// network of several.
//
// # What a client should be tested against
//
// The published limit does not say how it is enforced, so try each of these; all
// are "600 a minute":
//
//	Config{Requests: 600}                                             // a bucket of a minute
//	Config{Requests: 600, RequestBurst: 10}                           // ten a second
//	Config{Requests: 600, RequestBurst: 10, RefusedCostsRequest: true} // refusals count
//	Config{Requests: 600, Meter: FixedWindow, Offset: 25 * time.Second}
//	Config{Requests: 600, Meter: RollingWindow}
//
// A [Neighbour] on the same limits, [Provider.SetLimits] in the middle of a run, and
// Jitter find what quiet tests do not.
//
// # A layer's contract
//
//	func TestContract(t *testing.T) {
//		metertest.TestRoundTripper(t, func(base http.RoundTripper) http.RoundTripper {
//			return mine(base)
//		})
//	}
//
// Run it under -race too.
package metertest
