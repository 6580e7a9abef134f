package llm

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

var (
	usageWord = []byte("usage")
	errorWord = []byte("error")
	nullValue = []byte(`":null`)
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// mention returns where a piece of a stream can state usage or an error: where
// one of the two words is in it other than as the name of a member that is null;
// -1 if nowhere. Every byte of every stream comes through here, so it looks at
// eight at a time, for two letters of each word that are seldom neighbours.
func mention(p []byte) int {
	i := 0
	for ; i+9 <= len(p); i += 8 {
		x, y := binary.LittleEndian.Uint64(p[i:]), binary.LittleEndian.Uint64(p[i+1:])
		us := (x ^ 'u'*ones) | (y ^ 's'*ones)
		rr := (x ^ 'r'*ones) | (y ^ 'r'*ones)
		hits := (((us - ones) &^ us) | ((rr - ones) &^ rr)) & highs
		for ; hits != 0; hits &= hits - 1 { // a hit may be false, above another
			if at := mentioned(p, i+bits.TrailingZeros64(hits)/8); at >= 0 {
				return at
			}
		}
	}
	for ; i+1 < len(p); i++ {
		if p[i] == 'u' && p[i+1] == 's' || p[i] == 'r' && p[i+1] == 'r' {
			if at := mentioned(p, i); at >= 0 {
				return at
			}
		}
	}
	return -1
}

// mentioned returns where the word of interest begins that "us" or "rr" at i are
// of, -1 if of none.
func mentioned(p []byte, i int) int {
	rest, at := p[i:], i
	switch {
	case bytes.HasPrefix(rest, usageWord):
		rest = rest[len(usageWord):]
	case i > 0 && bytes.HasPrefix(p[i-1:], errorWord):
		rest, at = rest[len(errorWord)-1:], i-1
	default:
		return -1
	}
	if bytes.HasPrefix(rest, nullValue) {
		return -1
	}
	return at
}
