package retryafter

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"
)

func TestDatesAreReadAsTheStandardLibraryReadsThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for range 20000 {
		want := time.Unix(r.Int64N(253402300800+62135596800)-62135596800, 0).UTC()
		if got, ok := parseDate(want.Format(http.TimeFormat), now); !ok || !got.Equal(want) {
			t.Fatalf("%s read as %v, %v", want.Format(http.TimeFormat), got, ok)
		}
		if got, ok := parseStamp(want.Format(time.RFC3339)); !ok || !got.Equal(want) {
			t.Fatalf("%s read as %v, %v", want.Format(time.RFC3339), got, ok)
		}
	}
}
