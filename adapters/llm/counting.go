package llm

import (
	"errors"
	"fmt"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// Counting says what of a call a provider counts against its token limits. The
// zero value counts everything: all input, also what came from a cache, and the
// whole output, of which as much is taken beforehand as the request allows.
type Counting struct {
	// FreeCacheReads leaves input that was read from the provider's cache out.
	FreeCacheReads bool
	// Output says when output counts.
	Output Output
	// OutputWeight is how many tokens of the limit one token of output takes;
	// 0 means 1.
	OutputWeight float64
}

// Output says when output counts against a limit.
type Output uint8

const (
	// Reserved output is taken when the request arrives, as much as it allows,
	// and what was not produced comes back.
	Reserved Output = iota
	// Kept output is taken when the request arrives, and nothing comes back.
	Kept
	// Produced output counts as it is produced, whatever the request allows: no
	// more is taken beforehand than such a call has needed before.
	Produced
	// Uncounted output does not count.
	Uncounted
)

// countings are the providers that count otherwise than the zero Counting, by
// the names that retryafter has for them.
//
// Sources: Anthropic's page on rate limits (uncached input and cache writes;
// output as produced), Azure's and Cerebras' on quotas (estimate and cap at
// arrival), Groq's (cached tokens do not count), Google's (input tokens per
// minute only). OpenAI takes the cap at arrival; whether it counts cached input
// is not documented, so here it does.
func countings(provider string) Counting {
	switch provider {
	case "anthropic":
		return Counting{FreeCacheReads: true, Output: Produced}
	case "azure-openai", "cerebras":
		return Counting{Output: Kept}
	case "gemini", "vertex":
		return Counting{Output: Uncounted}
	case "groq":
		return Counting{FreeCacheReads: true}
	}
	return Counting{}
}

func (c Counting) validate() error {
	switch {
	case c.Output > Uncounted:
		return errors.New("Output is unknown")
	case c.OutputWeight < 0 || c.OutputWeight > 1000 || c.OutputWeight != c.OutputWeight:
		return fmt.Errorf("OutputWeight %v is not between 0 and 1000", c.OutputWeight)
	}
	return nil
}

// weigh returns what tokens of output take of the limit.
func (c Counting) weigh(tokens int64) int64 {
	if c.OutputWeight == 0 {
		return min(tokens, maxTokens)
	}
	return ceil(float64(tokens) * c.OutputWeight)
}

// charge returns what a call with this usage counts, where it can be told.
// estimate is what was taken for it.
func (c Counting) charge(u *usage, estimate bucket.Cost) (bucket.Cost, bool) {
	t, ok := u.totals(estimate.InputTokens)
	if !ok {
		return bucket.Cost{}, false
	}
	cost := bucket.Cost{Requests: estimate.Requests, InputTokens: t.input}
	if c.FreeCacheReads {
		cost.InputTokens = max(t.input-t.cached, 0)
	}
	switch {
	case c.Output == Uncounted:
	case c.Output == Kept:
		cost.OutputTokens = estimate.OutputTokens
	case t.final:
		cost.OutputTokens = c.weigh(t.output)
	default: // the end did not come: no less was produced than was said
		cost.OutputTokens = max(c.weigh(t.output), estimate.OutputTokens)
	}
	return cost, true
}
