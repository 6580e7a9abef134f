package retryafter

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"testing"
	"time"
)

// vector is one answer of testdata/answers.json and what it means.
type vector struct {
	ID, Host  string
	Status    int
	Headers   map[string]string
	Body      string
	Now       time.Time
	Uncertain bool
	Expect    struct {
		Class        string
		RetryAfterMS *float64 `json:"retry_after_ms"`
		WaitMS       *float64 `json:"wait_ms"`
		Retryable    *bool
		Dims         map[string]meterState
		Extra        []struct {
			Name string
			meterState
		}
	}
}

type meterState struct {
	Limit, Remaining *int64
	ResetMS          *float64 `json:"reset_ms"`
}

// differing are the vectors that may differ, with the reason.
var differing = map[string]string{}

func loadVectors(t testing.TB) []vector {
	t.Helper()
	raw, err := os.ReadFile("testdata/answers.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(raw, &vs); err != nil {
		t.Fatal(err)
	}
	if len(vs) != 117 {
		t.Fatalf("%d vectors, want 117", len(vs))
	}
	return vs
}

func (v *vector) header() http.Header {
	h := http.Header{}
	for name, value := range v.Headers {
		h.Set(name, value)
	}
	return h
}

func TestVectors(t *testing.T) {
	for _, v := range loadVectors(t) {
		t.Run(v.ID, func(t *testing.T) {
			sig := Classify(v.Host, v.Status, v.header(), []byte(v.Body), v.Now)
			problems := v.check(sig)
			if reason, ok := differing[v.ID]; ok {
				if !v.Uncertain {
					t.Fatalf("a certain vector may not differ: %s", reason)
				}
				if len(problems) == 0 {
					t.Errorf("does not differ any more, though it was expected to: %s", reason)
				}
				return
			}
			for _, p := range problems {
				t.Error(p)
			}
			if t.Failed() {
				t.Logf("%+v", sig)
			}
		})
	}
}

func (v *vector) check(sig Signal) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	class := sig.Class.String()
	if sig.Class == ServerError {
		class = "other" // the vectors have no class of its own for it
	}
	if class != v.Expect.Class {
		bad("class %s, want %s", class, v.Expect.Class)
	}
	if !sameWait(sig.RetryAfter, sig.HasHint, v.Expect.RetryAfterMS) {
		bad("retry after %v (%v), want %v ms", sig.RetryAfter, sig.HasHint, show(v.Expect.RetryAfterMS))
	}
	if wait, ok := sig.Wait(nil); !sameWait(wait, ok, v.Expect.WaitMS) {
		bad("wait %v (%v), want %v ms", wait, ok, show(v.Expect.WaitMS))
	}
	if want := v.Expect.Retryable != nil && *v.Expect.Retryable; sig.Retryable != want {
		bad("retryable %v, want %v", sig.Retryable, want)
	}
	for _, unit := range []string{"requests", "tokens", "input_tokens", "output_tokens"} {
		want, stated := v.Expect.Dims[unit]
		var found []Window
		for _, w := range sig.Windows {
			if w.Unit == unit {
				found = append(found, w)
			}
		}
		switch {
		case !stated && len(found) > 0:
			bad("%s: windows %+v, want none", unit, found)
		case stated && len(found) != 1:
			bad("%s: windows %+v, want one", unit, found)
		case stated && !want.is(found[0]):
			bad("%s: window %+v, want %s", unit, found[0], want)
		}
	}
	for _, want := range v.Expect.Extra {
		n := 0
		for _, w := range sig.Windows {
			if w.Unit == want.Name && want.is(w) {
				n++
			}
		}
		if n != 1 {
			bad("extra %s: %d windows of %+v are %s", want.Name, n, sig.Windows, want.meterState)
		}
	}
	if len(v.Expect.Extra) > 0 && len(sig.Windows) != len(v.Expect.Dims)+len(v.Expect.Extra) {
		bad("windows %+v, want %d", sig.Windows, len(v.Expect.Dims)+len(v.Expect.Extra))
	}
	return problems
}

func (m meterState) is(w Window) bool {
	count := func(got int64, want *int64) bool { return want == nil && got == -1 || want != nil && got == *want }
	return count(w.Limit, m.Limit) && count(w.Remaining, m.Remaining) && sameWait(w.Reset, w.Reset >= 0, m.ResetMS)
}

func (m meterState) String() string {
	show := func(n *int64) any {
		if n == nil {
			return nil
		}
		return *n
	}
	return fmt.Sprintf("limit %v remaining %v reset %v ms", show(m.Limit), show(m.Remaining), showMS(m.ResetMS))
}

func showMS(ms *float64) any {
	if ms == nil {
		return nil
	}
	return *ms
}

func show(ms *float64) any { return showMS(ms) }

// sameWait compares with a number of milliseconds, rounded up; null is no wait.
// What a time.Duration cannot hold saturates.
func sameWait(d time.Duration, ok bool, ms *float64) bool {
	if ms == nil || !ok {
		return ms == nil && !ok
	}
	if *ms*1e6 > math.MaxInt64 {
		return d == math.MaxInt64
	}
	if d < 0 {
		return false
	}
	up := d / time.Millisecond
	if d%time.Millisecond > 0 {
		up++
	}
	return float64(up) == *ms
}
