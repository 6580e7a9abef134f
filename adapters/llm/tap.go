package llm

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// tap hears the answer to one call: it implements middleware.Tap.
type tap struct {
	estimator *Estimator
	call      call
	usage     usage
	follow    follower
	form      form
	late      retryafter.Signal

	line   lineState // of an event stream
	prefix int       // bytes of "data:" that the line has begun with
	mark   int       // bytes of a byte order mark that the stream has begun with, all if it has none
	frame  frame     // of a stream in Amazon's framing
	put    []byte    // usage that the next is to replace, if there is one: not followed yet
	sample []byte    // how the document begins, for one that turns out to be an error
}

// maxSample is how much of a document is kept, since it may be an error.
const maxSample = 4 << 10

// form is what an answer's body is.
type form uint8

const (
	unheard    form = iota
	rejected        // the call was turned down for what is wrong with it
	redirected      // the call is to go elsewhere
	document        // JSON, or a list of it
	events          // an event stream
	records         // JSON by the line
	frames          // Amazon's event stream
)

// Answered looks at what kind of body is to come, and for figures in the headers.
func (t *tap) Answered(resp *http.Response) bool {
	t.headers(resp.Header)
	switch {
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		t.form = rejected
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		t.form = redirected
	case resp.StatusCode >= 300:
	case encoded(resp.Header):
	default:
		t.form = formOf(resp.Header.Get("Content-Type"))
	}
	t.follow.reset()
	return t.form != unheard || t.usage.stated()
}

func encoded(h http.Header) bool {
	e := h.Get("Content-Encoding")
	return e != "" && !strings.EqualFold(e, "identity")
}

func formOf(contentType string) form {
	if strings.HasPrefix(contentType, "text/event-stream") { // the usual case, without parsing
		return events
	}
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case contentType == "" || err != nil, strings.HasSuffix(kind, "/json"), strings.HasSuffix(kind, "+json"):
		return document
	case kind == "text/event-stream":
		return events
	case kind == "application/vnd.amazon.eventstream":
		return frames
	case strings.HasSuffix(kind, "ndjson"), strings.HasSuffix(kind, "jsonl"), kind == "application/stream+json":
		return records
	}
	return unheard
}

// headers takes in what Mistral and Bedrock state of a call in its headers.
func (t *tap) headers(h http.Header) {
	for _, s := range [...]struct {
		name   string
		figure figure
	}{
		{"X-Ratelimit-Tokens-Query-Cost", total},
		{"X-Amzn-Bedrock-Input-Token-Count", input},
		{"X-Amzn-Bedrock-Output-Token-Count", output},
	} {
		if v := h[s.name]; len(v) > 0 {
			n, ok := count([]byte(strings.TrimSpace(v[0])))
			if !ok {
				t.usage.ignored++
				continue
			}
			t.usage.state(s.figure, n)
		}
	}
}

// Heard follows the body.
func (t *tap) Heard(p []byte) {
	switch t.form {
	case document:
		t.keep(p)
		t.follow.feed(p)
	case events, records:
		t.lines(t.unmarked(p))
	case frames:
		t.framed(p)
	}
}

// End says what the call cost, and what an error within the answer meant.
func (t *tap) End(err error) middleware.Outcome {
	switch t.form {
	case rejected: // no model has seen it: what it would have written is not charged
		t.finish()
		c := t.call.estimate
		return middleware.Outcome{Cost: bucket.Cost{Requests: c.Requests, InputTokens: c.InputTokens}, Known: true}
	case redirected: // it is paid for there
		t.finish()
		return middleware.Outcome{Cost: bucket.Cost{Requests: t.call.estimate.Requests}, Known: true}
	case document, events, records:
		t.documentEnds()
		t.takePut()
	}
	t.finish()
	cost, known := t.call.counting.charge(&t.usage, t.call.estimate)
	if known && t.late.Class == retryafter.OK && (err == nil || err == io.EOF) {
		if totals, ok := t.usage.totals(t.call.estimate.InputTokens); ok && t.usage.figures[input] >= 0 {
			t.estimator.learn(&t.call, totals)
		}
	}
	return middleware.Outcome{Cost: cost, Known: known, Late: t.late}
}

func (t *tap) finish() {
	if t.usage.ignored > 0 {
		t.estimator.ignored.Add(uint64(t.usage.ignored))
	}
}

// keep keeps the beginning of the document.
func (t *tap) keep(p []byte) {
	if n := maxSample - len(t.sample); n > 0 {
		t.sample = append(t.sample, p[:min(n, len(p))]...)
	}
}

// documentEnds is for the end of a document: was it an error?
func (t *tap) documentEnds() {
	if t.follow.failed {
		if sig := signalOf(t.call.source, t.sample); sig.Class != retryafter.OK {
			t.late = sig
		}
	}
	t.sample = t.sample[:0]
	t.follow.reset()
}

// signalOf returns what a document that came under a status of success means
// as an answer of its own.
func signalOf(source *retryafter.Source, document []byte) retryafter.Signal {
	return source.Classify(http.StatusOK, http.Header{}, document, time.Now())
}

