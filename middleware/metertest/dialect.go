package metertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Dialect is a family of limit headers and error bodies.
type Dialect uint8

const (
	// Bare sends Retry-After with a refusal and nothing else.
	Bare Dialect = iota
	// OpenAI sends x-ratelimit-{limit,remaining,reset}-{requests,tokens} with
	// every metered answer, resets as Go durations until full again, and errors as
	// {"error":{"message","type","param","code"}}.
	OpenAI
	// Anthropic sends anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}
	// with every metered answer, and errors as {"type":"error","error":{…}}. As
	// the original it rounds remaining tokens to thousands and cuts resets, RFC
	// 3339 instants, to whole seconds: they may have passed already.
	Anthropic
	// Gemini sends no header at all, not even Retry-After; the wait stands as a
	// google.rpc.RetryInfo in the error's details, and in its message.
	Gemini
	// GitHub sends x-ratelimit-{limit,remaining,used,reset,resource} for requests,
	// the reset in epoch seconds, and refuses with 403: without Retry-After for
	// want of requests, with it, as a secondary limit, for want of tokens.
	GitHub
	// IETF sends RateLimit and RateLimit-Policy of
	// draft-ietf-httpapi-ratelimit-headers-10 and refuses with a problem document.
	// Its t is the time until more is there.
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

// A reading is one meter after a decision.
type reading struct {
	unit        string // "requests" or "tokens"
	limit, left int64
	more, full  time.Duration
	per         time.Duration
	need        int64         // what the call asked for
	wait        time.Duration // until it fits; 0 if it did, never if it never will
}

// A verdict is a decision and all that an answer may say about it.
type verdict struct {
	admitted bool
	wait     time.Duration // the longest of the readings
	now      time.Time
	readings []reading
	tokens   int64
	hint     RetryAfter
}

// short returns the reading that the refusal is about: the longest wait.
func (v *verdict) short() reading {
	var worst reading
	for _, r := range v.readings {
		if r.wait > worst.wait {
			worst = r
		}
	}
	return worst
}

// content is an answer as a dialect writes it.
type content struct {
	status int
	header http.Header
	body   string
}

func (c *content) set(name, value string) { c.header.Set(name, value) }

func jsonContent(status int, format string, args ...any) content {
	return content{
		status: status,
		header: http.Header{"Content-Type": {"application/json"}},
		body:   fmt.Sprintf(format, args...),
	}
}

// jsonString is s as JSON writes it.
func jsonString(s string) string {
	b, _ := json.Marshal(s) // a string always has a form
	return string(b)
}

func textContent(status int, body string) content {
	return content{
		status: status,
		header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		body:   body,
	}
}

// served writes the short answer of an admitted call.
func (d Dialect) served(model string, tokens int64) content {
	name := jsonString(model)
	switch d {
	case OpenAI:
		return jsonContent(200, `{"id":"chatcmpl-metertest","object":"chat.completion","model":%s,"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":0,"total_tokens":%d}}`, name, tokens, tokens)
	case Anthropic:
		return jsonContent(200, `{"id":"msg_metertest","type":"message","role":"assistant","model":%s,"content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":0}}`, name, tokens)
	case Gemini:
		return jsonContent(200, `{"candidates":[{"content":{"role":"model","parts":[{"text":"ok"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":0,"totalTokenCount":%d},"modelVersion":%s}`, tokens, tokens, name)
	case GitHub, IETF:
		return jsonContent(200, `{"ok":true}`)
	}
	return textContent(200, "ok")
}

// refused writes the answer of a refused call, the hint included.
func (d Dialect) refused(v *verdict) content {
	short := v.short()
	var c content
	switch d {
	case OpenAI:
		c = refusedOpenAI(v, short)
	case Anthropic:
		c = refusedAnthropic(short)
	case Gemini:
		return refusedGemini(v, short)
	case GitHub:
		c = refusedGitHub(short)
		if short.unit == "requests" {
			return c
		}
	case IETF:
		c = refusedIETF(v)
	default:
		c = textContent(http.StatusTooManyRequests, "too many "+short.unit+"\n")
	}
	v.state(c.header)
	return c
}

// state writes the hint.
func (v *verdict) state(h http.Header) {
	if v.wait == never {
		return // waiting does not help, so nothing says how long
	}
	seconds := strconv.FormatInt(ceil(v.wait, time.Second), 10)
	switch v.hint {
	case Seconds:
		h.Set("Retry-After", seconds)
	case Millis:
		h.Set("Retry-After-Ms", strconv.FormatInt(ceil(v.wait, time.Millisecond), 10))
		h.Set("Retry-After", seconds)
	case Date:
		h.Set("Retry-After", ceilTime(v.now.Add(v.wait)).UTC().Format(http.TimeFormat))
	case Zero:
		h.Set("Retry-After", "0")
	}
}

// limits writes the limit headers of a metered answer, served or refused.
func (d Dialect) limits(h http.Header, v *verdict) {
	switch d {
	case OpenAI:
		limitsOpenAI(h, v)
	case Anthropic:
		limitsAnthropic(h, v)
	case GitHub:
		limitsGitHub(h, v)
	case IETF:
		limitsIETF(h, v)
	}
}

// failure writes the body that goes with a status when no meter is involved.
func (d Dialect) failure(status int) content {
	text := http.StatusText(status)
	if status == 529 {
		text = "Overloaded"
	}
	switch {
	case status < 400:
		c := d.served("", 0)
		c.status = status
		return c
	case d == OpenAI:
		return failureOpenAI(status, text)
	case d == Anthropic:
		return failureAnthropic(status, text)
	case d == Gemini:
		return failureGemini(status, text)
	case d == GitHub:
		return failureGitHub(status, text)
	case d == IETF:
		return failureIETF(status, text)
	}
	return textContent(status, text+"\n")
}

// ceil is d in units, rounded up.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

func ceilTime(t time.Time) time.Time {
	if cut := t.Truncate(time.Second); cut.Before(t) {
		return cut.Add(time.Second)
	}
	return t
}

// exact is d as a decimal number of seconds: 34.074824224.
func exact(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}
