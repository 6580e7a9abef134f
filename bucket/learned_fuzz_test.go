package bucket

import (
	"context"
	"encoding/json"
	"testing"
	"time"
)

// What was saved of an earlier run may be anything by the time it is read again:
// it is refused, or it is borne, and what comes back from it is good to be given
// back.
func FuzzLearned(f *testing.F) {
	for _, s := range []string{
		`{"metering":"bucket","limits":[{"unit":"requests","amount":60,"per":60000000000,"source":"stated"}]}`,
		`{"metering":"window","boundary":"2026-01-02T03:04:05Z","limits":[{"unit":"tokens","amount":1,"per":1,"shape":"window","end":"2300-01-01T00:00:00Z","source":"refusals"}]}`,
		`{"limits":[{"unit":"input_tokens","amount":17592186044416,"per":9223372036854775807,"burst":17592186044416,"rate":1e-300,"source":"stated"}]}`,
		`{"metering":"window","boundary":"0001-01-01T00:00:01Z"}`,
		`{}`, `null`, `[]`,
	} {
		f.Add([]byte(s), int64(1), int64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, requests, tokens int64) {
		var learned Learned
		if json.Unmarshal(data, &learned) != nil {
			return
		}
		c := Config{Adaptive: AdaptiveOn, Learned: map[string]Learned{"k": learned}}
		l, err := New(c)
		if (err == nil) != (c.Validate() == nil) {
			t.Fatalf("New says %v, Validate %v", err, c.Validate())
		}
		if err != nil {
			return
		}
		ctx, cancel := context.WithDeadline(context.Background(), time.Now()) // nobody waits
		defer cancel()
		cost := Cost{Requests: requests, InputTokens: tokens}
		if g, err := l.Acquire(ctx, "k", cost); err == nil {
			g.Report(Meter{Unit: Requests, Limit: requests, Remaining: tokens, Reset: time.Duration(tokens)})
			g.Served()
			g.Settle(cost)
		}
		if g, wait := l.TakeAt(time.Now(), "k", cost); wait < 0 {
			t.Fatalf("a wait of %v", wait)
		} else if wait == 0 {
			g.RefusedHinted(time.Second, time.Duration(tokens))
		}
		if s, ok := l.Stats("k"); ok && (s.InFlight != 0 || s.Queued != 0) {
			t.Fatalf("%+v", s)
		}
		again := l.Learned()
		text, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		back := map[string]Learned{}
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("%s cannot be read: %v", text, err)
		}
		if err := (Config{Adaptive: AdaptiveOn, Learned: back}).Validate(); err != nil {
			t.Fatalf("%s cannot be given back: %v", text, err)
		}
	})
}
