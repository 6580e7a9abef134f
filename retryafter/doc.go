// Package retryafter reads what a server said about waiting, and knows what to
// do about it.
//
// [Parse] reads Retry-After and its relatives. [Classify] says what a whole
// answer means: whether the caller is too fast, the service short of capacity,
// or the money gone; how long the answer asks to wait; and what it says is left
// of the server's meters. [Read] does so for an *http.Response and leaves its
// body whole. Both are the zero [Reader]'s, which knows more than thirty providers; a
// Reader with a [Provider] of the user's own, or with a proxy's host, knows more:
//
//	r := retryafter.Reader{Hosts: map[string]string{"llm.corp.example": "openai"}}
//	sig := r.Read(resp, time.Now())
//
// Providers are declared as data: header families with their units, formats and
// windows, the places that state a wait, and rules that lead from a status and a
// field of the body to a class. One of the user's own, which refuses with 420,
// says in X-Calm-Wait-Ms how long to wait and in X-Calm-Left what is left:
//
//	calm := retryafter.Provider{
//		Name:   "calm",
//		Hosts:  []string{"api.calm.example"},
//		Rules:  []retryafter.Rule{{Status: []int{420}, Class: retryafter.RateLimited}},
//		Hints:  []retryafter.Hint{{Header: "X-Calm-Wait-Ms", Format: retryafter.Milliseconds}},
//		Meters: []retryafter.Meter{{Unit: "requests", Remaining: "X-Calm-Left"}},
//	}
//	r := retryafter.Reader{Providers: []retryafter.Provider{calm}}
//	err := r.Validate() // names what could never be read
//
// What data cannot say, [Provider].Header and [Provider].Body say in code.
//
// A status outranks a text, and only structured fields of a known provider change
// a class. Every other host is read by its statuses and by the shapes of its
// headers alone: X-RateLimit-*, the RateLimit fields of all generations of the
// IETF draft, and the names that OpenAI and Anthropic began.
//
// [Source.Windows] is for the hot path: it reads the meters of a success without
// allocation.
//
// [Policy] is the ladder that obeys. It is pure: [Policy.Step] is given a refusal
// and where its turn stands, and says wait, escalate or return; it neither sleeps
// nor sends. [Detect] recognises a refusal in an error, and [RefusedError] is the
// copy of a refused answer that is handed up.
//
// # What it does not do
//
// It does not guess: a text of an unknown host changes nothing, a value that cannot be read counts as not stated,
// and what an answer does not say is not made up. That an answer states no limits does not mean that there are
// none. Waits are as stated and not capped; capping is the [Policy]'s.
//
// The package uses the standard library only, keeps no state and starts no
// goroutine. Everything in it may be used concurrently. No input makes it panic,
// and no wait that it returns is negative or wraps: what is too long for a
// time.Duration is the longest there is.
package retryafter
