package bucket

import (
	"encoding"
	"strconv"
	"strings"
	"testing"
)

// A name that is read is written back as it was; any other is an error that shows
// it, and changes nothing.
//
// Proved able to fail: on names compared without regard to case, on an error
// without the text, and on a value that is set before the text is known.
func FuzzUnmarshalText(f *testing.F) {
	for _, names := range [][]string{sourceNames[:], unitNames[:], {"token_bucket", "window"}, {"", "Tokens", "STATED", " window", "Unit(4)", "Shape(2)", "\xff"}} {
		for _, s := range names {
			f.Add([]byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		checkText(t, text, Inferred)
		checkText(t, text, OutputTokens)
		checkText(t, text, Window)
	})
}

func checkText[T interface {
	comparable
	encoding.TextMarshaler
}, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, text []byte, before T) {
	t.Helper()
	v := before
	if err := P(&v).UnmarshalText(text); err != nil {
		if v != before || !strings.Contains(err.Error(), strconv.Quote(string(text))) {
			t.Errorf("%q made %v of %v, with the error %v", text, v, before, err)
		}
		return
	}
	if again, err := v.MarshalText(); err != nil || string(again) != string(text) {
		t.Errorf("%q is written back as %q, %v", text, again, err)
	}
}
