package retryafter

// shapes is how a host that nobody declared is read: by its statuses and by
// limit headers of the shapes that many servers share.
var shapes = Provider{
	Name:        "generic",
	Drafts:      true,
	ShouldRetry: "X-Should-Retry",
	Meters: []Meter{
		{
			Unit:  "requests",
			Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Used: "X-RateLimit-Used",
			Reset: "X-RateLimit-Reset",
		},
		{
			Unit:  "requests",
			Limit: "X-Rate-Limit-Limit", Remaining: "X-Rate-Limit-Remaining", Reset: "X-Rate-Limit-Reset",
		},
		// The names that OpenAI began and others took over; a proxy passes them on.
		openAIMeter("requests", "requests_by_name", "requests"),
		openAIMeter("tokens", "", "tokens"),
		anthropicShape("requests", "anthropic_requests", "ratelimit-requests"),
		anthropicShape("tokens", "anthropic_tokens", "ratelimit-tokens"),
		anthropicShape("input_tokens", "", "ratelimit-input-tokens"),
		anthropicShape("output_tokens", "", "ratelimit-output-tokens"),
	},
}

// openAIMeter is a bucket that refills; reset is when it is full again.
func openAIMeter(unit, name, dim string) Meter {
	return Meter{
		Unit: unit, Name: name,
		Limit: "X-RateLimit-Limit-" + dim, Remaining: "X-RateLimit-Remaining-" + dim, Reset: "X-RateLimit-Reset-" + dim,
		Refills: true,
	}
}

// windowMeter has OpenAI's names without OpenAI's meaning of reset.
func windowMeter(unit, name, dim string) Meter {
	m := openAIMeter(unit, name, dim)
	m.Refills = false
	return m
}

// anthropicShape is one of Anthropic's, which come together.
func anthropicShape(unit, name, dim string) Meter {
	m := anthropicMeter(unit, name, dim)
	m.sign = "Anthropic-RateLimit-Requests-Remaining"
	return m
}
