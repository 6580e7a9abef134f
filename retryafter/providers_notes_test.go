package retryafter

// providerNotes are what the table cannot say: what a provider meters, after "It meters", and how to
// configure for it. They are in docs/PROVIDERS.md.
var providerNotes = map[string]struct{ meters, configure string }{
	"openai": {
		"requests and tokens, per organization, project and model. Both refill continuously; a day's limit on requests comes in the same headers as a minute's. A call is charged its input and its cap on the output when it arrives.",
		"`PerMinute(Requests, …)` and `PerMinute(Tokens, …)` as token buckets; `adapters/llm` for the costs, whose key tells models and accounts apart; `stream_options.include_usage` in streams, so that they settle. `option.WithMaxRetries(0)` in the SDK.",
	},
	"azure-openai": {
		"requests and tokens per deployment. Tokens count anew each minute, requests are checked over slices of 1 or 10 s: 600 a minute is 10 a second. The cap on the output is charged and kept.",
		"Tokens as a `Window` of a minute; requests with a `Burst` of a second's share, or adaptive pacing, which finds it. A proxy in front of it is named in `Reader.Hosts`.",
	},
	"anthropic": {
		"requests, input tokens and output tokens, per organization and class of models. They refill continuously; 60 a minute may be enforced as one a second. Reads from the cache are free on most models, output counts as it is produced.",
		"`InputTokens` and `OutputTokens` as two limits, not `Tokens`; `adapters/llm` knows what counts. 529 is no fault of your limits: have a backup for it. `llm.FirstEvent` for streams that begin with an overload.",
	},
	"groq": {
		"requests per day and tokens per minute, under OpenAI's names. Cached tokens are free.",
		"A limit on requests with `Per: 24 * time.Hour` and a longer or negative `MaxWait`; `PerMinute(Tokens, …)`.",
	},
	"cerebras": {
		"requests per day and tokens per minute. The input and the cap on the output are charged beforehand and kept.",
		"Set `max_completion_tokens` in the requests: without it the model's longest answer is charged. The day's limit wants a longer or negative `MaxWait`.",
	},
	"mistral": {
		"requests and tokens per minute, and tokens per month. Requests are limited per second as well, which no header says.",
		"`PerMinute(Requests, …)` with a small `Burst`, or adaptive pacing; `PerMinute(Tokens, …)`.",
	},
	"cohere": {
		"calls per minute, and with trial keys per month. Headers come with trial keys alone, and not on a 429.",
		"`PerMinute(Requests, …)`. There is no hint: waits are `Policy.DefaultDelay`.",
	},
	"together": {
		"requests and tokens per second, by a rate that follows your use.",
		"Limits with `Per: time.Second`, or none: the headers state them.",
	},
	"fireworks": {
		"tokens of the prompt and of the answer per second, by a rate that follows your use. An answer that was served above the limit says so.",
		"None: the headers state the limits. `adapters/llm` for the costs.",
	},
	"openrouter": {
		"requests for free models per minute and day, credit for the rest, and what the provider behind it meters.",
		"`PerMinute(Requests, …)` for free models. Credit is no rate: it is quota_exhausted, and wants a backup with another `Quota`.",
	},
	"xai": {
		"requests per second, which is a sixtieth of those per minute, and tokens per minute.",
		"`PerMinute(Requests, …)` with a `Burst` of a second's share; `PerMinute(Tokens, …)`.",
	},
	"deepseek": {
		"nothing that it publishes; it is slow rather than that it refuses, and keeps connections alive with blank lines.",
		"`MaxInFlight` rather than a limit; a generous timeout.",
	},
	"google": {
		"requests per minute and day by project, in most of its APIs, without a header.",
		"`PerMinute(Requests, …)`. Without a hint waits are `Policy.DefaultDelay`.",
	},
	"gemini": {
		"requests per minute and day, and input tokens per minute, by project and model. There is no header; a refusal names the quota and mostly a wait. A day's quota states a wait of seconds, which does not help, and is read as exhausted.",
		"`PerMinute(Requests, …)` and `PerMinute(InputTokens, …)` from the provider's page: nothing is stated before the first refusal. `Per: 24 * time.Hour` for the day, with a longer or negative `MaxWait`.",
	},
	"vertex": {
		"a capacity that all customers share, or what you have provisioned. A 429 states neither limit nor wait.",
		"A small `MaxInFlight`, and a backup in another region with a `Quota` of its own.",
	},
	"aws": {
		"calls per second by account, region and operation, as token buckets that no header states.",
		"Limits with `Per: time.Second`. Without a hint waits are `Policy.DefaultDelay`.",
	},
	"bedrock": {
		"requests and tokens per minute, and tokens per day, by account, region and model. Nothing is stated. The cap on the output is reserved, and output of some models counts five times.",
		"`PerMinute` limits from the service quotas; `llm.Counting.OutputWeight` where output counts more; a backup in another region with a `Quota` of its own.",
	},
	"cloudflare": {
		"requests per five minutes by user, and for Workers AI free neurons per day.",
		"A limit with `Per: 5 * time.Minute` as a `Window`.",
	},
	"github": {
		"requests per hour by token, as a window, and besides them secondary limits on concurrency and on calls that write, which no header states. Refusals are 403 as often as 429.",
		"`Limit{Unit: Requests, Amount: 5000, Per: time.Hour, Shape: Window}`, a small `MaxInFlight`, `KeyByCredential` with several tokens. A negative `MaxWait`: a window of an hour is slower than 30 s.",
	},
	"gitlab": {
		"requests per minute by user, and limits of single endpoints, which the headers do not show.",
		"A `Window` of a minute.",
	},
	"slack": {
		"calls per minute by method and workspace.",
		"A `Key` of your own with the method in it, and `LimitsFor` by its tier.",
	},
	"discord": {
		"calls by route, in windows of seconds, and 50 per second in all. Too many refusals ban the address for an hour.",
		"A `Key` of your own with the route in it; none but the global limit need be configured, the headers state the rest.",
	},
	"shopify": {
		"calls in a leaky bucket (REST), and points of queries in a bucket (GraphQL), which refuses with a 200.",
		"None: the answers state the level. GraphQL refusals are seen only by an explicit `Reader.Read` or `Reader.Classify`.",
	},
	"stripe": {
		"requests per second by account, and calls at the same time by endpoint. Nothing is stated.",
		"`Limit{Unit: Requests, Amount: 100, Per: time.Second}` and a `MaxInFlight`. Send an Idempotency-Key: then a lost POST may be sent again.",
	},
	"twilio": {
		"calls at the same time by account, not their rate.",
		"`MaxInFlight`.",
	},
	"atlassian": {
		"a budget of points by the cost of calls, by app and tenant; refusals state a wait.",
		"None; a small `MaxInFlight` for crowds.",
	},
	"atlassian-dc": {
		"requests by user, in a bucket whose size and rate the headers state.",
		"None but `Reader.Hosts` with the name of the host.",
	},
	"salesforce": {
		"calls in 24 hours by organization. A spent day is 403.",
		"`Limit{Unit: Requests, Amount: …, Per: 24 * time.Hour, Shape: Window}` with a negative `MaxWait`.",
	},
	"notion": {
		"about three requests per second by integration, on average.",
		"`Limit{Unit: Requests, Amount: 3, Per: time.Second, Burst: 9}`.",
	},
	"reddit": {
		"requests in windows of ten minutes by client.",
		"A `Window` of ten minutes, or none: the headers state it. A window of that length wants a longer `MaxWait`.",
	},
	"x": {
		"requests in windows of 15 minutes and 24 hours by endpoint and user or app, and what the month's plan has.",
		"A `Key` of your own with the endpoint in it; windows of that length want a longer `MaxWait`.",
	},
	"msgraph": {
		"resource units in several windows, by app and tenant.",
		"None: refusals state the wait. A small `MaxInFlight`.",
	},
	"zendesk": {
		"requests per minute by account, and of some endpoints besides.",
		"A `Window` of a minute.",
	},
	"hubspot": {
		"requests in ten seconds by app and account, and per day.",
		"`Limit{Unit: Requests, Amount: …, Per: 10 * time.Second, Shape: Window}`, and the day's as another with a negative `MaxWait`.",
	},
	"generic": {
		"what its headers say, if they are of one of these shapes. Bodies are not read: no text of an unknown host changes what its status means.",
		"The limits that the provider publishes. A proxy of a known provider is named in `Reader.Hosts`; another one is declared as a `retryafter.Provider`.",
	},
}
