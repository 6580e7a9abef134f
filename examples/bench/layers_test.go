package bench

import (
	"net/http"
	"testing"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// BenchmarkLayers builds the Stack up, layer by layer. Each line prints what it
// adds to the bare transport; a layer's own share is the difference to the line
// above.
func BenchmarkLayers(b *testing.B) {
	router, err := escalate.New(escalate.Config{Primary: escalate.Route{Name: "primary"}, Backups: []escalate.Route{backup}})
	if err != nil {
		b.Fatal(err)
	}
	pace := middleware.Pace(newLocal(b, twoLimits()), middleware.PaceConfig{
		Cost: func(*http.Request) (bucket.Cost, error) { return callCost, nil },
	})
	layers := []middleware.Middleware{
		middleware.Escalate(router),
		middleware.Retry(middleware.RetryPolicy{}),
		middleware.Ladder(retryafter.Policy{}),
		pace,
	}
	for _, answer := range []struct {
		name   string
		header func() http.Header
	}{{"plain", plainAnswer}, {"OpenAI", openAIAnswer}} {
		for i, name := range []string{"Pace", "and Ladder", "and Retry", "and Escalate"} {
			b.Run(answer.name+"/"+name, func(b *testing.B) {
				c := newCall(b)
				base := newMemory(answer.header())
				bare := c.via(b, "bare", base.RoundTrip)
				ours := c.via(b, "ours", middleware.Chain(base, layers[len(layers)-1-i:]...).RoundTrip)
				reportAdded(b, inTurns(b, stackBlock, bare, ours), bare, ours)
			})
		}
	}
}
