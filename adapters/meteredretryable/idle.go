package meteredretryable

import (
	"runtime"
	"strings"
)

// CloseIdleConnections passes http.Client.CloseIdleConnections on, but not the
// calls that retryablehttp makes after each Do that has failed: the connections
// are shared by all that use the transport, and one refused call would have the
// others dial anew.
func (t *transport) CloseIdleConnections() {
	if calledByDo() {
		return
	}
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// calledByDo reports whether it is retryablehttp itself that has called
// http.Client.CloseIdleConnections. The call says nothing of where it comes
// from, and a caller's own looks the same, so this is read from the stack. What
// is not recognized is passed on.
func calledByDo() bool {
	const (
		closeIdle = "net/http.(*Client).CloseIdleConnections"
		do        = "github.com/hashicorp/go-retryablehttp.(*Client).Do"
	)
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	under := false // the frames are those below http.Client's
	for {
		f, more := frames.Next()
		switch {
		case !under:
			under = f.Function == closeIdle
		case strings.HasPrefix(f.Function, "runtime."): // it runs deferred calls
		default:
			return f.Function == do || strings.HasPrefix(f.Function, do+".")
		}
		if !more {
			return false
		}
	}
}
