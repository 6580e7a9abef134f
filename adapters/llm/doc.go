// Package llm charges calls to language models what they cost in tokens.
//
// Providers meter models by tokens as well as by requests, and for agents the
// tokens bind first: one step can carry tens of thousands of them. A limiter
// that counts requests sails past that limit. So a call's tokens are estimated
// before it is sent, and taken from the budget; when its answer has come, what
// was taken is settled to what the provider says it was, also when the answer
// streams.
//
//	estimator, err := llm.New(llm.Config{})
//	...
//	stack, err := middleware.New(middleware.Config{
//		Bucket: bucket.Config{Limits: []bucket.Limit{
//			bucket.PerMinute(bucket.Requests, 500),
//			bucket.PerMinute(bucket.Tokens, 200_000),
//		}},
//		Pace: middleware.PaceConfig{Charge: estimator.Charge},
//	})
//	client := &http.Client{Transport: stack.Transport(nil)}
//
// [Estimator.Charge] is all three: the estimate, the budget's key ([Key]: origin,
// account and model), and the tap on the answer. Where the estimate is enough,
// [Cost] and [Key] go into PaceConfig.Cost and PaceConfig.Key by themselves.
//
// Where the Stack has a Router, the budget's key is the Quota of the route that a
// call takes (escalate.Route.Quota), and not Key's: limits for a key
// (bucket.Config.LimitsFor) are looked up by the Quota then, and two models or
// accounts on one route share its budget. The estimate and the settlement are the
// same.
//
// # The estimate
//
// A request's body is read once, from GetBody, through a window of 16 KiB; it is
// not changed and not kept. Known are the shapes of OpenAI's chat, responses and
// embeddings, Anthropic's messages, Gemini's generateContent in both spellings,
// and Bedrock's converse, with what has copied them. Their text is counted in
// bytes of UTF-8, over [Config].BytesPerToken; base64 and hex in long runs have a
// ratio of their own; each message and each call adds a little; pictures, sound
// and files, however they are put in, have a fixed price each. In members that
// are not known, what looks like text counts as text (it is long, or has a space
// in it or letters beyond ASCII), and what looks like an id, a name or a URL does
// not. The output is the
// request's cap times the number of choices.
//
// A body of another shape, or one that is no JSON, is charged a quarter of its
// bytes, up to 4 MiB. A figure that cannot be (a negative cap, a million choices,
// a number in quotes) is left out of account. [Estimator.Ignored] counts these, and
// as one each the bodies that are no JSON.
//
// A slightly high estimate is the aim: what is too much comes back within
// seconds, what is too little brings a refusal. An Estimator learns, for each
// model, how what it was charged compares with the estimate, and where requests
// do not limit their output how long most answers are. Both are bounded, and can
// be turned off.
//
// # The settlement
//
// Usage is heard in JSON, event streams, JSON by the line and Amazon's event
// stream, as the caller reads them and never ahead of him; a few KiB are kept
// whatever the length. OpenAI states usage in a stream only if the request asks
// for it (stream_options.include_usage). Without usage the estimate stands, as it
// does for a stream that is closed early; where such a stream has stated its
// input, as Anthropic's do, the input is settled and the estimate of the output
// stands. An answer of 4xx that is no refusal is charged its input only, a
// redirection no tokens.
//
// Nor is an answer heard that is compressed because the caller has set
// Accept-Encoding himself (gzip, say): the estimate stands. Without that header
// net/http asks for gzip of its own accord and undoes it, and the answer is heard.
//
// What counts differs; [Config].Counting overrides it by provider:
//
//	provider           input                output
//	anthropic          without cache reads  as produced
//	azure-openai       all                  the cap, kept
//	cerebras           all                  the cap, kept
//	gemini, vertex     all                  none
//	groq               without cache reads  the cap, settled
//	all others         all                  the cap, settled
//
// "As produced" takes beforehand no more than such calls have needed, or
// [Config].Output: the provider reserves nothing, but pacing must not send a
// hundred calls on no account at all.
//
// # Errors within a stream
//
// A provider can answer 200 and then send an error. [FirstEvent] is a layer,
// to be asked for, that sees it where it is the first event, and makes a refusal
// of it while nothing has been delivered. An error that comes later reaches the
// caller like everything else; the Estimator's tap tells bucket and breaker of it,
// with FirstEvent or without.
//
// FirstEvent goes inside of the Stack, next to the base transport, so that the ladder and the backup can act:
//
//	rt := stack.Transport(middleware.Chain(nil, llm.FirstEvent(llm.FirstEventConfig{})))
//
// Which provider a host speaks, and what its errors mean, is a
// [retryafter.Reader]'s to say. Give the same one to the Stack, to Config and to
// FirstEventConfig where a proxy has a name of its own.
package llm
