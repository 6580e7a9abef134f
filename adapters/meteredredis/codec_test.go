package meteredredis

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// What goes to the script is one JSON array of numbers and names, whatever is in it, and exact.
func FuzzArgument(f *testing.F) {
	f.Add(int64(1), int64(0), 1.5, int64(3), uint8(3))
	f.Add(int64(math.MaxInt64), int64(math.MinInt64), -1e300, int64(1)<<44, uint8(255))
	f.Fuzz(func(t *testing.T, epoch, n int64, level float64, cost int64, flags uint8) {
		if math.IsNaN(level) || math.IsInf(level, 0) {
			t.Skip("no level is")
		}
		limits := limitsOf([]bucket.Limit{bucket.PerMinute(bucket.Requests, 1+n&math.MaxInt32), {Unit: bucket.Tokens, Amount: 5, Per: time.Hour, Shape: bucket.Window}}, 1)
		config := Config{Limits: nil}.withDefaults()
		b := &batch{speaker: newSpeaker(epoch, n, &config, limits), epoch: epoch, beat: flags&1 != 0, age: time.Duration(n)}
		if flags&2 != 0 {
			b.declared = &declaration{levels: []float64{level, -level}, hold: time.Duration(n)}
		}
		for range flags >> 5 {
			b.ops = append(b.ops, []string{opExtra, "1", whole(cost)})
			b.groups = append(b.groups, group{int(flags), []int64{cost, n}})
		}
		decoder := json.NewDecoder(strings.NewReader(b.argument()))
		decoder.UseNumber()
		var words []any
		if err := decoder.Decode(&words); err != nil || decoder.More() {
			t.Fatalf("%v: %s", err, b.argument())
		}
		want := 4 + 4 + 5*len(limits) + 1 + 1 + 3*len(b.ops) + 2 + 3*len(b.groups)
		if b.declared != nil {
			want += len(limits) + 1
			if got, err := words[4+4+5*len(limits)+1].(json.Number).Float64(); err != nil || got != level {
				t.Errorf("a level of %v is written as %v", level, got)
			}
		}
		if len(words) != want {
			t.Errorf("%d words, want %d: %s", len(words), want, b.argument())
		}
		if got, err := words[0].(json.Number).Int64(); err != nil || got != epoch {
			t.Errorf("an epoch of %d is written as %v", epoch, words[0])
		}
	})
}
