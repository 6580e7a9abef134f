package retryafter

import (
	"strconv"
	"strings"
	"testing"
)

// A class that is read is written back as it was; any other is an error that
// shows it, and changes nothing.
//
// Proved able to fail: on names compared without regard to case, on an error
// without the text, and on a class that is set before the text is known.
func FuzzClass(f *testing.F) {
	for c := OK; c <= Other; c++ {
		f.Add([]byte(c.String()))
	}
	for _, s := range []string{"", "Other", " ok", "class(6)", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c := Other
		if err := c.UnmarshalText(text); err != nil {
			if c != Other || !strings.Contains(err.Error(), strconv.Quote(string(text))) {
				t.Errorf("%q made %v, with the error %v", text, c, err)
			}
			return
		}
		if again, err := c.MarshalText(); err != nil || string(again) != string(text) {
			t.Errorf("%q is written back as %q, %v", text, again, err)
		}
	})
}
