package bucket_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
)

func TestValidateNamesWhatIsBroken(t *testing.T) {
	for _, tt := range []struct {
		c    bucket.Config
		want string // in the error; empty for none
	}{
		{bucket.Config{}, ""},
		{bucket.Config{MaxWait: -1, Headroom: 0.9, MaxQueue: 1, MaxInFlight: 1, MaxKeys: 1}, ""},
		{bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, 0)}}, ""},
		{bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Tokens, -1)}}, "negative Amount -1"},
		{bucket.Config{Limits: []bucket.Limit{{Amount: 1}}}, "Per must be positive"},
		{bucket.Config{Limits: []bucket.Limit{{Amount: 1, Per: -time.Second}}}, "Per must be positive"},
		{bucket.Config{Limits: []bucket.Limit{{Amount: 1, Per: time.Second, Burst: -1}}}, "negative Burst"},
		{bucket.Config{Limits: []bucket.Limit{{Amount: 1, Per: time.Second, Burst: 1, Shape: bucket.Window}}}, "a Window has no Burst"},
		{bucket.Config{Limits: []bucket.Limit{{Per: time.Second, Burst: 1}}}, "without an Amount"},
		{bucket.Config{Limits: []bucket.Limit{{Amount: 1, Per: time.Second, Unit: 9}}}, "unknown unit 9"},
		{bucket.Config{Limits: []bucket.Limit{{Amount: 1, Per: time.Second, Shape: 9}}}, "unknown shape 9"},
		{bucket.Config{Limits: make([]bucket.Limit, 65)}, "65 limits"},
		{bucket.Config{Headroom: -0.1}, "Headroom"},
		{bucket.Config{Headroom: 1.1}, "Headroom"},
		{bucket.Config{Headroom: math.NaN()}, "Headroom"},
		{bucket.Config{MaxQueue: -1}, "MaxQueue"},
		{bucket.Config{MaxInFlight: -1}, "MaxInFlight"},
		{bucket.Config{MaxKeys: -1}, "MaxKeys"},
		{bucket.Config{Overdue: 9}, "OverduePolicy"},
		{bucket.Config{Oversize: 9}, "OversizePolicy"},
	} {
		_, err := bucket.New(tt.c)
		switch {
		case err == nil && tt.want != "", err != nil && tt.want == "":
			t.Errorf("%+v: %v", tt.c, err)
		case err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "bucket: ")):
			t.Errorf("%v does not say %q", err, tt.want)
		}
	}
}

func TestCostOf(t *testing.T) {
	c := bucket.Cost{Requests: 1, InputTokens: 20, OutputTokens: 300}
	for unit, want := range map[bucket.Unit]int64{
		bucket.Requests: 1, bucket.Tokens: 320, bucket.InputTokens: 20, bucket.OutputTokens: 300, 9: 0,
	} {
		if got := c.Of(unit); got != want {
			t.Errorf("%v: %d, want %d", unit, got, want)
		}
	}
	huge := bucket.Cost{InputTokens: math.MaxInt64, OutputTokens: 1}
	if got := huge.Of(bucket.Tokens); got != math.MaxInt64 {
		t.Errorf("%d", got)
	}
	if got := (bucket.Cost{InputTokens: 5, OutputTokens: -3}).Of(bucket.Tokens); got != 2 {
		t.Errorf("%d", got)
	}
}

func TestWorstWindow(t *testing.T) {
	for _, tt := range []struct {
		l    bucket.Limit
		d    time.Duration
		want int64
	}{
		{bucket.PerMinute(bucket.Requests, 60), 0, 60},
		{bucket.PerMinute(bucket.Requests, 60), time.Minute, 120},
		{bucket.PerMinute(bucket.Requests, 60), 1999 * time.Millisecond, 61},
		{bucket.PerMinute(bucket.Requests, 60), -time.Minute, 60},
		{bucket.Limit{Amount: 60, Per: time.Minute, Burst: 1}, time.Hour, 3601},
		{bucket.Limit{Amount: math.MaxInt64, Per: 1}, math.MaxInt64, math.MaxInt64},
		{bucket.Limit{Amount: 10, Per: time.Second, Shape: bucket.Window}, 0, 10},
		{bucket.Limit{Amount: 10, Per: time.Second, Shape: bucket.Window}, time.Second, 10},
		{bucket.Limit{Amount: 10, Per: time.Second, Shape: bucket.Window}, time.Second + 1, 20},
		{bucket.Limit{Amount: math.MaxInt64, Per: 1, Shape: bucket.Window}, 3, math.MaxInt64},
		{bucket.PerMinute(bucket.Requests, 0), time.Minute, math.MaxInt64},
	} {
		if got := tt.l.WorstWindow(tt.d); got != tt.want {
			t.Errorf("%+v in %v: %d, want %d", tt.l, tt.d, got, tt.want)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		bucket.Requests.String(): "requests", bucket.Tokens.String(): "tokens",
		bucket.InputTokens.String(): "input_tokens", bucket.OutputTokens.String(): "output_tokens",
		bucket.Unit(9).String(): "Unit(9)", bucket.TokenBucket.String(): "token_bucket", bucket.Window.String(): "window",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
