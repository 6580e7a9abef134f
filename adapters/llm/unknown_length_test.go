package llm_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/meteredhttp/meteredhttp/adapters/llm"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// A body of a length that nobody knows, as http.NewRequest leaves one that is not
// a reader it knows, is estimated like any other.
func TestABodyOfUnknownLengthIsEstimated(t *testing.T) {
	const chat = `{"model":"gpt-4o","messages":[{"role":"user","content":"How long is a piece of string, do you think?"}],"max_tokens":50}`
	var got []bucket.Cost
	for _, body := range []io.Reader{strings.NewReader(chat), io.MultiReader(strings.NewReader(chat))} {
		stack, err := middleware.New(middleware.Config{Pace: middleware.PaceConfig{Cost: func(req *http.Request) (bucket.Cost, error) {
			cost, err := llm.Cost(req)
			got = append(got, cost)
			return cost, err
		}}})
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: stack.Transport(metertest.New(metertest.Config{}).Transport())}
		resp, err := client.Post("https://api.openai.com/v1/chat/completions", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if len(got) != 2 || got[0] != got[1] || got[0].InputTokens < 10 || got[0].OutputTokens != 50 {
		t.Errorf("%+v", got)
	}
}
