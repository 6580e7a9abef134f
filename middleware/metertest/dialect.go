package metertest

import "fmt"

// Dialect is a family of limit headers and error bodies.
type Dialect uint8

const (
	// Bare sends Retry-After and nothing else.
	Bare Dialect = iota
	// OpenAI sends x-ratelimit-* with Go durations, and {"error":{…}}.
	OpenAI
	// Anthropic sends anthropic-ratelimit-* with RFC 3339 instants, and
	// {"type":"error",…}.
	Anthropic
	// Gemini sends no header at all; the wait stands in a google.rpc.RetryInfo.
	Gemini
	// GitHub sends x-ratelimit-* with epoch seconds and refuses with 403.
	GitHub
	// IETF sends RateLimit and RateLimit-Policy of
	// draft-ietf-httpapi-ratelimit-headers-10 and a problem document.
	IETF
)

// String returns the name as it is written here.
func (d Dialect) String() string {
	names := [...]string{"Bare", "OpenAI", "Anthropic", "Gemini", "GitHub", "IETF"}
	if int(d) < len(names) {
		return names[d]
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}
