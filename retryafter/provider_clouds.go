package retryafter

import (
	"slices"
	"time"
)

// googleProvider reads google.rpc.Status, in JSON. There are no limit headers;
// the text says "exceeded your current quota" for a minute's limit too, so only
// the details count. The order is gemini-cli's.
func googleProvider(name string, hosts ...string) Provider {
	limits := []string{"error.details.violations.quotaId", "error.details.metadata.quota_limit"}
	reasons := []string{"error.errors.reason", "error.details.reason"}
	return Provider{
		Name:  name,
		Hosts: hosts,
		Rules: []Rule{
			{Status: []int{402}, Class: QuotaExhausted},
			// A limit of zero: this tier has nothing of the model.
			{Status: []int{429}, Paths: []string{"error.details.violations.quotaValue"}, Is: []string{"0"}, Class: QuotaExhausted},
			{Status: []int{429}, Paths: []string{"error.message"}, Contains: []string{"limit: 0,", "limit: 0\n"}, Class: QuotaExhausted},
			// A day's quota states a delay of seconds, which does not help.
			{Status: []int{429}, Paths: limits, Contains: []string{"perday", "daily"}, Class: QuotaExhausted},
			{Status: []int{429}, Paths: []string{"error.code"}, Is: []string{"quota_exceeded"}, Class: QuotaExhausted},
			{Status: []int{403, 429}, Paths: reasons, Is: []string{"dailyLimitExceeded", "quotaExceeded"}, Class: QuotaExhausted},
			{Status: []int{429}, HintOver: 300 * time.Second, Class: QuotaExhausted},
			{Status: []int{429}, Paths: limits, Contains: []string{"perminute"}, Class: RateLimited, Floor: time.Minute},
			{Status: []int{403}, Paths: reasons, Is: []string{"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"}, Class: RateLimited},
			{Status: []int{499}, Class: Overloaded},
		},
		Hints: []Hint{
			{Path: "error.details.retryDelay", Format: Duration},
			{Path: "error.message", After: []string{"retry in "}},
		},
		Embedded: []string{"error.code"},
		Codes:    map[string]int{"rate_limit_exceeded": 429, "too_many_requests": 429, "quota_exceeded": 429},
	}
}

// awsErrors are two rules for error names, in the header, which may go on with a
// colon and a URL, and in the body, where a namespace and # may come before.
func awsErrors(status []int, class Class, names ...string) []Rule {
	return []Rule{
		{Status: status, Header: "X-Amzn-ErrorType", Contains: names, Class: class},
		{Status: status, Paths: []string{"__type", "code", "Code"}, Contains: names, Class: class},
	}
}

// awsProvider reads the AWS services, Bedrock among them. None sends Retry-After.
// The names of throttling errors are botocore's.
func awsProvider(name string, hosts ...string) Provider {
	return Provider{
		Name:  name,
		Hosts: hosts,
		Rules: slices.Concat(
			[]Rule{{Status: []int{429}, Paths: []string{"message", "Message"}, Contains: []string{"tokens per day"}, Class: QuotaExhausted}},
			awsErrors(nil, QuotaExhausted, "ServiceQuotaExceededException"),
			awsErrors([]int{429}, Overloaded, "ModelNotReadyException"),
			awsErrors([]int{503}, Overloaded, "ServiceUnavailableException"),
			awsErrors(nil, RateLimited,
				"Throttling", "ThrottledException", "RequestThrottled", "TooManyRequestsException",
				"ProvisionedThroughputExceededException", "TransactionInProgressException", "RequestLimitExceeded",
				"BandwidthLimitExceeded", "LimitExceededException", "SlowDown", "PriorRequestNotComplete"),
		),
	}
}

// cloudProviders are the platforms that serve models beside much else.
var cloudProviders = []Provider{
	googleProvider("google", "*.googleapis.com", "googleapis.com"),
	googleProvider("gemini", "generativelanguage.googleapis.com"),
	googleProvider("vertex", "*aiplatform.googleapis.com"),
	awsProvider("aws", "*.amazonaws.com"),
	awsProvider("bedrock", "bedrock-runtime.*.amazonaws.com", "bedrock-runtime-fips.*.amazonaws.com"),
	{
		// The API and Workers AI on one host.
		Name:   "cloudflare",
		Hosts:  []string{"api.cloudflare.com"},
		Drafts: true,
		Meters: []Meter{
			{Unit: "requests", Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"},
		},
		Rules: []Rule{
			// The day's free neurons, back at 00:00 UTC; then: no data centre has room.
			{Status: []int{429}, Paths: []string{"errors.code"}, Is: []string{"3036", "4006"}, Class: QuotaExhausted},
			{Status: []int{429}, Paths: []string{"errors.code"}, Is: []string{"3040"}, Class: Overloaded},
		},
	},
}
