package metertest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// What OpenAI, Anthropic and Gemini send: names, units and bodies as their
// documentation and their answers of 2026 have them.

func limitsOpenAI(h http.Header, v *verdict) {
	for _, r := range v.readings {
		h.Set("X-Ratelimit-Limit-"+r.unit, strconv.FormatInt(r.limit, 10))
		h.Set("X-Ratelimit-Remaining-"+r.unit, strconv.FormatInt(r.left, 10))
		h.Set("X-Ratelimit-Reset-"+r.unit, goDuration(r.full))
	}
}

// goDuration is d in the form "6m0s", rounded up to a whole millisecond.
func goDuration(d time.Duration) string {
	return (time.Duration(ceil(d, time.Millisecond)) * time.Millisecond).String()
}

func refusedOpenAI(v *verdict, short reading) content {
	name := map[string]string{"requests": "requests per min (RPM)", "tokens": "tokens per min (TPM)"}[short.unit]
	if short.wait == never {
		return jsonContent(429, `{"error":{"message":"Request too large on %s: Limit %d, Requested %d. The input or output tokens must be reduced in order to run successfully.","type":%q,"param":null,"code":"rate_limit_exceeded"}}`,
			name, short.limit, short.need, short.unit)
	}
	hint := ""
	if v.hint != NoHint {
		hint = " Please try again in " + goDuration(short.wait) + "."
	}
	return jsonContent(429, `{"error":{"message":"Rate limit reached on %s: Limit %d, Used %d, Requested %d.%s","type":%q,"param":null,"code":"rate_limit_exceeded"}}`,
		name, short.limit, max(short.limit-short.left, 0), short.need, hint, short.unit)
}

func failureOpenAI(status int, text string) content {
	kind, code := "server_error", "null"
	switch {
	case status == 429:
		kind, code = "requests", `"rate_limit_exceeded"`
	case status == 503 || status == 529:
		kind, code = "service_unavailable_error", `"server_is_overloaded"`
	case status < 500:
		kind = "invalid_request_error"
	}
	return jsonContent(status, `{"error":{"message":%q,"type":%q,"param":null,"code":%s}}`, text, kind, code)
}

func limitsAnthropic(h http.Header, v *verdict) {
	for _, r := range v.readings {
		left := r.left
		if r.unit == "tokens" {
			left = (left + 500) / 1000 * 1000
		}
		h.Set("Anthropic-Ratelimit-"+r.unit+"-Limit", strconv.FormatInt(r.limit, 10))
		h.Set("Anthropic-Ratelimit-"+r.unit+"-Remaining", strconv.FormatInt(left, 10))
		h.Set("Anthropic-Ratelimit-"+r.unit+"-Reset", v.now.Add(r.full).UTC().Truncate(time.Second).Format(time.RFC3339))
	}
}

func refusedAnthropic(short reading) content {
	return anthropicError(429, "rate_limit_error",
		fmt.Sprintf("This request would exceed your organization's rate limit of %d %s per minute.", short.limit, short.unit))
}

func failureAnthropic(status int, text string) content {
	kind := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
		404: "not_found_error", 409: "conflict_error", 413: "request_too_large", 429: "rate_limit_error",
		504: "timeout_error", 529: "overloaded_error",
	}[status]
	if kind == "" {
		kind = "api_error"
	}
	return anthropicError(status, kind, text)
}

func anthropicError(status int, kind, message string) content {
	c := jsonContent(status, `{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_metertest"}`, kind, message)
	c.set("Request-Id", "req_metertest")
	return c
}

func refusedGemini(v *verdict, short reading) content {
	span := "PerMinute"
	if short.per >= 24*time.Hour {
		span = "PerDay"
	}
	metric, id := "generate_content_requests", "GenerateRequests"+span+"PerProjectPerModel"
	if short.unit == "tokens" {
		metric, id = "generate_content_input_token_count", "GenerateContentInputTokensPerModel"+span
	}
	retry, text := "", ""
	if short.wait != never && v.hint != NoHint {
		retry = fmt.Sprintf(`,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"%ss"}`, exact(short.wait))
		text = " Please retry in " + exact(short.wait) + "s."
	}
	return jsonContent(429, `{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.%s","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/%s","quotaId":%q,"quotaValue":"%d"}]}%s]}}`,
		text, metric, id, short.limit, retry)
}

func failureGemini(status int, text string) content {
	name := map[int]string{
		400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
		429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED", 529: "UNAVAILABLE",
	}[status]
	if name == "" {
		name = "INTERNAL"
	}
	return jsonContent(status, `{"error":{"code":%d,"message":%q,"status":%q}}`, status, text, name)
}
