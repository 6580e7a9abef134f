package readahead

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever has been read ahead, and whether or not it was waited for, the caller
// gets every byte once, and then the error. Proved able to fail: by a More that
// forgets what is pending, by a Read that does, and by one that loses the error.
func TestEveryByteOnce(t *testing.T) {
	broken := errors.New("broken")
	const long, short = time.Minute, time.Second
	for name, c := range map[string]struct {
		waits []time.Duration
		head  string
		err   error
	}{
		"not looked at":               {nil, "", nil},
		"looked at once":              {[]time.Duration{long}, "a", nil},
		"looked at to the end":        {[]time.Duration{long, long, long}, "abc", broken},
		"not waited for":              {[]time.Duration{short}, "", nil},
		"not waited for, twice":       {[]time.Duration{short, short}, "", nil},
		"waited for again":            {[]time.Duration{short, long}, "a", nil},
		"the last one not waited for": {[]time.Duration{long, long, short}, "ab", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := Of(&slow{left: "abc", err: broken})
				for _, wait := range c.waits {
					b.More(8, time.After(wait), nil)
				}
				if string(b.Head()) != c.head || b.Err() != c.err {
					t.Errorf("looked at %q, %v", b.Head(), b.Err())
				}
				all, err := io.ReadAll(&b)
				if string(all) != "abc" || err != broken {
					t.Errorf("read %q, %v", all, err)
				}
			})
		})
	}
}

// A slow body has a byte every ten seconds, and gives its error once, with the last.
type slow struct {
	left string
	err  error
}

func (s *slow) Read(p []byte) (int, error) {
	if s.left == "" {
		return 0, errors.New("read on after the end")
	}
	time.Sleep(10 * time.Second)
	n := copy(p[:1], s.left)
	if s.left = s.left[n:]; s.left == "" {
		return n, s.err
	}
	return n, nil
}

func (s *slow) Close() error { return nil }

// Proved able to fail: by a More that waits for the body alone.
func TestMoreEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		done := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(done) })
		b := Of(r)
		if b.More(8, nil, done) {
			t.Error("it came")
		}
		w.Close()
		if !b.More(8, nil, nil) || b.Err() != io.EOF {
			t.Errorf("the end is not here: %v", b.Err())
		}
	})
}
