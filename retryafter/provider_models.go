package retryafter

import (
	"slices"
	"time"
)

const day = 24 * time.Hour

// openAIQuota are OpenAI's codes for money or allowance used up. The official
// SDKs ignore them and retry; waiting does not help.
var openAIQuota = []string{
	"insufficient_quota",
	"credit_balance_exhausted",
	"organization_spend_limit_exceeded",
	"project_spend_limit_exceeded",
	"organization_usage_limit_exceeded",
	"billing_hard_limit_reached",
}

var (
	openAICodePaths    = []string{"error.code", "error.type", "response.error.code", "response.error.type", "code"}
	openAIMessagePaths = []string{"error.message", "response.error.message", "message"}

	// openAIRules are OpenAI's, and those of the many that copied its errors.
	openAIRules = []Rule{
		{Paths: openAICodePaths, Is: openAIQuota, Class: QuotaExhausted},
		// The same code as a rate limit, but one request is larger than the window.
		{Status: []int{429}, Paths: openAIMessagePaths, Contains: []string{"request too large"}, Class: Other, Retry: Never},
		{Paths: openAICodePaths, Is: []string{"server_is_overloaded"}, Class: Overloaded},
	}
	openAIHints = textHints("try again in ", "retry after ")
	openAICodes = map[string]int{
		"rate_limit_exceeded": 429, "rate_limit_error": 429, "slow_down": 429, "too_many_requests": 429,
		"insufficient_quota": 429, "credit_balance_exhausted": 429, "organization_spend_limit_exceeded": 429,
		"project_spend_limit_exceeded": 429, "organization_usage_limit_exceeded": 429, "billing_hard_limit_reached": 429,
		"server_is_overloaded": 503, "service_unavailable_error": 503,
		"server_error": 500, "invalid_request_error": 400, "invalid_prompt": 400, "context_length_exceeded": 400,
	}
)

// textHints looks for a wait in the places where OpenAI has its message.
func textHints(phrases ...string) []Hint {
	var hints []Hint
	for _, path := range openAIMessagePaths {
		hints = append(hints, Hint{Path: path, After: phrases})
	}
	return hints
}

// anthropicMeter is a token bucket; reset is when it is full again, remaining
// tokens are rounded to thousands.
func anthropicMeter(unit, name, dim string) Meter {
	return Meter{
		Unit: unit, Name: name,
		Limit: "Anthropic-" + dim + "-limit", Remaining: "Anthropic-" + dim + "-remaining", Reset: "Anthropic-" + dim + "-reset",
		Per: time.Minute, Refills: true,
	}
}

