package llm

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// sight is what a look at a request's body has found.
type sight struct {
	text     text
	messages int64
	images   int64
	audios   int64
	files    int64
	ids      int64 // tokens that were given as their numbers
	cap      int64 // on the output of one choice; -1: none given
	choices  int64 // answers asked for
	model    string
	known    bool // a shape of the providers
	ignored  int64
}

// kind is what a value in a request is, by the way that leads to it.
type kind uint8

const (
	skipped  kind = iota // nothing of it is seen by the model
	root                 // the request
	roots                // a list of requests
	messages             // a list of messages, or one text
	content              // text, or a list of texts and parts, or a part
	loose                // a part, or a list of them; a string in its place may be a name
	foreign              // what no shape has: of its strings those that look like text are text
	raw                  // JSON that the model sees as such
	model                // the model's name
	limit                // the cap on the output
	choices              // how many answers are asked for
	options              // an object with the two above
	image                // a picture in whatever form
	audio                // a sound
	file                 // a document
	inline               // one of the three, by its media type
	source               // the same in the form of Anthropic and Bedrock; may be text
)

// ofRoot is the kind of a member of a request.
func ofRoot(key []byte) kind {
	switch string(key) {
	case "model":
		return model
	case "messages", "contents", "input", "chat_history":
		return messages
	case "system", "systemInstruction", "system_instruction", "instructions", "prompt", "content",
		"message", "preamble", "texts", "inputs", "instances", "query", "documents", "document", "suffix", "title",
		"inputText":
		return content
	case "tools", "functions", "toolConfig", "tool_config", "response_format", "text", "output_config", "output_format",
		"promptVariables":
		return raw
	case "max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample", "max_new_tokens", "maxTokens":
		return limit
	case "n", "best_of", "num_generations":
		return choices
	case "generationConfig", "generation_config", "inferenceConfig", "inference_config", "textGenerationConfig", "parameters":
		return options
	case "requests":
		return roots
	case "generateContentRequest":
		return root
	case "metadata", "requestMetadata", "labels", "user", "safety_identifier", "prompt_cache_key", "cachedContent", "stop",
		"stop_sequences", "tool_choice", "logit_bias", "stream_options", "safetySettings", "safety_settings", "mcp_servers":
		return skipped
	}
	return foreign
}

// holdsText reports whether a member of this kind, of a request, makes it one of
// a known shape.
func (k kind) holdsText() bool {
	switch k {
	case root, roots, messages, content, raw:
		return true
	}
	return false
}

// ofOptions is the kind of a member of an object of options.
func ofOptions(key []byte) kind {
	switch string(key) {
	case "maxOutputTokens", "max_output_tokens", "maxTokens", "max_tokens", "max_new_tokens", "maxTokenCount":
		return limit
	case "candidateCount", "candidate_count":
		return choices
	case "responseSchema", "response_schema", "responseJsonSchema", "response_json_schema":
		return raw
	}
	return skipped
}

// ofContent is the kind of a member of a message, or of a part of one.
func ofContent(key []byte) kind {
	switch string(key) {
	case "text", "content", "parts", "name", "arguments", "reasoning_content", "reasoning", "refusal", "thinking",
		"summary", "output", "context", "title", "code", "message", "query", "description", "prompt", "snippet", "stdout",
		"stderr", "logs", "diff", "inputText":
		return content
	case "input", "args", "response", "json", "action", "parameters", "input_schema", "inputSchema", "variables":
		return raw
	case "image_url":
		return image
	case "input_audio", "audio", "audio_url", "video_url":
		return audio
	case "file", "file_id", "file_url", "file_data", "fileData", "document_url":
		return file
	case "inlineData", "inline_data":
		return inline
	case "source":
		return source
	case "role", "type", "id", "status", "cache_control", "cachePoint", "logprobs", "annotations", "metadata",
		"citations", "signature", "thoughtSignature", "thought_signature":
		return skipped
	}
	return loose
}

// look reads a request's body and notes what it finds.
type look struct {
	scanner
	sight
	modelOnly bool // stop when the model is known
	inMedia   bool // the end of the input came within something inline
}

// request reads the body as a request.
func (l *look) request() {
	l.cap, l.choices = -1, 1
	if c := l.next(); c == '{' {
		l.object(root, 1)
	} else {
		l.broken = true
	}
}

// over reports whether there is nothing more to look for.
func (l *look) over() bool { return l.broken || l.modelOnly && l.model != "" }

func (l *look) value(k kind, depth int) {
	c := l.next()
	if l.broken {
		return
	}
	switch k {
	case skipped:
		l.skip(c)
		return
	case image, audio, file:
		if c != 'n' { // null
			l.inMedia = true
			l.skip(c)
			l.count(k)
			l.inMedia = l.broken
			return
		}
	case source, inline:
		if c == '{' && depth < maxDepth {
			l.media(k, depth+1)
			return
		}
		l.skip(c)
		return
	}
	switch c {
	case '{':
		l.object(k, depth+1)
	case '[':
		l.array(k, depth+1)
	case '"':
		l.string(k)
	default:
		l.scalar(k, l.literal(c))
	}
}

