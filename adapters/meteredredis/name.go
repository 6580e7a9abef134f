package meteredredis

import (
	"crypto/sha256"
	"encoding/hex"
)

// nameOf is the name of a key's hash: the prefix, and the key in braces, so that a cluster puts all of a
// budget into one slot. A key that is long, or has a character that means something to a cluster, to a log or
// to a terminal, is named by its hash, after what of it can be read.
func nameOf(prefix, key string) string {
	const readable = 64
	plain := make([]byte, 0, readable)
	same := key != "" && len(key) <= readable
	for i := 0; i < len(key) && len(plain) < readable; i++ {
		c := key[i]
		if c <= ' ' || c >= 0x7f || c == '{' || c == '}' || c == '#' {
			c, same = '_', false
		}
		plain = append(plain, c)
	}
	if !same {
		sum := sha256.Sum256([]byte(key))
		plain = append(append(plain, '#'), hex.EncodeToString(sum[:16])...)
	}
	return prefix + ":{" + string(plain) + "}"
}