// modelProviders are the hosts of language models. What they send was gathered
// from their documentation, their SDKs and real answers.
var modelProviders = []Provider{
	{
		Name:  "openai",
		Hosts: []string{"api.openai.com", "*.api.openai.com"},
		Meters: []Meter{
			// Requests are per minute or per day: the headers do not say which.
			openAIMeter("requests", "", "requests"),
			openAIMeter("tokens", "organization_tokens", "tokens"),
			openAIMeter("tokens", "project_tokens", "project-tokens"),
		},
		ShouldRetry: "X-Should-Retry",
		Rules:       openAIRules,
		Hints:       openAIHints,
		Embedded:    openAICodePaths,
		Codes:       openAICodes,
	},
	{
		// OpenAI's header names with other units: resets are bare seconds, and
		// the counters start anew each minute. -1 means not reported.
		Name:  "azure-openai",
		Hosts: []string{"*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com", "*.azure-api.net"},
		Meters: []Meter{
			windowMeter("requests", "", "requests"),
			windowMeter("tokens", "", "tokens"),
			{Unit: "tokens", Reset: "X-Rate-Limit-Reset-Tokens"},
		},
		ShouldRetry: "X-Should-Retry",
		Rules: slices.Concat([]Rule{
			{Status: []int{429}, Paths: []string{"error.message"}, Contains: []string{"high demand"}, Class: Overloaded},
			// API Management's quota policy, in front of the models.
			{Status: []int{403}, Paths: []string{"message"}, Contains: []string{"quota will be replenished", "out of call volume quota"}, Class: QuotaExhausted},
		}, openAIRules),
		Hints:    openAIHints,
		Embedded: openAICodePaths,
		Codes:    openAICodes,
	},
	{
		Name:  "anthropic",
		Hosts: []string{"api.anthropic.com"},
		Meters: []Meter{
			anthropicMeter("requests", "", "ratelimit-requests"),
			anthropicMeter("tokens", "", "ratelimit-tokens"),
			anthropicMeter("input_tokens", "", "ratelimit-input-tokens"),
			anthropicMeter("output_tokens", "", "ratelimit-output-tokens"),
			anthropicMeter("priority_input_tokens", "", "priority-input-tokens"),
			anthropicMeter("priority_output_tokens", "", "priority-output-tokens"),
			{Unit: "unified", Reset: "Anthropic-RateLimit-Unified-Reset"},
		},
		ShouldRetry: "X-Should-Retry",
		Rules: []Rule{
			// A tier's spend cap comes as a rate limit without Retry-After.
			{Paths: []string{"error.details.error_code"}, Is: []string{"enforced_spend_limit_reached"}, Class: QuotaExhausted},
			{Status: []int{402}, Class: QuotaExhausted},
			{Paths: []string{"error.type"}, Is: []string{"billing_error"}, Class: QuotaExhausted},
			// A limit that the customer set; it has no code of its own.
			{Status: []int{400}, Paths: []string{"error.message"}, Contains: []string{"you have reached your specified"}, Class: QuotaExhausted},
			{Paths: []string{"error.type"}, Is: []string{"overloaded_error"}, Class: Overloaded},
			{Status: []int{409}, Class: Other, Retry: Again}, // as Anthropic's SDKs do
		},
		Embedded: []string{"error.type"},
		Codes: map[string]int{
			"rate_limit_error": 429, "overloaded_error": 529, "api_error": 500, "timeout_error": 504, "billing_error": 402,
			"invalid_request_error": 400, "authentication_error": 401, "permission_error": 403, "not_found_error": 404,
			"request_too_large": 413,
		},
	},
	{
		Name:  "groq",
		Hosts: []string{"api.groq.com"},
		Meters: []Meter{
			withPer(openAIMeter("requests", "", "requests"), day),
			withPer(openAIMeter("tokens", "", "tokens"), time.Minute),
		},
		ShouldRetry: "X-Should-Retry",
		// 498: the flex tier has no capacity.
		Rules:    slices.Concat([]Rule{{Status: []int{498}, Class: Overloaded}}, openAIRules),
		Hints:    openAIHints,
		Embedded: openAICodePaths,
		Codes:    openAICodes,
	},
	{
		Name:  "cerebras",
		Hosts: []string{"api.cerebras.ai"},
		Meters: []Meter{
			withPer(windowMeter("requests", "", "requests-day"), day),
			withPer(windowMeter("tokens", "", "tokens-minute"), time.Minute),
		},
		Rules: openAIRules,
		Hints: openAIHints,
	},
	{
		Name:  "mistral",
		Hosts: []string{"api.mistral.ai"},
		Meters: []Meter{
			{
				Unit: "requests", Limit: "X-RateLimit-Limit-Req-Minute", Remaining: "X-RateLimit-Remaining-Req-Minute",
				Per: time.Minute,
			},
			{
				Unit: "tokens", Name: "tokens_minute",
				Limit: "X-RateLimit-Limit-Tokens-Minute", Remaining: "X-RateLimit-Remaining-Tokens-Minute",
				Per: time.Minute,
			},
			{
				Unit: "tokens", Name: "tokens_month",
				Limit: "X-RateLimit-Limit-Tokens-Month", Remaining: "X-RateLimit-Remaining-Tokens-Month",
			},
			// What this call was charged, not a budget.
			{Unit: "query_cost_tokens", Present: "X-RateLimit-Tokens-Query-Cost"},
		},
		Rules: []Rule{
			{Status: []int{429}, Paths: []string{"code", "error.code"}, Is: []string{"3505"}, Class: Overloaded},
			{Status: []int{429}, Paths: []string{"type", "error.type"}, Is: []string{"service_tier_capacity_exceeded"}, Class: Overloaded},
			// The key has no allowance for this model.
			{Status: []int{429}, Header: "X-RateLimit-Limit-Req-Minute", Is: []string{"0"}, Class: QuotaExhausted},
			{Status: []int{402}, Class: QuotaExhausted},
		},
	},
	{
		Name:  "cohere",
		Hosts: []string{"api.cohere.com", "api.cohere.ai"},
		Meters: []Meter{
			{
				Unit: "requests", Name: "requests_minute",
				Limit: "X-Trial-Endpoint-Call-Limit", Remaining: "X-Trial-Endpoint-Call-Remaining",
				Per: time.Minute,
			},
			{Unit: "requests", Name: "requests_month", Limit: "X-Endpoint-Monthly-Call-Limit"},
		},
		// 498 is a blocked token in the content here, not capacity.
		Rules: []Rule{{Status: []int{402}, Class: QuotaExhausted}},
	},
	{
		Name:  "together",
		Hosts: []string{"api.together.xyz", "api.together.ai"},
		Meters: []Meter{
			{
				Unit: "requests", Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining",
				Reset: "X-RateLimit-Reset", Format: Seconds, Per: time.Second,
			},
			{Unit: "tokens", Limit: "X-TokenLimit-Limit", Remaining: "X-TokenLimit-Remaining", Per: time.Second},
		},
		Rules: slices.Concat([]Rule{{Status: []int{402}, Class: QuotaExhausted}}, openAIRules),
		Hints: openAIHints,
	},
	{
		Name:  "fireworks",
		Hosts: []string{"api.fireworks.ai"},
		Meters: []Meter{
			{Unit: "input_tokens", Limit: "X-RateLimit-Limit-Tokens-Prompt", Per: time.Second},
			{Unit: "input_tokens", Remaining: "X-RateLimit-Remaining-Tokens-Prompt"},
			{Unit: "uncached_input_tokens", Limit: "X-RateLimit-Limit-Tokens-Cache-Adjusted-Prompt", Per: time.Second},
			{Unit: "uncached_input_tokens", Remaining: "X-RateLimit-Remaining-Tokens-Cache-Adjusted-Prompt"},
			{Unit: "output_tokens", Limit: "X-RateLimit-Limit-Tokens-Generated", Per: time.Second},
			{Unit: "output_tokens", Remaining: "X-RateLimit-Remaining-Tokens-Generated"},
			// On a served request: near or over the floor that is promised.
			{Unit: "over_limit", Present: "X-RateLimit-Over-Limit"},
		},
		Rules: slices.Concat([]Rule{{Status: []int{402, 412}, Class: QuotaExhausted}}, openAIRules),
		Hints: openAIHints,
	},
	{
		Name:  "openrouter",
		Hosts: []string{"openrouter.ai"},
		Meters: []Meter{
			{Unit: "requests", Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"},
		},
		Rules: []Rule{
			// Money in flight rather than money spent: it comes back.
			{Status: []int{402}, Paths: []string{"error.metadata.limit_source"}, Is: []string{"openrouter_in_flight_budget"}, Class: RateLimited},
			{Status: []int{402}, Paths: []string{"error.metadata.error_type", "error.type"}, Is: []string{"in_flight_budget_exhausted"}, Class: RateLimited},
			{Status: []int{402, 429}, Paths: []string{"error.metadata.error_type", "error.type"}, Is: []string{"weight_exceeds_budget"}, Class: Other, Retry: Never},
			{Status: []int{402}, Class: QuotaExhausted},
			{Status: []int{403}, Paths: []string{"error.metadata.resets_at"}, Class: QuotaExhausted},
			{Status: []int{429}, Paths: []string{"error.message", "error.metadata.raw"}, Contains: []string{"free-models-per-day"}, Class: QuotaExhausted},
		},
		Hints:       []Hint{{Path: "error.metadata.resets_at"}},
		Embedded:    []string{"error.code"},
		BodyHeaders: "error.metadata.headers",
	},
	{
		Name:  "xai",
		Hosts: []string{"api.x.ai", "*.api.x.ai"},
		// "error" is a sentence here, and the status may be 429 or 403.
		Rules: slices.Concat([]Rule{
			{Status: []int{403, 429}, Paths: []string{"error"}, Contains: []string{"used all available credits", "monthly spending limit"}, Class: QuotaExhausted},
		}, openAIRules),
		Hints: openAIHints,
	},
	{
		Name:  "deepseek",
		Hosts: []string{"api.deepseek.com"},
		Rules: slices.Concat([]Rule{{Status: []int{402}, Class: QuotaExhausted}}, openAIRules),
		Hints: openAIHints,
	},
}

func withPer(m Meter, per time.Duration) Meter {
	m.Per = per
	return m
}