// lineState is where in a line of an event stream the tap is.
type lineState uint8

const (
	atField lineState = iota // its name is not known yet
	inData
	inOther
)

const dataField = "data:"

const byteOrderMark = "\xef\xbb\xbf"

// unmarked takes a byte order mark, which an event stream may begin with, off
// the beginning of the body.
func (t *tap) unmarked(p []byte) []byte {
	for t.mark < len(byteOrderMark) && len(p) > 0 {
		if p[0] != byteOrderMark[t.mark] {
			if t.mark > 0 {
				t.line = inOther
			}
			t.mark = len(byteOrderMark)
			break
		}
		t.mark++
		p = p[1:]
	}
	return p
}

// lines follows an event stream, or JSON by the line. Each line of data is taken
// for a document of its own: no provider breaks JSON over two.
//
// Most pieces of a stream are of no interest, and are found to be so faster
// than they can be followed.
func (t *tap) lines(p []byte) {
	if t.line != atField || t.prefix != 0 {
		n := bytes.IndexByte(p, '\n') + 1
		if n == 0 {
			n = len(p)
		}
		t.followLines(p[:n])
		p = p[n:]
	}
	n := bytes.LastIndexByte(p, '\n') + 1
	for whole := p[:n]; ; {
		at := mention(whole)
		if at < 0 {
			break
		}
		start, end := 0, 0
		for end <= at { // forwards: LastIndexByte goes byte by byte
			start, end = end, end+bytes.IndexByte(whole[end:], '\n')+1
		}
		if line := whole[start:end]; !t.stated(line, at-start) {
			t.followLines(line)
		}
		whole = whole[end:]
	}
	t.followLines(p[n:])
}

// stated takes the usage from a line of data that has it as a member of the
// outermost object, at a mention, without following what comes before. It does
// nothing, and returns false, where that is not so.
func (t *tap) stated(line []byte, at int) bool {
	if t.form != events || !bytes.HasPrefix(line, []byte(dataField)) || at == 0 || line[at-1] != '"' || line[at] != usageWord[0] {
		return false
	}
	if cr := bytes.IndexByte(line, '\r'); cr >= 0 && cr < len(line)-2 { // more than one line
		return false
	}
	if t.putAside(line[at-1:]) {
		return true
	}
	t.takePut()
	before := t.usage
	ok := t.followTail(line[at-1:])
	if !ok {
		t.usage = before
	}
	return ok
}

// followTail follows what is left of a document, from the name of a member of
// the outermost object on. It is false if that is not what it is.
func (t *tap) followTail(tail []byte) bool {
	t.follow.reset()
	t.follow.within()
	t.follow.feed(tail)
	ok := t.follow.closed() && !t.follow.failed
	t.follow.reset()
	return ok
}

// putAside keeps a tail with Gemini's usage, which comes with each event and
// replaces the one before, for when it turns out to be the last. It does not if
// the tail may be anything else.
func (t *tap) putAside(tail []byte) bool {
	if len(tail) > maxSample || !bytes.HasPrefix(tail[1:], metadataWord) || bytes.IndexByte(tail, '\\') >= 0 ||
		bytes.Count(tail, closeBrace)-bytes.Count(tail, openBrace) != 1 ||
		bytes.Count(tail, closeBracket) != bytes.Count(tail, openBracket) || mention(tail[len(metadataWord):]) >= 0 {
		return false
	}
	t.put = append(t.put[:0], tail...)
	return true
}

var (
	metadataWord              = []byte("usageMetadata")
	openBrace, closeBrace     = []byte("{"), []byte("}")
	openBracket, closeBracket = []byte("["), []byte("]")
)

// takePut follows what was put aside.
func (t *tap) takePut() {
	if len(t.put) == 0 {
		return
	}
	before := t.usage
	if !t.followTail(t.put) {
		t.usage = before
	}
	t.put = t.put[:0]
}

func (t *tap) followLines(p []byte) {
	if len(p) > 0 && t.line == atField && t.prefix == 0 {
		t.takePut()
	}
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			end = len(p)
		}
		if cr := bytes.IndexByte(p[:end], '\r'); cr >= 0 {
			end = cr
		}
		t.followLine(p[:end])
		if end == len(p) {
			return
		}
		t.lineEnds()
		p = p[end+1:]
	}
}

// followLine follows a part of a line.
func (t *tap) followLine(p []byte) {
	if t.line == atField && t.form == records && len(p) > 0 {
		t.line = inData
	}
	for t.line == atField && len(p) > 0 {
		if p[0] != dataField[t.prefix] {
			t.line = inOther
			break
		}
		if t.prefix++; t.prefix == len(dataField) {
			t.line = inData
		}
		p = p[1:]
	}
	if t.line == inData {
		t.keep(p)
		t.follow.feed(p)
	}
}

func (t *tap) lineEnds() {
	if t.line == inData {
		t.documentEnds()
	}
	t.line, t.prefix = atField, 0
}
