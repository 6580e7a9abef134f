package llm

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// Config configures an Estimator. The zero value is the default.
type Config struct {
	// BytesPerToken is how many bytes of UTF-8 in text make a token; 0 means
	// 3.5. On current tokenizers prose, code and JSON have 4 to 4.8, and no
	// language has less than 2.6.
	BytesPerToken float64
	// DenseBytesPerToken is the same in long runs of base64 or hex within text;
	// 0 means 1.4.
	DenseBytesPerToken float64
	// PerMessage and PerCall are added for each message and each call; 0 means
	// 4 and 10, negative none.
	PerMessage, PerCall int64
	// Image, Audio and File are the price of one of these, in tokens, whatever
	// its size; 0 means 1,500, 1,500 and 3,000, negative none.
	Image, Audio, File int64
	// Output is how many tokens of output a call is expected to have that does
	// not limit it, before anything was learned; 0 means 1,024, negative none.
	Output int64

	// NoCorrection turns off the correction by what calls of the same model
	// were charged, NoOutputHistory the expectation of output from what they had.
	NoCorrection, NoOutputHistory bool

	// Counting says what counts, by the name of the provider as retryafter has
	// it ("openai", "anthropic", or the Name of a Provider in Reader); "generic"
	// is every other host; any other name is an error. It comes before the
	// defaults, which are stated at Counting's fields and in the package
	// documentation.
	Counting map[string]Counting
	// Reader tells which provider a host speaks, and reads errors within
	// streams. Zero knows the built-in providers; give it the one that the
	// Stack has.
	Reader retryafter.Reader
}

