package llm

import "bytes"

// follower follows JSON that comes in pieces, and notes the usage in it, and
// whether it is an error. It holds a few words of memory whatever comes, and
// takes the same from it however it is cut. What is no JSON it does not
// understand, and takes nothing from.
type follower struct {
	usage  *usage
	failed bool // the document is an error, or holds one

	zones   [maxZone + 1]zone
	arrays  uint64 // which levels are arrays, as bits
	depth   int
	state   state
	excess  bool // more was closed than opened
	escaped bool // the string goes on with an escaped byte
	keyed   bool // within an object, before a colon

	short [maxWord]byte // the key, string or word that is being read
	n     int
	long  bool // it is none of those that are looked for

	// What the next value is.
	child   zone
	expects expectation
	figure  figure
	renews  bool // the usage replaces what was stated before, rather than to go on from it
	first   bool // the usage is that of a message that a stream opens with
}

const (
	maxZone = 6  // the deepest level that can matter
	maxWord = 32 // the longest key, string or word that can
)

// zone is where in an answer a value stands.
type zone uint8

const (
	elsewhere zone = iota
	top            // the answer, or an event of it
	wrapped        // an object that may hold the usage in its turn
	opened         // the same, of the message that a stream opens with
	within         // usage
	details        // the details of usage
)

type state uint8

const (
	between state = iota
	inKey
	inString
	inWord
)

type expectation uint8

const (
	nothing expectation = iota
	aFigure
	aType   // which may be "error"
	anError // or null
)

// reset makes f ready for another document.
func (f *follower) reset() {
	*f = follower{usage: f.usage, child: top}
}

// within makes f ready for what is left of a document, from the name of a member
// of the outermost object on.
func (f *follower) within() {
	f.depth, f.zones[1], f.keyed = 1, top, true
}

// closed reports whether the document has come to its end, and to no more.
func (f *follower) closed() bool { return f.depth == 0 && !f.excess && f.state == between }

// feed reads on.
func (f *follower) feed(p []byte) {
	for i := 0; i < len(p); {
		switch f.state {
		case inString, inKey:
			i += f.string(p[i:])
			continue
		case inWord:
			if c := p[i]; c > ' ' && c != ',' && c != '}' && c != ']' {
				f.keep(p[i : i+1])
				i++
				continue
			}
			f.state = between
			f.word()
		}
		c := p[i]
		switch {
		case c <= ' ':
		case c == '"':
			f.n, f.long = 0, false
			if f.state = inString; f.keyed {
				f.state = inKey
			}
		case c == '{' || c == '[':
			f.open(c == '[')
		case c == '}' || c == ']':
			if f.depth--; f.depth < 0 {
				f.depth, f.excess = 0, true
			}
			f.keyed = false
			f.expect(nothing, elsewhere)
		case c == ':':
			f.keyed = false
		case c == ',':
			f.keyed = !f.inArray()
			f.expect(nothing, f.element())
		default:
			f.n, f.long = 0, false
			f.state = inWord
			continue
		}
		i++
	}
}

func (f *follower) expect(e expectation, child zone) {
	f.expects, f.child = e, child
}

func (f *follower) zone() zone {
	if f.depth > maxZone {
		return elsewhere
	}
	return f.zones[f.depth]
}

func (f *follower) inArray() bool { return f.depth < 64 && f.arrays>>f.depth&1 == 1 }

// element is the zone of an element, where f is in an array. One around
// everything is Gemini's stream without SSE.
func (f *follower) element() zone {
	if f.depth == 1 && f.inArray() {
		return top
	}
	return elsewhere
}

func (f *follower) open(array bool) {
	if f.expects == anError && !array {
		f.failed = true
	}
	if f.child == within && !array {
		if f.renews {
			f.usage.renew()
			f.renews = false
		}
		f.usage.opening = f.first
	}
	f.depth++
	if f.depth < 64 {
		f.arrays &^= 1 << f.depth
		if array {
			f.arrays |= 1 << f.depth
			f.child = elsewhere
		}
	}
	if f.depth <= maxZone {
		f.zones[f.depth] = f.child
	}
	f.keyed = !array
	f.expect(nothing, f.element())
}

// string reads on within a string, and returns how far.
func (f *follower) string(p []byte) int {
	i := 0
	if f.escaped {
		f.escaped, f.long, i = false, true, 1 // nothing that is looked for has escapes
	}
	q := bytes.IndexByte(p[i:], '"')
	if q < 0 {
		f.keep(p[i:])
		f.escaped = loneBackslash(p[i:])
		return len(p)
	}
	f.keep(p[i : i+q])
	if loneBackslash(p[i : i+q]) {
		f.long = true
		return i + q + 1
	}
	if f.state == inKey {
		f.key()
	} else {
		f.text()
	}
	f.state = between
	return i + q + 1
}

// keep keeps what is being read, as long as it is short.
func (f *follower) keep(p []byte) {
	if f.long || f.n+len(p) > maxWord {
		f.long = true
		return
	}
	f.n += copy(f.short[f.n:], p)
}

// is reports whether what has been read is s.
func (f *follower) is(s string) bool { return !f.long && string(f.short[:f.n]) == s }

// key is for the name of a member.
func (f *follower) key() {
	f.expect(nothing, elsewhere)
	if f.long {
		return
	}
	key := f.short[:f.n]
	switch z := f.zone(); z {
	case top, wrapped, opened:
		f.member(z, key)
	case within:
		var inclusive bool
		if f.figure, inclusive = figureOf(key); f.figure != noFigure {
			f.expects = aFigure
			f.usage.inclusive = f.usage.inclusive || inclusive
		}
		switch string(key) {
		case "prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details":
			f.child = details
		case "tokens": // Cohere: what the model saw, beside what is billed
			f.child = within
		}
	case details:
		if f.figure = detailOf(key); f.figure != noFigure {
			f.expects = aFigure
		}
	}
}

// member is for the name of a member of an object that can hold the usage.
func (f *follower) member(z zone, key []byte) {
	switch string(key) {
	case "usage", "usageMetadata":
		f.child, f.first, f.renews = within, z == opened, len(key) > len("usage")
	case "response", "x_groq", "delta": // OpenAI's responses, Groq, Cohere
		if z == top {
			f.child = wrapped
		}
	case "message": // Anthropic's message_start
		if z == top {
			f.child = opened
		}
	case "type":
		if z == top {
			f.expects = aType
		}
	case "error":
		if z != opened {
			f.expects = anError
		}
	}
}

// text is for a string that is a value.
func (f *follower) text() {
	switch f.expects {
	case aType:
		f.failed = f.failed || f.is("error")
	case anError:
		f.failed = true
	case aFigure:
		f.usage.ignored++
	}
	f.expects = nothing
}

// word is for a number, or another word, that is a value.
func (f *follower) word() {
	expects := f.expects
	f.expects = nothing
	if f.is("null") {
		return
	}
	switch expects {
	case anError:
		f.failed = f.failed || !f.is("false")
	case aFigure:
		v, ok := count(f.short[:f.n])
		if f.long || !ok {
			f.usage.ignored++
			return
		}
		f.usage.state(f.figure, v)
	}
}
