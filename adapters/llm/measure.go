package llm

import "bytes"

// text is what has been measured of the text of a request, in bytes of UTF-8
// as the model will see it, escapes of JSON undone.
type text struct {
	bytes int64 // all of it
	dense int64 // of these, in long runs of base64 or hex

	run      int  // length of the run that goes on at the end of what was added
	digit    bool // there is a digit in it
	hexLeft  int  // digits of a \u escape still to come
	codeUnit int
}

// denseRun is how long an unbroken run of base64's letters must be to count as
// base64 or hex, which have far more tokens to the byte than language. Words are
// shorter; so are identifiers, but for the odd one.
const denseRun = 48

// inRun tells the letters of base64, in both its alphabets.
var inRun = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_") {
		t[c] = true
	}
	return t
}()

// escaped adds a piece of a JSON string as it stands between the quotes. Pieces
// may end anywhere but behind a lone backslash.
func (t *text) escaped(p []byte) {
	for len(p) > 0 {
		if t.hexLeft > 0 {
			p = t.hex(p)
			continue
		}
		k := bytes.IndexByte(p, '\\')
		if k < 0 {
			t.plain(p)
			return
		}
		t.plain(p[:k])
		switch c := p[k+1]; c {
		case '/': // PHP escapes it, also in the middle of base64
			t.plain(p[k+1 : k+2])
		case 'u':
			t.hexLeft, t.codeUnit = 4, 0
		default:
			t.endRun()
			t.bytes++
		}
		p = p[k+2:]
	}
}

// hex takes digits of a \u escape off p. A surrogate counts two bytes, so that
// a pair makes the four of its letter.
func (t *text) hex(p []byte) []byte {
	for t.hexLeft > 0 && len(p) > 0 {
		c := p[0] | 0x20
		switch {
		case c-'0' <= 9:
			t.codeUnit = t.codeUnit<<4 | int(c-'0')
		case c-'a' <= 5:
			t.codeUnit = t.codeUnit<<4 | int(c-'a'+10)
		}
		t.hexLeft--
		p = p[1:]
	}
	if t.hexLeft > 0 {
		return p
	}
	t.endRun()
	switch u := t.codeUnit; {
	case u < 0x80:
		t.bytes++
	case u < 0x800 || u >= 0xd800 && u < 0xe000:
		t.bytes += 2
	default:
		t.bytes += 3
	}
	return p
}

// plain adds bytes without escapes. It looks for long runs without looking at
// most bytes: where a byte in every denseRun breaks them, there is none.
func (t *text) plain(p []byte) {
	t.bytes += int64(len(p))
	i := 0
	if t.run > 0 {
		for i < len(p) && inRun[p[i]] {
			i++
		}
		t.grow(p[:i])
		if i == len(p) {
			return
		}
		t.endRun()
	}
	for i+denseRun <= len(p) {
		k := i + denseRun - 1
		for k >= i && inRun[p[k]] {
			k--
		}
		if k >= i {
			i = k + 1
			continue
		}
		end := i + denseRun
		for end < len(p) && inRun[p[end]] {
			end++
		}
		t.grow(p[i:end])
		if end == len(p) {
			return
		}
		t.endRun()
		i = end
	}
	k := len(p)
	for k > i && inRun[p[k-1]] {
		k--
	}
	t.grow(p[k:])
}

func (t *text) grow(p []byte) {
	t.run += len(p)
	for i := 0; i < len(p) && !t.digit; i++ {
		t.digit = p[i]-'0' <= 9
	}
}

// endRun closes the run. Without a digit in it, it is a line drawn under a
// heading, or the like.
func (t *text) endRun() {
	if t.run >= denseRun && t.digit {
		t.dense += int64(t.run)
	}
	t.run, t.digit = 0, false
}

// add takes in what was measured apart.
func (t *text) add(o text) {
	o.endRun()
	t.endRun()
	t.bytes += o.bytes
	t.dense += o.dense
}
