package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// What servers say that is not so: headers that lie, that come in another order than they left in, that are
// rounded, stored or long past, and refusals that say nothing of use. For each of them, whether limits are
// configured or not, and with Adaptive on: the calls go out no faster than the limits say, nobody hangs,
// every turn keeps its budget of sends, and an event says what was not believed.

// A lie is what a server says in its nth answer, at this time after the first.
type lie struct {
	name   string
	status func(n int) int                     // nil: 200
	header func(n int, now time.Time) []string // pairs
	delay  func(n int) time.Duration           // nil: 20 ms
	doubt  string                              // in the Err of the one Doubted event; empty: there is none
	unsaid bool                                // the refusals come without a hint, and say so
}

func always(header ...string) func(int, time.Time) []string {
	return func(int, time.Time) []string { return header }
}

func limitHeaders(limit, remaining, reset string) []string {
	return []string{"X-RateLimit-Limit", limit, "X-RateLimit-Remaining", remaining, "X-RateLimit-Reset", reset}
}

func rejects(int) int { return 429 }

var huge = "1" + strings.Repeat("0", 308)

var lies = []lie{
	{name: "limit 1e308", header: always(limitHeaders("1e308", "1e308", "60")...), doubt: `X-Ratelimit-Limit: "1e308"`},
	{name: "a limit of 309 digits", header: always(limitHeaders(huge, huge, "60")...), doubt: "so large"},
	{name: "remaining above limit", header: always(limitHeaders("60", "100000", "60")...), doubt: "more is left"},
	{name: "negative", header: always(limitHeaders("-60", "-5", "-10")...), doubt: `X-Ratelimit-Limit: "-60"`},
	{name: "negative remaining alone", header: always(limitHeaders("60", "-5", "10")...), doubt: `X-Ratelimit-Remaining: "-5"`},
	{name: "reset in 1970", header: func(n int, now time.Time) []string {
		return []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", strconv.Itoa(max(59-n, 0)), "X-RateLimit-Reset", "1970-01-01T00:00:01Z"}
	}, doubt: "over for long"},
	{name: "reset in a year", header: func(n int, now time.Time) []string {
		return limitHeaders("60", strconv.Itoa(max(59-n, 0)), now.AddDate(1, 0, 0).UTC().Format(time.RFC3339))
	}, doubt: "too far off"},
	{name: "nothing left, for a year", header: func(_ int, now time.Time) []string {
		return limitHeaders("60", "0", now.AddDate(1, 0, 0).UTC().Format(time.RFC3339))
	}, doubt: "too far off"},
	{name: "nothing left, ever", header: always(limitHeaders("60", "0", "60")...)},
	{name: "words", header: always(limitHeaders("many", "some", "soon")...), doubt: `X-Ratelimit-Limit: "many"`},
	{name: "a limit of 0", header: always(limitHeaders("0", "0", "60")...)},
	{name: "out of order", header: func(n int, _ time.Time) []string {
		return limitHeaders("60", strconv.Itoa(max(59-n, 0)), "60")
	}, delay: func(n int) time.Duration { return time.Duration(1+(n*7)%11) * 300 * time.Millisecond }},
	{name: "rounded to thousands", header: func(n int, _ time.Time) []string {
		return []string{"X-RateLimit-Limit-Tokens", "6000", "X-RateLimit-Remaining-Tokens", strconv.Itoa((6000 - n*100) / 1000 * 1000), "X-RateLimit-Reset-Tokens", "60s"}
	}},
	{name: "already past", header: func(n int, now time.Time) []string {
		return limitHeaders("60", strconv.Itoa(max(59-n, 0)), now.Add(-time.Second).UTC().Format(time.RFC3339))
	}, doubt: "over for long"},
	{name: "stored answers", header: always(append(limitHeaders("60", "60", "60"), "Age", "30")...)},

	{name: "Retry-After: 0 for ever", status: rejects, header: always("Retry-After", "0")},
	{name: "429 for ever", status: rejects, header: always("Retry-After", "2")},
	{name: "429 without any hint", status: rejects, header: always(), unsaid: true},
	{name: "Retry-After: 1e308", status: rejects, header: always("Retry-After", "1e308"), doubt: `Retry-After: "1e308"`, unsaid: true},
	{name: "a Retry-After of 309 digits", status: rejects, header: always("Retry-After", huge), doubt: "too far off"},
	{name: "Retry-After: -1", status: rejects, header: always("Retry-After", "-1"), doubt: `Retry-After: "-1"`, unsaid: true},
	{name: "Retry-After in 1970", status: rejects, header: always("Retry-After", "Thu, 01 Jan 1970 00:00:01 GMT")},
	{name: "a first answer that is a 429", status: func(n int) int {
		if n == 0 {
			return 429
		}
		return 200
	}, header: always(), unsaid: true},
	{name: "429 with everything left", status: rejects, header: always(limitHeaders("60", "60", "0")...), unsaid: true},
	{name: "429 that resets in a year", status: rejects, header: func(_ int, now time.Time) []string {
		return limitHeaders("60", "0", now.AddDate(1, 0, 0).UTC().Format(time.RFC3339))
	}, doubt: "too far off"},
}

