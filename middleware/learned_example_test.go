package middleware_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// Nobody configures a limit: the answers state it. What was learned is saved at the end of a run, and
// given back at the start of the next.
func ExampleStack_Learned() {
	provider := metertest.New(metertest.Config{Dialect: metertest.OpenAI, Requests: 600})
	run := func(saved string) string {
		var learned map[string]bucket.Learned
		if err := json.Unmarshal([]byte(saved), &learned); err != nil {
			return err.Error()
		}
		stack, err := middleware.New(middleware.Config{Bucket: bucket.Config{Learned: learned}})
		if err != nil {
			return err.Error()
		}
		client := &http.Client{Transport: stack.Transport(provider.Transport())}
		resp, err := client.Post("https://api.example.com/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m"}`))
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		text, err := json.Marshal(stack.Learned())
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	fmt.Println(run(run(`{}`)))
	// Output:
	// {"https://api.example.com:443":{"limits":[{"unit":"requests","amount":600,"per":60000000000,"source":"stated"}]}}
}