func (l *look) object(k kind, depth int) {
	if depth > maxDepth {
		l.broken = true
		return
	}
	if k == raw {
		l.text.bytes += 2
	}
	for c := l.next(); c != '}'; {
		if c != '"' {
			l.broken = true
			return
		}
		key := l.shortString()
		child := skipped
		switch k {
		case root:
			child = ofRoot(key)
			l.known = l.known || child.holdsText()
		case options:
			child = ofOptions(key)
		case messages, content, loose:
			child = ofContent(key)
		case foreign:
			child = foreign
		case raw:
			l.text.bytes += int64(len(key)) + 4 // quotes, colon, comma
			child = raw
		case model, limit, choices:
			l.ignored++
		}
		if l.next() != ':' {
			l.broken = true
		}
		if l.over() {
			return
		}
		l.value(child, depth)
		if l.over() {
			return
		}
		if c = l.next(); c == ',' {
			if c = l.next(); c == '}' {
				l.broken = true
			}
		} else if c != '}' {
			l.broken = true
		}
		if l.broken {
			return
		}
	}
}

func (l *look) array(k kind, depth int) {
	if depth > maxDepth {
		l.broken = true
		return
	}
	if k == raw {
		l.text.bytes += 2
	}
	for c := l.next(); c != ']'; {
		l.element(k, c, depth)
		if l.over() {
			return
		}
		if c = l.next(); c == ',' {
			c = l.next()
		} else if c != ']' {
			l.broken = true
		}
		if l.broken {
			return
		}
	}
}

// element reads an element of an array, of which c is the first byte.
func (l *look) element(k kind, c byte, depth int) {
	child := k
	switch k {
	case roots:
		child = root
	case messages:
		if child = content; c == '{' {
			l.messages++
		}
	case model, limit, choices, options:
		child = skipped
		l.ignored++
	case raw:
		l.text.bytes++
	}
	switch {
	case child == skipped:
		l.skip(c)
	case c == '{':
		l.object(child, depth+1)
	case c == '[':
		l.array(child, depth+1)
	case c == '"':
		l.string(child)
	default:
		l.scalar(child, l.literal(c))
	}
}

func (l *look) string(k kind) {
	switch k {
	case messages, content:
		l.measure(&l.text)
	case raw:
		l.text.bytes += 2
		l.measure(&l.text)
	case loose, foreign:
		l.unnamed()
	case model:
		if m := name(l.shortString()); l.model == "" { // the first one named, as for Key
			l.model = m
		}
	case limit, choices, options, root:
		l.ignored++ // a number in quotes, say
		l.skipString()
	default:
		l.skipString()
	}
}

func (l *look) scalar(k kind, word []byte) {
	switch string(word) {
	case "null", "true", "false":
		if k == raw {
			l.text.bytes += int64(len(word))
		} else if len(word) != len("null") && (k == limit || k == choices) {
			l.ignored++
		}
		return
	}
	if k == loose || k == foreign {
		return
	}
	v, ok := number(word)
	if !ok {
		l.ignored++
		return
	}
	switch k {
	case messages, content:
		l.ids++
	case raw:
		l.text.bytes += int64(len(word))
	case limit:
		if v < 0 || v > maxCap {
			l.ignored++
			return
		}
		l.cap = max(l.cap, v)
	case choices:
		if v < 1 || v > maxChoices {
			l.ignored++
			return
		}
		l.choices = max(l.choices, v)
	case model, options, root:
		l.ignored++
	}
}

// What is larger is no figure that a provider takes, and is ignored.
const (
	maxCap     = 1 << 20
	maxChoices = 1 << 10
)

// number reads a JSON number, rounded towards zero.
func number(word []byte) (int64, bool) {
	if len(word) == 0 || len(word) > 40 {
		return 0, false
	}
	if c := word[0]; c != '-' && c-'0' > 9 {
		return 0, false // NaN, Infinity
	}
	f, err := strconv.ParseFloat(string(word), 64)
	if err != nil && !math.IsInf(f, 0) || strings.ContainsAny(string(word), "xXpP_") {
		return 0, false
	}
	return int64(max(-1<<62, min(f, 1<<62))), true
}

// name returns a short string of JSON as it is meant.
func name(raw []byte) string {
	for _, c := range raw {
		if c == '\\' {
			var s string
			if json.Unmarshal([]byte(`"`+string(raw)+`"`), &s) != nil {
				return ""
			}
			return s
		}
	}
	return string(raw)
}

// media reads an object with something inline, or a reference to it.
func (l *look) media(k kind, depth int) {
	l.inMedia = true
	what := file
	if k == inline {
		what = image
	}
	var data text
	isText, other := false, false
	for c := l.next(); c != '}'; {
		if c != '"' {
			l.broken = true
			return
		}
		key := l.shortString()
		member := string(key)
		if len(member) > len("media_type") {
			member = ""
		}
		if l.next() != ':' {
			l.broken = true
			return
		}
		c = l.next()
		switch {
		case c == '"' && (member == "media_type" || member == "mimeType" || member == "mime_type"):
			switch kindOf, _, _ := strings.Cut(string(l.shortString()), "/"); kindOf {
			case "image":
				what = image
			case "audio", "video":
				what = audio
			default:
				what = file
			}
		case c == '"' && member == "type":
			isText = string(l.shortString()) == "text"
		case c == '"' && member == "data" && k == source:
			l.measure(&data)
		case c == '"' && member == "text" && k == source: // Bedrock's document
			l.measure(&l.text)
			other = true
		case member == "content" && k == source:
			l.inMedia = false
			l.element(content, c, depth)
			other = true
		case c == '"' && (member == "bytes" || member == "data" || member == "url"):
			l.skipString()
		default:
			l.skip(c)
		}
		if l.broken {
			return
		}
		if c = l.next(); c == ',' {
			c = l.next()
		} else if c != '}' {
			l.broken = true
			return
		}
	}
	l.inMedia = false
	switch {
	case other:
	case isText:
		l.text.add(data)
	default:
		l.count(what)
	}
}

func (l *look) count(k kind) {
	switch k {
	case image:
		l.images++
	case audio:
		l.audios++
	default:
		l.files++
	}
}