// Validate names what is wrong with c, or returns nil.
func (c Config) Validate() error {
	for _, r := range [...]struct {
		name  string
		value float64
	}{{"BytesPerToken", c.BytesPerToken}, {"DenseBytesPerToken", c.DenseBytesPerToken}} {
		if r.value != 0 && !(r.value >= 0.1 && r.value <= 100) {
			return fmt.Errorf("llm: Config.%s: %v is not between 0.1 and 100", r.name, r.value)
		}
	}
	for _, r := range [...]struct {
		name  string
		value int64
	}{{"PerMessage", c.PerMessage}, {"PerCall", c.PerCall}, {"Image", c.Image}, {"Audio", c.Audio}, {"File", c.File}, {"Output", c.Output}} {
		if r.value > maxTokens {
			return fmt.Errorf("llm: Config.%s: %d is more than %d tokens", r.name, r.value, maxTokens)
		}
	}
	if err := c.Reader.Validate(); err != nil {
		return fmt.Errorf("llm: Config.Reader: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Counting)) {
		if err := c.Counting[name].validate(); err != nil {
			return fmt.Errorf("llm: Config.Counting[%q]: %w", name, err)
		}
		if !c.knows(name) {
			return fmt.Errorf("llm: Config.Counting[%q]: no provider has this name", name)
		}
	}
	return nil
}

// knows reports whether a provider has this name. c's Reader is valid.
func (c Config) knows(name string) bool {
	r := retryafter.Reader{Providers: c.Reader.Providers, Hosts: map[string]string{"host.invalid": name}}
	return r.Validate() == nil
}

// Bounds of what is believed and read.
const (
	maxTokens  = 1 << 24   // no estimate is above this, of input or of output
	maxUnknown = 4 << 20   // of a body of unknown shape, no more bytes are charged
	maxBody    = 256 << 20 // no more of a body is read
)

// Estimator estimates what calls to models will cost, hears what they did cost,
// and learns from the difference. It is safe for concurrent use. The zero value
// is the default Config's, but learns nothing.
type Estimator struct {
	config  Config
	memory  *memory
	ignored atomic.Uint64

	mu    sync.RWMutex
	hosts map[string]*host
}

// host is what is known of a host.
type host struct {
	source   *retryafter.Source
	counting Counting
}

// New returns the Estimator of c, or what is wrong with c.
func New(c Config) (*Estimator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := &Estimator{config: c}
	if !c.NoCorrection || !c.NoOutputHistory {
		e.memory = &memory{models: map[modelName]*history{}}
	}
	return e, nil
}

// Ignored returns how much was not believed so far: figures in requests (a
// negative cap, a number in quotes), figures in what answers stated as usage, and,
// each as one, requests' bodies that are charged by their size because they are no
// JSON, break off, are nested too deeply or cannot be read without being used up.
// JSON of an unknown shape is charged by its size too, and is not counted.
func (e *Estimator) Ignored() uint64 { return e.ignored.Load() }

// Cost estimates what req will cost: one request, and its tokens. It fits
// middleware.PaceConfig.Cost, where what was taken stays taken; to settle for
// what a call really cost, use an Estimator's Charge.
//
// It reads a body from req.GetBody, once, and not at all without one; req and
// its Body are left alone. The error is always nil: a body that cannot be
// understood is charged by its size.
func Cost(req *http.Request) (bucket.Cost, error) {
	var e Estimator
	return e.Cost(req)
}

// Cost is the package's Cost with what e is configured for and has learned.
func (e *Estimator) Cost(req *http.Request) (bucket.Cost, error) {
	c := e.price(req)
	return c.estimate, nil
}

// Charge estimates as Cost does, and has the answer heard: use it as
// middleware.PaceConfig.Charge. The budget is Key's. The error is always nil.
func (e *Estimator) Charge(req *http.Request) (middleware.Charge, error) {
	c := e.price(req)
	t := &tap{estimator: e, call: c, usage: newUsage()}
	t.follow.usage = &t.usage
	return middleware.Charge{Key: keyOf(req, c.model), Cost: c.estimate, Tap: t}, nil
}

// call is what is known of a request.
type call struct {
	*host
	model     string
	estimate  bucket.Cost
	raw       float64 // tokens of the text, uncorrected; 0 if there is nothing to learn from
	choices   int64
	limit     int64 // of the output of one choice; none if it is not positive
	generates bool  // the answer is written by a model, for whose length nothing else is known
}

// host returns what is known of the host of a request.
func (e *Estimator) host(req *http.Request) *host {
	name := req.URL.Host
	e.mu.RLock()
	h := e.hosts[name]
	e.mu.RUnlock()
	if h != nil {
		return h
	}
	h = &host{source: e.config.Reader.For(name)}
	h.counting = countings(h.source.Name())
	if c, ok := e.config.Counting[h.source.Name()]; ok {
		h.counting = c
	}
	if e.memory == nil && e.config.Counting == nil {
		return h // as good as new
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hosts == nil || len(e.hosts) >= 1000 {
		e.hosts = map[string]*host{}
	}
	e.hosts[name] = h
	return h
}

// price looks at a request.
func (e *Estimator) price(req *http.Request) call {
	c := call{host: e.host(req), estimate: bucket.Cost{Requests: 1}, choices: 1}
	path := req.URL.Path
	c.model = modelInPath(req.URL)
	if !hasBody(req) || counts(path) {
		return c
	}
	switch kind, _, _ := strings.Cut(req.Header.Get("Content-Type"), "/"); kind {
	case "multipart", "image", "audio", "video": // a file
		c.estimate.InputTokens = c.tokens(e, &sight{files: 1}, 0)
		return c
	}
	l := look{scanner: scanner{window: make([]byte, windowSize)}}
	whole := l.open(req)
	if !whole && l.read == 0 && l.err == io.EOF && req.ContentLength <= 0 {
		return c // nothing is sent
	}
	e.ignored.Add(uint64(l.ignored))
	if l.model != "" && c.model == "" {
		c.model = l.model
	}
	if !whole {
		if l.err != nil && l.err != io.EOF && l.known { // as much as there was to see
			c.estimate.InputTokens = c.tokens(e, &l.sight, l.rest(req))
			c.estimate.OutputTokens = c.output(e, &l.sight, path)
			return c
		}
		e.ignored.Add(1)
	}
	if !whole || !l.known {
		c.estimate.InputTokens = l.size(req) / 4
		if l.known { // nested too deeply, say: it may be answered all the same
			c.estimate.OutputTokens = c.output(e, &l.sight, path)
		}
		return c
	}
	c.choices, c.limit = l.choices, l.cap
	c.generates = !silent(path)
	if l.images+l.audios+l.files == 0 {
		c.raw = e.text(&l.sight)
	}
	c.estimate.InputTokens = c.tokens(e, &l.sight, 0)
	c.estimate.OutputTokens = c.output(e, &l.sight, path)
	return c
}

// hasBody reports whether req has a body. Of a client's request a ContentLength
// of 0 says nothing where there is a Body: its length is not known then.
func hasBody(req *http.Request) bool {
	if req.Body != nil {
		return req.Body != http.NoBody
	}
	return req.GetBody != nil && req.ContentLength != 0
}

// open looks through the body, and reports whether it is JSON as a whole.
func (l *look) open(req *http.Request) bool {
	if req.GetBody == nil {
		l.broken = true
		return false
	}
	body, err := req.GetBody()
	if err != nil {
		l.broken = true
		return false
	}
	defer body.Close()
	l.r = io.LimitReader(body, maxBody)
	l.request()
	if l.broken && l.err == nil && !l.modelOnly && req.ContentLength <= 0 {
		for l.err == nil && l.read < maxUnknown { // how long is it?
			l.i = l.n
			l.fill()
		}
	}
	l.r = nil
	return !l.broken
}

// size is how long the body is, as far as it is charged.
func (l *look) size(req *http.Request) int64 {
	return min(max(req.ContentLength, l.read), maxUnknown)
}

// rest is what of the body could not be read, and is not inline.
func (l *look) rest(req *http.Request) int64 {
	if l.inMedia {
		return 0
	}
	return max(min(req.ContentLength-l.read, maxUnknown), 0)
}

// or is value, or where it is zero the default; negative is none.
func or(value, otherwise int64) int64 {
	if value == 0 {
		return otherwise
	}
	return max(value, 0)
}

// text returns the tokens of the text in s, uncorrected.
func (e *Estimator) text(s *sight) float64 {
	c := &e.config
	plain, dense := c.BytesPerToken, c.DenseBytesPerToken
	if plain == 0 {
		plain = 3.5
	}
	if dense == 0 {
		dense = 1.4
	}
	n := float64(s.text.bytes-s.text.dense)/plain + float64(s.text.dense)/dense
	return n + float64(s.ids) + float64(s.messages)*float64(or(c.PerMessage, 4)) + float64(or(c.PerCall, 10))
}

// tokens returns the estimate of the input. rest are bytes of it that could not be seen.
func (c *call) tokens(e *Estimator, s *sight, rest int64) int64 {
	n := (e.text(s) + float64(rest)/4) * e.correction(c)
	n += float64(s.images)*float64(or(e.config.Image, 1500)) +
		float64(s.audios)*float64(or(e.config.Audio, 1500)) +
		float64(s.files)*float64(or(e.config.File, 3000))
	return ceil(n)
}

// output returns the estimate of the output.
func (c *call) output(e *Estimator, s *sight, path string) int64 {
	if silent(path) || c.counting.Output == Uncounted {
		return 0
	}
	one := s.cap
	if one < 0 || c.counting.Output == Produced {
		expected := e.expected(c)
		if one < 0 || expected < one {
			one = expected
		}
	}
	return min(c.counting.weigh(one*s.choices), maxTokens)
}

// ceil rounds tokens up, within bounds.
func ceil(n float64) int64 {
	return int64(math.Ceil(max(0, min(n, maxTokens))))
}

// silent reports whether answers at path have no output of a model: its last
// segment says so, what comes before is somebody's own.
func silent(path string) bool {
	path = strings.TrimSuffix(path, "/")
	last := path[strings.LastIndexByte(path, '/')+1:]
	for _, s := range [...]string{"embed", "Embed", "rerank", "moderations"} {
		if strings.Contains(last, s) {
			return true
		}
	}
	return false
}

// counts reports whether path only counts tokens, and uses none.
func counts(path string) bool {
	for _, s := range [...]string{":countTokens", "/count_tokens", "/count-tokens", "/input_tokens", "/tokenize"} {
		if strings.HasSuffix(path, s) {
			return true
		}
	}
	return false
}
