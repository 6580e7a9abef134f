package meteredredis

import (
	"math"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

// After an outage of all, the first one back starts from what is left of its share, and who comes later owes what it
// took since. After an outage of one, it owes what it took beside the others; of what was left for both, nothing.
//
// Proved able to fail: without the charge of what was taken beside, and without the lowering.
func TestScriptTakesBackWhoWasAway(t *testing.T) {
	const rate, burst, spent, share = 100, 200, 190, 0.475
	const away = 4 * time.Second
	lost := time.Now()
	for _, c := range []struct {
		name   string
		others int // calls that the store let go in each second of it
		shape  bucket.Shape
		want   float64
	}{
		{"all were away", 0, bucket.TokenBucket, 3},
		{"the others took all", 100, bucket.TokenBucket, -190},
		{"the others took half", 50, bucket.TokenBucket, 3}, // 200 and 190 are less than 400
		{"the others took three fifths", 60, bucket.TokenBucket, 400 - 240 - 190},
		{"all were away from a window", 0, bucket.Window, 3},
		{"the others took all of a window", 100, bucket.Window, -47.5}, // what it took before has left the window
	} {
		t.Run(c.name, func(t *testing.T) {
			l := bucket.Limit{Unit: bucket.Requests, Amount: rate, Per: time.Second, Shape: c.shape}
			if c.shape == bucket.TokenBucket {
				l.Burst = burst
			}
			b := newBench(t, connect(t), t.Name(), l)
			other := *b
			other.speaker = newSpeaker(2, 99, &b.config, b.limits)
			heard := b.run(t, b.takes(burst, 1))
			other.epoch = b.epoch
			r := &comeback{lost: lost, heard: lost, found: lost.Add(away), levels: []float64{3}, spent: []float64{spent}, share: share,
				full: []float64{heard.limits[0].available + float64(heard.limits[0].charged) + float64(heard.granted)}}
			start := b.now
			for i := range 4 {
				other.now = start + int64(i+1)*1e6
				other.run(t, other.takes(c.others, 1))
			}
			b.now = start + away.Microseconds()
			after := b.run(t, &batch{ops: r.told(b.limits, lost.Add(away))}).limits[0].available
			if math.Abs(after-c.want) > 1e-3 {
				t.Errorf("%.3f are left, want %.3f", after, c.want)
			}
			if c.others > 0 || c.shape == bucket.Window {
				return
			}
			other.now = b.now + 100_000
			after = other.run(t, &batch{ops: r.told(b.limits, lost.Add(away))}).limits[0].available
			if want := c.want + 10 - 4.75; math.Abs(after-want) > 1e-3 {
				t.Errorf("%.3f are left when another comes 100 ms later, want %.3f", after, want)
			}
		})
	}
}
