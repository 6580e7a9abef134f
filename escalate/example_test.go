package escalate_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/sony/gobreaker/v2"
)

// A primary that takes requests as they come, and two backups: another provider
// that speaks the same protocol, and a smaller model at the first one, whose
// limits are its own.
func ExampleNew() {
	router, err := escalate.New(escalate.Config{
		Primary: escalate.Route{Name: "gpt"},
		Backups: []escalate.Route{
			{
				Name:              "groq",
				URL:               "https://api.groq.com/openai",
				Model:             "llama-3.3-70b-versatile",
				Header:            http.Header{"Authorization": {"Bearer " + "gsk-..."}},
				RequireCredential: true,
			},
			{Name: "gpt-mini", Model: "gpt-mini"},
		},
		Settings: escalate.Settings{
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range router.Routes() {
		fmt.Println(router.Route(i).Name, "draws on", router.Quota(i))
	}

	_, err = escalate.New(escalate.Config{
		Primary: escalate.Route{Name: "a", Quota: "same"},
		Backups: []escalate.Route{{Name: "b", Quota: "same"}},
	})
	fmt.Println(err)
	// Output:
	// gpt draws on gpt
	// groq draws on https://api.groq.com:443/groq
	// gpt-mini draws on gpt-mini
	// escalate: routes "a" and "b" share the quota "same": the second would be the same model tried again (backup 1)
}

// What a layer does with a route: ask, send, tell.
func ExampleRouter_Allow() {
	router, err := escalate.New(escalate.Config{
		Primary: escalate.Route{Name: "primary"},
		Backups: []escalate.Route{{Name: "backup", URL: "https://backup.example"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	permit, err := router.Allow(0)
	fmt.Println("first call:", err)
	// The ladder gave up; the server asked for an hour.
	permit.Done(escalate.Outcome{Verdict: escalate.Escalated, RetryAfter: time.Hour, HasHint: true})

	_, err = router.Allow(0)
	var e *escalate.Error
	if errors.As(err, &e) {
		fmt.Println("second call:", e.Kind, errors.Is(err, gobreaker.ErrOpenState), e.RetryAfter.Round(time.Minute))
	}
	ok, _ := router.Admits(1)
	fmt.Println("backup admits:", ok)
	// Output:
	// first call: <nil>
	// second call: rate_limit true 1h0m0s
	// backup admits: true
}

func ExampleRouter_Rewrite() {
	router, err := escalate.New(escalate.Config{
		Primary: escalate.Route{Name: "primary"},
		Backups: []escalate.Route{{
			Name:   "backup",
			URL:    "https://backup.example/openai",
			Model:  "backup-model",
			Body:   map[string]any{"store": false},
			Header: http.Header{"Api-Key": {"backup's own"}},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	req, _ := http.NewRequest("POST", "https://primary.example/v1/chat?stream=1",
		strings.NewReader(`{"model": "primary-model", "messages": []}`))
	req.Header.Set("Authorization", "Bearer primary's secret")

	if err := router.Rewrite(1, req); err != nil { // a layer gives it a clone
		fmt.Println(err)
		return
	}
	body := make([]byte, req.ContentLength)
	req.Body.Read(body)
	fmt.Println(req.URL)
	fmt.Println(req.Header)
	fmt.Println(string(body))
	// Output:
	// https://backup.example/openai/v1/chat?stream=1
	// map[Api-Key:[backup's own]]
	// {"model": "backup-model", "messages": [],"store":false}
}
