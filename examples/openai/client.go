package main

import (
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/meteredhttp/meteredhttp/adapters/llm"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// limits are what the account has for a model, as its limits page says.
type limits struct{ requests, tokens int64 }

// newStack returns the layers that all clients of one account share. A budget is
// kept for each credential and model: llm's Charge names it, estimates what a call
// will cost, and settles for the usage that the answer states.
//
// AllMethods because every call of the SDK is a POST. One that was lost on the
// way, or answered with a 500, is sent again, as the SDK itself would have done;
// if the lost one was carried out after all, it is billed twice.
func newStack(l limits, reader retryafter.Reader) (*middleware.Stack, error) {
	tokens, err := llm.New(llm.Config{Reader: reader})
	if err != nil {
		return nil, err
	}
	return middleware.New(middleware.Config{
		Bucket: bucket.Config{Limits: []bucket.Limit{
			bucket.PerMinute(bucket.Requests, l.requests),
			bucket.PerMinute(bucket.Tokens, l.tokens),
		}},
		Pace:   middleware.PaceConfig{Charge: tokens.Charge},
		Retry:  middleware.RetryPolicy{AllMethods: true},
		Reader: reader,
	})
}

// newClient returns an SDK client over the stack. The SDK's retries are off: left
// on, each of them would be a whole new turn of the stack, three times the sends.
//
// A timeout (option.WithRequestTimeout, or the context's) covers the waits too. A
// wait that would pass it is not begun.
func newClient(stack *middleware.Stack, base http.RoundTripper, endpoint ...option.RequestOption) openai.Client {
	return openai.NewClient(append(endpoint,
		option.WithHTTPClient(&http.Client{Transport: stack.Transport(base)}),
		option.WithMaxRetries(0),
	)...)
}