// liar is a RoundTripper that says so, and remembers when it was asked.
type liar struct {
	lie
	mu   sync.Mutex
	sent []time.Time
}

func (l *liar) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	n := len(l.sent)
	l.sent = append(l.sent, time.Now())
	l.mu.Unlock()
	delay := 20 * time.Millisecond
	if l.delay != nil {
		delay = l.delay(n)
	}
	time.Sleep(delay)
	status := 200
	if l.status != nil {
		status = l.status(n)
	}
	return reply(req, status, "{}", l.header(n, time.Now())...), nil
}

// Proved able to fail: believe any limit, or what remains above it; tell of each answer.
func TestBadInputIsBoundedAndSaid(t *testing.T) {
	const ladder = 5 // retries of a turn
	limit := bucket.Limit{Unit: bucket.Requests, Amount: 60, Per: time.Minute}
	for _, l := range lies {
		for _, configured := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/configured %v", l.name, configured), func(t *testing.T) {
				virtual(t, metertest.Config{}, func(r rig) {
					o := new(recorder)
					c := middleware.Config{Observer: o, Ladder: policy(nil)}
					c.Pace.Cost = func(*http.Request) (bucket.Cost, error) { return bucket.Cost{Requests: 1, InputTokens: 100}, nil }
					if configured {
						c.Bucket.Limits = []bucket.Limit{limit}
					}
					server := &liar{lie: l}
					calls := 80
					if l.status != nil {
						calls = 12 // each of which goes out six times, and all of them wait for each
					}
					client, s := r.over(c, roundTripper(server.RoundTrip))
					call := func() {
						ctx, cancel := context.WithTimeout(r.Context(), 2*time.Hour)
						defer cancel()
						if status, _, err := r.do(client, r.request("GET", nil).WithContext(ctx)); err != nil {
							r.Errorf("%d, %v", status, err)
						}
					}
					var crowd sync.WaitGroup
					for range calls - 1 {
						crowd.Go(call)
					}
					crowd.Wait()
					time.Sleep(10 * time.Second) // time for what is long past to be so
					call()
					r.wantNoSlotTaken(s)
					if d := r.elapsed(); d > 100*time.Minute {
						r.Errorf("it took %v", d)
					}
					if n := len(server.sent); n > calls*(1+ladder) {
						r.Errorf("%d sends of %d calls", n, calls)
					}
					if configured {
						checkPace(r, limit, server.sent, o)
					}
					checkSaid(r, l, o)
				})
			})
		}
	}
}

// checkPace checks that no span of time has more sends than the limit lets go in it, what left overdue
// counted apart.
func checkPace(r rig, limit bucket.Limit, sent []time.Time, o *recorder) {
	r.Helper()
	overdue := 0
	for _, e := range o.events {
		if e.Kind == middleware.Overdue {
			overdue++
		}
	}
	for i, from := range sent {
		for j, to := range sent[i:] {
			if most := limit.WorstWindow(to.Sub(from)) + int64(overdue); int64(j+1) > most {
				r.Fatalf("%d sent within %v, the limit lets go %d", j+1, to.Sub(from), most)
			}
		}
	}
}

// checkSaid checks the events: one Doubted at the most, of the right thing, and refusals that say whether
// there was a hint.
func checkSaid(r rig, l lie, o *recorder) {
	r.Helper()
	var doubted []string
	for _, e := range o.events {
		switch e.Kind {
		case middleware.Doubted:
			if e.Key == "" || e.Err == nil {
				r.Fatalf("%+v", e)
			}
			doubted = append(doubted, e.Err.Error())
		case middleware.Refused:
			if e.Hinted == l.unsaid || l.unsaid && e.Wait != 0 || e.Status != 429 || e.Class != retryafter.RateLimited {
				r.Errorf("%+v", e)
			}
		case middleware.Held:
			if e.Wait <= 0 || e.Wait > time.Minute {
				r.Errorf("%+v", e)
			}
		}
	}
	switch {
	case l.doubt == "" && len(doubted) > 0:
		r.Errorf("it was true: %q", doubted)
	case l.doubt != "" && len(doubted) != 1:
		r.Errorf("told %d times: %q", len(doubted), doubted)
	case l.doubt != "" && !strings.Contains(doubted[0], l.doubt):
		r.Errorf("told %q, want %q in it", doubted[0], l.doubt)
	}
}
