package llm

// usage is what an answer has stated of its cost so far. A figure of -1 has not
// been stated. All are kept as the provider gives them.
type usage struct {
	figures   [figureCount]int64
	inclusive bool  // input holds what was read from the cache, and written to it
	opening   bool  // output is what the stream began with, not what it came to
	ignored   int64 // figures that cannot be
}

type figure uint8

const (
	noFigure    figure = iota
	input              // tokens of the prompt
	cachedPart         // of input, read from the cache
	cacheRead          // read from the cache; beside input, unless inclusive
	writtenPart        // of input, written to the cache
	cacheWrite         // written to the cache; beside input, unless inclusive
	toolInput          // beside input
	output             // tokens of the answer
	thoughts           // beside output
	reasoning          // of output
	total              // input and output
	figureCount
)

// figureOf returns what a member of a usage object states.
func figureOf(key []byte) (f figure, inclusive bool) {
	switch string(key) {
	case "prompt_tokens", "promptTokenCount":
		return input, true
	case "input_tokens", "inputTokens":
		return input, false
	case "cache_read_input_tokens", "cacheReadInputTokens":
		return cacheRead, false
	case "cache_creation_input_tokens", "cacheWriteInputTokens":
		return cacheWrite, false
	case "cachedContentTokenCount", "prompt_cache_hit_tokens":
		return cachedPart, true
	case "toolUsePromptTokenCount":
		return toolInput, false
	case "completion_tokens", "output_tokens", "candidatesTokenCount", "outputTokens":
		return output, false
	case "thoughtsTokenCount":
		return thoughts, false
	case "total_tokens", "totalTokenCount", "totalTokens":
		return total, false
	}
	return noFigure, false
}

// detailOf returns what a member of the details of input or output states.
func detailOf(key []byte) figure {
	switch string(key) {
	case "cached_tokens":
		return cachedPart
	case "cache_write_tokens":
		return writtenPart
	case "reasoning_tokens":
		return reasoning
	}
	return noFigure
}

// maxFigure is more tokens than any call has; what is above it is ignored. It is
// the bound of estimates too: what an answer states must not take a budget that
// no request could.
const maxFigure = maxTokens

func newUsage() (u usage) {
	u.renew()
	return u
}

// renew forgets all figures.
func (u *usage) renew() {
	for i := range u.figures {
		u.figures[i] = -1
	}
}

// state takes a figure in. Later ones replace earlier ones, since all are
// cumulative; but a zero says nothing against a figure that has been stated.
func (u *usage) state(f figure, v int64) {
	if v > 0 || u.figures[f] < 0 {
		u.figures[f] = v
	}
}

// totals is what a usage comes to.
type totals struct {
	input, cached, written   int64
	output, reasoning, total int64
	final                    bool // it is what the answer came to, not how it began
}

// stated reports whether anything has been.
func (u *usage) stated() bool {
	return u.figures[input] >= 0 || u.figures[output] >= 0 || u.figures[total] >= 0
}

// totals returns what u comes to, false if nothing was stated. Where only the
// sum is stated, estimate says how much of it is input.
func (u *usage) totals(estimate int64) (t totals, ok bool) {
	at := func(f figure) int64 { return max(u.figures[f], 0) }
	has := func(f figure) bool { return u.figures[f] >= 0 }
	if !u.stated() {
		return t, false
	}
	t.input = at(input) + at(toolInput)
	t.cached, t.written = max(at(cachedPart), at(cacheRead)), max(at(writtenPart), at(cacheWrite))
	if !u.inclusive {
		t.input += at(cacheRead) + at(cacheWrite)
	}
	t.output, t.reasoning = at(output)+at(thoughts), max(at(reasoning), at(thoughts))
	t.final = has(output) && !u.opening
	switch {
	case has(total) && has(input) && !has(output): // an embedding, or the first chunk of Gemini
		t.output = max(t.output, at(total)-t.input, 0)
		t.final = true
	case has(total) && has(output) && !has(input):
		t.input = max(at(total)-t.output, 0)
	case has(total) && !has(input): // Mistral's header
		t.input = min(at(total), estimate)
		t.output = at(total) - t.input
		t.final = true
	}
	t.input, t.output = min(t.input, maxTokens), min(t.output, maxTokens)
	t.cached, t.written = min(t.cached, t.input), min(t.written, t.input)
	t.total = t.input + t.output
	return t, true
}

// count reads a number of tokens.
func count(word []byte) (int64, bool) {
	if len(word) == 0 {
		return 0, false
	}
	var v int64
	for _, c := range word {
		if c-'0' > 9 {
			return 0, false
		}
		if v = v*10 + int64(c-'0'); v > maxFigure {
			return 0, false
		}
	}
	return v, true
}
