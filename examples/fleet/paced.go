package main

import (
	"net/http"
	"strconv"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// paced is the client that this library is for. It is told the two limits, and
// what each call costs; everything else is the default.
//
// That includes the headroom of a Stack: it spends 90 % of the limits. The batch
// takes a tenth longer than it might, and in return nothing is refused for a
// reason that holds on a slow machine too. The provider counts a call when it
// arrives, the client when it leaves; so the provider's bucket, which cannot fill
// above its brim while the first calls are on their way, is behind the client's by
// what refills in that time. A tenth of 5 seconds is half a second's refill, and
// the gap shrinks from there on.
func paced(q quota, o middleware.Observer) (*middleware.Stack, error) {
	return middleware.New(middleware.Config{
		Bucket:   bucket.Config{Limits: q.limits()},
		Pace:     middleware.PaceConfig{Cost: costOf},
		Observer: o,
	})
}

// pacedWithBackup is paced between a primary and a backup, each with a quota q of
// its own.
//
// A dead primary says nothing about when to come back. By default the ladder then
// gives it three more tries, 5 seconds apart; a demonstration has less time, so
// here it is one more, after a second.
func pacedWithBackup(q quota, primary, backup string, o middleware.Observer) (*middleware.Stack, error) {
	router, err := escalate.New(escalate.Config{
		Primary: escalate.Route{Name: "primary", URL: primary},
		Backups: []escalate.Route{{Name: "backup", URL: backup}},
	})
	if err != nil {
		return nil, err
	}
	ladder := retryafter.DefaultPolicy()
	ladder.FallbackAfterRetries = 1
	ladder.DefaultDelay = time.Second
	ladder.Jitter = 200 * time.Millisecond
	return middleware.New(middleware.Config{
		Bucket:   bucket.Config{Limits: q.limits()},
		Pace:     middleware.PaceConfig{Cost: costOf},
		Ladder:   ladder,
		Router:   router,
		Observer: o,
	})
}

// costOf is what a call will be charged. The batch knows it beforehand and sends
// it along; a client of a model provider would count or estimate the prompt here.
func costOf(req *http.Request) (bucket.Cost, error) {
	tokens, err := strconv.ParseInt(req.Header.Get(metertest.TokensHeader), 10, 64)
	return bucket.Cost{Requests: 1, InputTokens: tokens}, err
}
