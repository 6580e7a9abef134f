package retryafter

import (
	"encoding/json"
	"math"
	"strings"
	"time"
)

// apiProviders are APIs other than models.
var apiProviders = []Provider{
	{
		Name:  "github",
		Hosts: []string{"api.github.com", "uploads.github.com", "*.ghe.com"},
		Meters: []Meter{{
			Unit: "requests", Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Used: "X-RateLimit-Used",
			Reset: "X-RateLimit-Reset",
		}},
		Rules: []Rule{
			// Secondary limits: 403 or 429, often without any header; then wait at
			// least a minute. The wording has changed before, the page less often.
			{
				Status: []int{403, 429}, Paths: []string{"documentation_url"},
				Contains: []string{"secondary-rate-limits", "abuse-rate-limits"},
				Class:    RateLimited, Floor: time.Minute,
			},
			{
				Status: []int{403, 429}, Paths: []string{"message"},
				Contains: []string{"secondary rate limit", "abuse detection"},
				Class:    RateLimited, Floor: time.Minute,
			},
			// The primary limit: an ordinary 403 has the same headers with some left.
			{Status: []int{403}, Header: "X-RateLimit-Remaining", Is: []string{"0"}, Class: RateLimited},
			{Status: []int{403}, Header: "Retry-After", Class: RateLimited},
		},
		Embedded: []string{"errors.type"},
		Codes:    map[string]int{"RATE_LIMITED": 429},
	},
	{
		// The names of the IETF drafts with seconds since 1970.
		Name:  "gitlab",
		Hosts: []string{"gitlab.com"},
		Meters: []Meter{
			{
				Unit: "requests", Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Used: "RateLimit-Observed",
				Reset: "RateLimit-Reset", Format: UnixSeconds, Per: time.Minute,
			},
			{Unit: "requests", Reset: "RateLimit-ResetTime", Format: Date},
		},
	},
	{
		Name:     "slack",
		Hosts:    []string{"slack.com", "*.slack.com"},
		Embedded: []string{"error"},
		Codes:    map[string]int{"ratelimited": 429, "rate_limited": 429},
	},
	{
		Name:  "discord",
		Hosts: []string{"discord.com", "*.discord.com", "discordapp.com"},
		Meters: []Meter{
			{
				Unit: "requests", Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining",
				Reset: "X-RateLimit-Reset-After", Format: Seconds,
			},
			{Unit: "requests", Reset: "X-RateLimit-Reset", Format: UnixSeconds},
		},
		Hints: []Hint{{Path: "retry_after", Format: Seconds}},
	},
	{
		// REST states calls, GraphQL states points in the body and refuses with 200.
		Name:     "shopify",
		Hosts:    []string{"*.myshopify.com"},
		Meters:   []Meter{{Unit: "requests", UsedOf: "X-Shopify-Shop-Api-Call-Limit", Refills: true}},
		Embedded: []string{"errors.extensions.code"},
		Codes:    map[string]int{"THROTTLED": 429, "MAX_COST_EXCEEDED": 400},
		Body:     readShopifyCost,
	},
	{
		Name:        "stripe",
		Hosts:       []string{"api.stripe.com", "files.stripe.com"},
		ShouldRetry: "Stripe-Should-Retry",
		// Another call holds the object: no limit of rate.
		Rules: []Rule{{Status: []int{429}, Paths: []string{"error.code"}, Is: []string{"lock_timeout"}, Class: Other, Retry: Again}},
	},
	{
		Name:   "twilio",
		Hosts:  []string{"api.twilio.com", "*.twilio.com"},
		Meters: []Meter{{Unit: "concurrency", Present: "Twilio-Concurrent-Requests"}},
	},
	{
		Name:  "atlassian",
		Hosts: []string{"*.atlassian.net", "api.atlassian.com"},
		Meters: []Meter{
			{Unit: "requests", Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"},
		},
	},
	{
		// Jira and Confluence on a customer's own host: name it in Reader.Hosts.
		Name: "atlassian-dc",
		Meters: []Meter{{
			Unit: "requests", Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining",
			Interval: "X-RateLimit-Interval-Seconds", FillRate: "X-RateLimit-FillRate", Refills: true,
		}},
	},
	{
		Name:  "salesforce",
		Hosts: []string{"*.salesforce.com", "*.force.com"},
		Meters: []Meter{
			{Unit: "requests", Name: "org_requests_24h", UsedOf: "Sforce-Limit-Info", UsedOfKey: "api-usage", Per: day},
			{Unit: "requests", Name: "app_requests_24h", UsedOf: "Sforce-Limit-Info", UsedOfKey: "per-app-api-usage", Per: day},
		},
		Rules: []Rule{
			{Status: []int{403}, Paths: []string{"errorCode"}, Is: []string{"REQUEST_LIMIT_EXCEEDED"}, Class: QuotaExhausted},
		},
	},
	{
		Name:  "notion",
		Hosts: []string{"api.notion.com"},
	},
	{
		Name:  "reddit",
		Hosts: []string{"oauth.reddit.com", "www.reddit.com"},
		Meters: []Meter{{
			Unit: "requests", Remaining: "X-RateLimit-Remaining", Used: "X-RateLimit-Used",
			Reset: "X-RateLimit-Reset", Format: Seconds,
		}},
	},
	{
		Name:  "x",
		Hosts: []string{"api.x.com", "api.twitter.com"},
		Meters: []Meter{
			{
				Unit: "requests", Name: "requests_15min", Limit: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining",
				Reset: "X-Rate-Limit-Reset", Format: UnixSeconds, Per: 15 * time.Minute,
			},
			{
				Unit: "requests", Name: "user_requests_24h", Limit: "X-User-Limit-24hour-Limit", Remaining: "X-User-Limit-24hour-Remaining",
				Reset: "X-User-Limit-24hour-Reset", Format: UnixSeconds, Per: day,
			},
			{
				Unit: "requests", Name: "app_requests_24h", Limit: "X-App-Limit-24hour-Limit", Remaining: "X-App-Limit-24hour-Remaining",
				Reset: "X-App-Limit-24hour-Reset", Format: UnixSeconds, Per: day,
			},
		},
		// The month's cap, told by the problem's type (RFC 9457).
		Rules: []Rule{{
			Status: []int{403, 429}, Paths: []string{"type"},
			Contains: []string{"/problems/usage-capped", "/problems/credits-depleted"}, Class: QuotaExhausted,
		}},
	},
	{
		Name:   "msgraph",
		Hosts:  []string{"graph.microsoft.com", "*.sharepoint.com"},
		Drafts: true,
		// Sent from 0.8 of the limit on, up to 1.8.
		Meters: []Meter{{Unit: "resource_units", Present: "X-Ms-Throttle-Limit-Percentage"}},
	},
	{
		Name:  "zendesk",
		Hosts: []string{"*.zendesk.com"},
		Meters: []Meter{
			{Unit: "requests", Limit: "X-Rate-Limit", Remaining: "X-Rate-Limit-Remaining", Per: time.Minute},
			{
				Unit: "requests", Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining",
				Reset: "RateLimit-Reset", Format: Seconds,
			},
		},
	},
	{
		Name:  "hubspot",
		Hosts: []string{"api.hubapi.com", "api.hubspot.com"},
		Meters: []Meter{
			{
				Unit: "requests", Name: "interval", Limit: "X-HubSpot-RateLimit-Max", Remaining: "X-HubSpot-RateLimit-Remaining",
				Interval: "X-HubSpot-RateLimit-Interval-Milliseconds", IntervalUnit: time.Millisecond,
			},
			{
				Unit: "requests", Name: "daily", Limit: "X-HubSpot-RateLimit-Daily", Remaining: "X-HubSpot-RateLimit-Daily-Remaining",
				Per: day,
			},
			// The -Secondly headers are still sent but no longer enforced.
		},
		Rules: []Rule{
			{Status: []int{429}, Paths: []string{"policyName"}, Is: []string{"DAILY"}, Class: QuotaExhausted},
			{Status: []int{429}, Paths: []string{"policyName"}, Is: []string{"TEN_SECONDLY_ROLLING"}, Class: RateLimited, Floor: 10 * time.Second},
			{Status: []int{429}, Paths: []string{"policyName"}, Is: []string{"SECONDLY"}, Class: RateLimited, Floor: time.Second},
			{Status: []int{423}, Class: Other, Retry: Again, Floor: 2 * time.Second}, // a lock of two seconds
			{Status: []int{477}, Class: Other, Retry: Again},                         // the account is being moved
		},
	},
}

// readShopifyCost reads extensions.cost of a GraphQL answer: a bucket of points
// that restores so many a second, and what the query asked for.
func readShopifyCost(s *Signal, body any) {
	number := func(path string) (v float64, ok bool) {
		lookup(body, strings.Split("extensions.cost."+path, "."), func(found any) bool {
			n, isNumber := found.(json.Number)
			if !isNumber {
				return false
			}
			f, err := n.Float64()
			v, ok = f, err == nil && f >= 0 && f <= 1e15
			return ok
		})
		return v, ok
	}
	size, ok1 := number("throttleStatus.maximumAvailable")
	left, ok2 := number("throttleStatus.currentlyAvailable")
	rate, ok3 := number("throttleStatus.restoreRate")
	if !ok1 || !ok2 {
		return
	}
	w := Window{Unit: "points", Limit: int64(size), Remaining: int64(left), Reset: -1, Refills: true}
	after := func(points float64) time.Duration {
		return time.Duration(min(math.Ceil(max(points, 0)/rate*1e9), 1<<62))
	}
	if ok3 && rate > 0 {
		w.Reset, w.Per = after(size-left), after(size)
		if cost, ok := number("requestedQueryCost"); ok && s.Class == RateLimited {
			s.Floor = after(min(cost, size) - left)
		}
	}
	s.Windows = append(s.Windows, w)
}
