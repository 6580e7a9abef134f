package retryafter

import (
	"context"
	"errors"
	"strings"
)

// Detect tells whether an error is a refusal by a server, and which. In order of
// trust: a *RefusedError anywhere in the error's tree, whose Signal it returns;
// a text with "rate limit" or the number 429 standing alone, which is
// RateLimited; a text of the form "HTTP 503: ...", with 503 and 529 Overloaded.
// A text may also state the wait ("try again in 20s").
//
// A local refusal, with which this program kept a request back, is not a rate
// limit of a server: an error that matches a context error, or that has a method
// Local() bool returning true, as those of package bucket have. An error that
// Detect does not know gives false.
func Detect(err error) (Signal, bool) {
	if err == nil {
		return Signal{}, false
	}
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		if refused == nil {
			return Signal{}, false
		}
		return refused.Signal, true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || local(err) {
		return Signal{}, false
	}
	s := strings.ToLower(err.Error())
	sig := Signal{Class: Other, Retryable: true}
	switch {
	case strings.Contains(s, "rate limit") || standsAlone(s, "429"):
		sig.Class = RateLimited
	case httpStatus(s, "503") || httpStatus(s, "529"):
		sig.Class = Overloaded
	default:
		return Signal{}, false
	}
	sig.RetryAfter, sig.HasHint = durationAfter(s, []string{"try again in ", "retry in ", "retry after "})
	return sig, true
}

// local reports whether err is a refusal of this program's own.
func local(err error) bool {
	var l interface {
		error
		Local() bool
	}
	return errors.As(err, &l) && l.Local()
}

// standsAlone reports whether number occurs in s as a number of its own: not
// within a longer word or number, a path, or as the port of a host.
func standsAlone(s, number string) bool {
	for from := 0; ; {
		i := strings.Index(s[from:], number)
		if i < 0 {
			return false
		}
		i += from
		from = i + 1
		if before(s[:i]) && after(s[i+len(number):]) {
			return true
		}
	}
}

// before reports whether what precedes a number lets it stand alone.
func before(s string) bool {
	if s == "" {
		return true
	}
	last := s[len(s)-1]
	switch {
	case isWord(last), strings.IndexByte("-/#$+", last) >= 0:
		return false
	case last == '.' || last == ',':
		return len(s) < 2 || s[len(s)-2]-'0' > 9
	case last == ':':
		// After a host this is a port, after a name such as "status" it is not.
		word := s[strings.LastIndexAny(s[:len(s)-1], " \t\n\"'(")+1 : len(s)-1]
		return !strings.ContainsAny(word, ".]/") && word != "localhost"
	}
	return true
}

// after reports whether what follows a number lets it stand alone.
func after(s string) bool {
	if s == "" {
		return true
	}
	switch {
	case isWord(s[0]), strings.IndexByte("-/%", s[0]) >= 0:
		return false
	case s[0] == '.' || s[0] == ',':
		return len(s) < 2 || s[1]-'0' > 9
	}
	return true
}

func isWord(b byte) bool {
	return isLetter(b) || b-'0' <= 9 || b == '_'
}

// httpStatus reports whether s, in lower case, has the form "http 503: ...",
// anywhere in it.
func httpStatus(s, status string) bool {
	for {
		_, after, found := strings.Cut(s, "http "+status)
		if !found {
			return false
		}
		if after == "" || after[0] == ':' {
			return true
		}
		s = after
	}
}
