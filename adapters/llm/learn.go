package llm

import (
	"math/bits"
	"sync"
)

// memory is what an Estimator has learned, by model. It holds maxModels at most.
type memory struct {
	mu     sync.Mutex
	models map[modelName]*history
}

type modelName struct{ provider, model string }

const maxModels = 1000

// history is what calls to one model have shown.
type history struct {
	inputs int     // calls whose input was compared
	ratio  float64 // actual over estimated, exponentially weighted
	spread float64 // how far single calls were from it, likewise

	outputs [outputBuckets]uint32 // calls by their output
	calls   uint32                // the sum of those
}

const (
	weight      = 0.1  // of the newest call
	minRatio    = 0.25 // no correction is outside of these
	maxRatio    = 4
	fewInputs   = 5 // calls before the correction is used in full
	fewOutputs  = 8 // calls before their output is expected again
	percentile  = 95
	maxOutput   = 64 << 10 // tokens; no more is expected of a call
	forgetAfter = 512      // calls after which the older half weighs half
)

// correction returns what the estimate of a call's text is to be multiplied by:
// the ratio that calls of the model have shown, and a little more for how much
// they differ, so that most are not underestimated.
func (e *Estimator) correction(c *call) float64 {
	if e.memory == nil || e.config.NoCorrection {
		return 1
	}
	e.memory.mu.Lock()
	defer e.memory.mu.Unlock()
	h := e.memory.models[c.name()]
	if h == nil || h.inputs == 0 {
		return 1
	}
	learned := max(minRatio, min(h.ratio+h.spread, maxRatio))
	if h.inputs < fewInputs { // one call proves little, above all that less is enough
		share := float64(h.inputs) / fewInputs
		learned = 1 + (learned-1)*share
	}
	return learned
}

// expected returns the output to expect of a call that does not limit it.
func (e *Estimator) expected(c *call) int64 {
	fixed := or(e.config.Output, 1024)
	if e.memory == nil || e.config.NoOutputHistory {
		return fixed
	}
	e.memory.mu.Lock()
	defer e.memory.mu.Unlock()
	h := e.memory.models[c.name()]
	if h == nil || h.calls < fewOutputs {
		return fixed
	}
	var below uint32
	for i, n := range h.outputs {
		if below += n; uint64(below)*100 >= uint64(h.calls)*percentile {
			return outputBound(i)
		}
	}
	return fixed
}

// learn takes in what a call of the model was charged.
func (e *Estimator) learn(c *call, t totals) {
	if e.memory == nil || c.model == "" {
		return
	}
	e.memory.mu.Lock()
	defer e.memory.mu.Unlock()
	h := e.memory.models[c.name()]
	if h == nil {
		if len(e.memory.models) >= maxModels {
			for name := range e.memory.models { // any: the ones in use are learned anew soon
				delete(e.memory.models, name)
				break
			}
		}
		h = new(history)
		e.memory.models[c.name()] = h
	}
	if c.raw > 0 && t.input > 0 {
		h.compare(float64(t.input) / c.raw)
	}
	if c.generates && t.final {
		one := t.output / max(c.choices, 1)
		if c.limit > 0 {
			one = min(one, c.limit) // no answer is longer
		}
		h.wrote(min(one, maxOutput))
	}
}

func (h *history) compare(ratio float64) {
	ratio = max(minRatio/2, min(ratio, maxRatio*2))
	h.inputs++
	w := max(weight, 1/float64(h.inputs))
	off := ratio - h.ratio
	if h.inputs == 1 {
		off = 0
		h.ratio = ratio
	}
	h.ratio += w * off
	h.spread += w * (max(off, -off) - h.spread)
}

func (h *history) wrote(tokens int64) {
	h.outputs[outputBucket(tokens)]++
	if h.calls++; h.calls >= forgetAfter {
		h.calls = 0
		for i := range h.outputs {
			h.outputs[i] /= 2
			h.calls += h.outputs[i]
		}
	}
}

// Outputs are counted in buckets eight to the octave, up to a million tokens.
const outputBuckets = 8 * 18

func outputBucket(tokens int64) int {
	if tokens < 8 {
		return int(max(tokens, 0))
	}
	octave := bits.Len64(uint64(tokens)) - 4
	return min(8*octave+int(tokens>>octave), outputBuckets-1)
}

// outputBound is the most that falls into a bucket.
func outputBound(b int) int64 {
	if b < 16 {
		return int64(b)
	}
	octave := b/8 - 1
	return int64(b%8+9)<<octave - 1
}

func (c *call) name() modelName { return modelName{c.source.Name(), c.model} }
