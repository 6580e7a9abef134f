package retryafter_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/meteredhttp/meteredhttp/retryafter"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ExampleParse() {
	h := http.Header{}
	h.Set("Retry-After", "Mon, 30 Nov 2026 12:02:00 GMT")
	fmt.Println(retryafter.Parse(h, now))

	h.Set("Retry-After-Ms", "1500") // more exact, so it comes first
	fmt.Println(retryafter.Parse(h, now))

	h = http.Header{}
	h.Set("Retry-After", "-5") // malformed counts as absent
	fmt.Println(retryafter.Parse(h, now))
	// Output:
	// 2m0s true
	// 1.5s true
	// 0s false
}

func ExampleClassify() {
	body := []byte(`{"error":{"type":"insufficient_quota","message":"You exceeded your current quota."}}`)

	// At OpenAI this 429 means that the money is gone.
	sig := retryafter.Classify("api.openai.com", 429, nil, body, now)
	fmt.Println(sig.Class, sig.Retryable)

	// A host that nobody knows is read by its status.
	sig = retryafter.Classify("api.example.com", 429, nil, body, now)
	fmt.Println(sig.Class, sig.Retryable)
	// Output:
	// quota_exhausted false
	// rate_limited true
}

func ExampleRead() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, "slow down")
	}))
	defer server.Close()

	resp, err := http.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	sig := retryafter.Read(resp, time.Now())
	body, _ := io.ReadAll(resp.Body) // still whole
	fmt.Printf("%v, wait %v: %s\n", sig.Class, sig.RetryAfter, body)
	// Output: rate_limited, wait 20s: slow down
}

// A proxy's host speaks a provider that is known.
func ExampleReader_hosts() {
	r := retryafter.Reader{Hosts: map[string]string{"llm.corp.example": "anthropic"}}
	if err := r.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	body := []byte(`{"type":"error","error":{"type":"overloaded_error"}}`)
	fmt.Println(r.Classify("llm.corp.example", 500, nil, body, now).Class)
	// Output: overloaded
}

// A provider of one's own is one value. This one refuses with 420, states the
// wait in a header of its own and what is left in others, and says in the body
// when the money is gone.
func ExampleReader_providers() {
	calm := retryafter.Provider{
		Name:  "calm",
		Hosts: []string{"api.calm.example", "*.calm.example"},
		Rules: []retryafter.Rule{
			{Paths: []string{"fault.kind"}, Is: []string{"broke"}, Class: retryafter.QuotaExhausted},
			{Status: []int{420}, Class: retryafter.RateLimited},
		},
		Hints: []retryafter.Hint{
			{Header: "X-Calm-Wait-Ms", Format: retryafter.Milliseconds},
			{Header: "X-Backoff", Format: retryafter.Duration},
		},
		Meters: []retryafter.Meter{{
			Unit:  "requests",
			Limit: "X-Calm-Limit", Remaining: "X-Calm-Left",
			Per: time.Minute,
		}},
	}
	r := retryafter.Reader{Providers: []retryafter.Provider{calm}}
	if err := r.Validate(); err != nil {
		fmt.Println(err)
		return
	}

	h := http.Header{}
	h.Set("X-Calm-Limit", "100")
	h.Set("X-Calm-Left", "0")
	h.Set("X-Calm-Wait-Ms", "7000")
	sig := r.Classify("api.calm.example", 420, h, nil, now)
	fmt.Println(sig.Class, sig.RetryAfter, sig.HasHint)
	for _, w := range sig.Windows {
		fmt.Printf("%d of %d %s left\n", w.Remaining, w.Limit, w.Unit)
	}

	h = http.Header{}
	h.Set("X-Backoff", "1m30s")
	fmt.Println(r.Classify("eu.calm.example", 420, h, nil, now).Wait(nil))

	body := []byte(`{"fault":{"kind":"broke"}}`)
	fmt.Println(r.Classify("api.calm.example", 420, nil, body, now).Class)
	// Output:
	// rate_limited 7s true
	// 0 of 100 requests left
	// 1m30s true
	// quota_exhausted
}

// What data cannot say is said in code: here the unit of the wait is a header too.
func ExampleProvider_header() {
	r := retryafter.Reader{Providers: []retryafter.Provider{{
		Name:  "odd",
		Hosts: []string{"api.odd.example"},
		Header: func(s *retryafter.Signal, h http.Header, _ time.Time) {
			unit := map[string]time.Duration{"s": time.Second, "min": time.Minute}[h.Get("X-Wait-Unit")]
			n, err := strconv.ParseUint(h.Get("X-Wait"), 10, 16)
			if err == nil && unit > 0 {
				s.RetryAfter, s.HasHint = time.Duration(n)*unit, true
			}
		},
	}}}
	h := http.Header{}
	h.Set("X-Wait", "2")
	h.Set("X-Wait-Unit", "min")
	sig := r.Classify("api.odd.example", 429, h, nil, now)
	fmt.Println(sig.Class, sig.RetryAfter)
	// Output: rate_limited 2m0s
}

// Where the provider refills continuously, the wait is until the call fits, not
// until all is back.
func ExampleSignal_Wait() {
	h := http.Header{}
	h.Set("x-ratelimit-limit-tokens", "150000")
	h.Set("x-ratelimit-remaining-tokens", "30000")
	h.Set("x-ratelimit-reset-tokens", "48s")
	sig := retryafter.Classify("api.openai.com", 429, h, nil, now)
	fmt.Println(sig.Wait(func(unit string) int64 {
		if unit == "tokens" {
			return 45000
		}
		return 1
	}))
	// Output: 6s true
}

// The meters of a success, without allocation.
func ExampleSource_Windows() {
	source := retryafter.Reader{}.For("api.openai.com") // keep it
	h := http.Header{}
	h.Set("x-ratelimit-limit-requests", "60")
	h.Set("x-ratelimit-remaining-requests", "59")
	h.Set("x-ratelimit-reset-requests", "1s")

	var room [8]retryafter.Window
	for _, w := range source.Windows(room[:0], h, now) {
		fmt.Printf("%d of %d %s left, full again in %v\n", w.Remaining, w.Limit, w.Unit, w.Reset)
	}
	// Output: 59 of 60 requests left, full again in 1s
}

func ExamplePolicy_Backoff() {
	p := retryafter.DefaultPolicy()
	fmt.Println(p.Backoff(2*time.Second, true))
	fmt.Println(p.Backoff(time.Hour, true))
	fmt.Println(p.Backoff(0, false))
	// Output:
	// 2s
	// 1m0s
	// 5s
}

// A server that refuses for ever and gives no hint, with a backup and without.
func ExamplePolicy_Step() {
	sig := retryafter.Classify("api.example.com", 429, nil, nil, now)
	for _, backup := range []bool{true, false} {
		for n := 1; ; n++ {
			action, wait := retryafter.DefaultPolicy().Step(retryafter.Refusal{
				Signal: sig, Total: n, OnRoute: n, Route: backup,
			})
			if action != retryafter.Wait {
				fmt.Println(action)
				break
			}
			fmt.Print(wait, ", ")
		}
	}
	// Output:
	// 5s, 5s, 5s, escalate
	// 5s, 5s, 5s, 10s, 20s, return
}

func ExampleDetect() {
	sig, ok := retryafter.Detect(errors.New("HTTP 429: please try again in 20s"))
	fmt.Println(sig.Class, sig.RetryAfter, ok)

	_, ok = retryafter.Detect(errors.New("dial tcp 10.0.0.1:429: connection refused"))
	fmt.Println(ok)
	// Output:
	// rate_limited 20s true
	// false
}
