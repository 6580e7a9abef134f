package main

import (
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/meteredhttp/meteredhttp/adapters/llm"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// models are two that have limits of their own: a second try on the limits that
// have just refused would be none.
type models struct{ primary, backup string }

// limits are what the account has for each model, as its limits page says.
type limits struct{ requests, input, output int64 }

// newStack returns the layers that all clients of one account share, for calls of
// the primary model. When that is given up, the backup's name is put into the
// request's body, and all else stays; so it must take the same parameters. A
// backup at another provider would also set URL, and its own credential in Header.
//
// AllMethods because every call of the SDK is a POST. One that was lost on the
// way, or answered with a 500, is sent again, as the SDK itself would have done;
// if the lost one was carried out after all, it is billed twice.
func newStack(m models, l limits, reader retryafter.Reader) (*middleware.Stack, error) {
	tokens, err := llm.New(llm.Config{Reader: reader})
	if err != nil {
		return nil, err
	}
	router, err := escalate.New(escalate.Config{
		Primary: escalate.Route{Name: m.primary},
		Backups: []escalate.Route{{Name: m.backup, Model: m.backup}},
	})
	if err != nil {
		return nil, err
	}
	return middleware.New(middleware.Config{
		Bucket: bucket.Config{Limits: []bucket.Limit{
			bucket.PerMinute(bucket.Requests, l.requests),
			bucket.PerMinute(bucket.InputTokens, l.input),
			bucket.PerMinute(bucket.OutputTokens, l.output),
		}},
		Pace:   middleware.PaceConfig{Charge: tokens.Charge},
		Retry:  middleware.RetryPolicy{AllMethods: true},
		Router: router,
		Reader: reader,
	})
}

// newClient returns an SDK client over the stack. The SDK's retries are off: left
// on, each of them would be a whole new turn of the stack.
//
// FirstEvent is for streams that begin with a 200 and then say "overloaded": the
// layers see that as the refusal which it is.
//
// A timeout (option.WithRequestTimeout, or the context's) covers the waits too. A
// wait that would pass it is not begun. The SDK itself gives a call that is not
// streamed 10 minutes.
func newClient(stack *middleware.Stack, base http.RoundTripper, reader retryafter.Reader, endpoint ...option.RequestOption) anthropic.Client {
	base = middleware.Chain(base, llm.FirstEvent(llm.FirstEventConfig{Reader: reader}))
	return anthropic.NewClient(append(endpoint,
		option.WithHTTPClient(&http.Client{Transport: stack.Transport(base)}),
		option.WithMaxRetries(0),
	)...)
}
