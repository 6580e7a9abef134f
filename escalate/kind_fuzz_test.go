package escalate

import (
	"strconv"
	"strings"
	"testing"
)

// A kind that is read is written back as it was; any other is an error that shows
// it, and changes nothing.
//
// Proved able to fail: on names compared without regard to case, on an error
// without the text, and on a kind that is set before the text is known.
func FuzzKind(f *testing.F) {
	for k := RateLimit; k <= Transport+1; k++ {
		f.Add([]byte(k.String()))
	}
	for _, s := range []string{"", "Quota", " quota", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		k := Transport
		if err := k.UnmarshalText(text); err != nil {
			if k != Transport || !strings.Contains(err.Error(), strconv.Quote(string(text))) {
				t.Errorf("%q made %v, with the error %v", text, k, err)
			}
			return
		}
		if again, err := k.MarshalText(); err != nil || string(again) != string(text) {
			t.Errorf("%q is written back as %q, %v", text, again, err)
		}
	})
}
