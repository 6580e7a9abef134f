package llm

import "bytes"

// Of strings under names that no shape has, the estimate would rather be high
// than low: providers add members faster than anybody lists them. What is short
// and of one word is an id or a name. What is one long run of base64 is no
// language: up to maxCipher it counts as the text that it may stand for, as an
// encrypted search result does, and above as a file.
const (
	maxURL    = 4 << 10
	maxCipher = 8 << 10
)

// unnamed reads the rest of a string of which only the looks say what it is.
func (l *look) unnamed() {
	var t text
	var head [maxShort]byte // as it stands in the JSON
	n, blank, url := 0, false, false
	for last := false; !last; {
		var p []byte
		p, last = l.piece()
		if n < maxShort {
			copy(head[n:], p)
			if k := referenceOf(head[:min(n+len(p), maxShort)]); n+len(p) >= maxShort || last {
				if k == asData {
					l.inMedia = true
					if !last {
						l.skipString()
					}
					l.count(dataKind(head[:min(n+len(p), maxShort)]))
					l.inMedia = l.broken
					return
				}
				url = k == asURL
			}
		}
		n += len(p)
		blank = blank || bytes.IndexByte(p, ' ') >= 0
		t.escaped(p)
	}
	t.hexLeft = 0
	switch whole := t.run >= denseRun && t.digit && t.dense == 0 && int64(t.run) == t.bytes; {
	case url && !blank && n <= maxURL:
	case n <= maxShort:
		if blank || foreignLetters(head[:n]) {
			l.text.add(t)
		}
	case whole && n > maxCipher:
		l.count(file)
	case whole:
		l.text.bytes += t.bytes
	default:
		l.text.add(t)
	}
}

// foreignLetters reports whether there are letters beyond ASCII in a short string.
func foreignLetters(raw []byte) bool {
	for _, c := range raw {
		if c >= 0x80 {
			return true
		}
	}
	return bytes.Contains(raw, []byte(`\u`))
}

// reference is what a string that begins in a certain way refers to.
type reference uint8

const (
	asText reference = iota
	asURL
	asData // what it refers to is in it
)

// referenceOf returns what a string with this beginning is; PHP escapes the slashes.
func referenceOf(head []byte) reference {
	if bytes.HasPrefix(head, []byte("data:")) {
		if head, _, _ := bytes.Cut(head, []byte(",")); bytes.IndexByte(head, '/') > 0 && bytes.IndexByte(head, ' ') < 0 {
			return asData
		}
		return asText
	}
	scheme, rest, ok := bytes.Cut(head, []byte(":"))
	if !ok || len(scheme) > len("https") || bytes.IndexByte(scheme, ' ') >= 0 {
		return asText
	}
	if bytes.HasPrefix(rest, []byte("//")) || bytes.HasPrefix(rest, []byte(`\/\/`)) {
		return asURL
	}
	return asText
}

// dataKind returns what a data: URL with this beginning is.
func dataKind(head []byte) kind {
	switch kindOf := head[len("data:"):]; {
	case bytes.HasPrefix(kindOf, []byte("image")):
		return image
	case bytes.HasPrefix(kindOf, []byte("audio")), bytes.HasPrefix(kindOf, []byte("video")):
		return audio
	}
	return file
}
