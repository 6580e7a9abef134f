package metertest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What GitHub and the IETF draft send.

func limitsGitHub(h http.Header, v *verdict) {
	for _, r := range v.readings {
		if r.unit != "requests" {
			continue
		}
		h.Set("X-Ratelimit-Limit", strconv.FormatInt(r.limit, 10))
		h.Set("X-Ratelimit-Remaining", strconv.FormatInt(r.left, 10))
		h.Set("X-Ratelimit-Used", strconv.FormatInt(max(r.limit-r.left, 0), 10))
		h.Set("X-Ratelimit-Reset", strconv.FormatInt(ceilTime(v.now.Add(r.full)).Unix(), 10))
		h.Set("X-Ratelimit-Resource", "core")
	}
}

func refusedGitHub(short reading) content {
	if short.unit == "requests" {
		return githubError(403, "API rate limit exceeded for user ID 1.", "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api")
	}
	return githubError(403, "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
		"https://docs.github.com/free-pro-team@latest/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits")
}

func failureGitHub(status int, text string) content {
	return githubError(status, text, "https://docs.github.com/rest")
}

func githubError(status int, message, doc string) content {
	c := jsonContent(status, `{"message":%q,"documentation_url":%q,"status":"%d"}`, message, doc, status)
	c.set("Content-Type", "application/json; charset=utf-8")
	return c
}

// limitsIETF writes structured-field lists, one item a meter.
func limitsIETF(h http.Header, v *verdict) {
	var limits, policies []string
	for _, r := range v.readings {
		item := fmt.Sprintf("%q;r=%d", r.unit, r.left)
		if r.more > 0 {
			item += fmt.Sprintf(";t=%d", ceil(r.more, time.Second))
		}
		limits = append(limits, item)
		policy := fmt.Sprintf("%q;q=%d;w=%d", r.unit, r.limit, max(ceil(r.per, time.Second), 1))
		if r.unit != "requests" { // the unit that the draft takes for granted
			policy += fmt.Sprintf(";qu=%q", r.unit)
		}
		policies = append(policies, policy)
	}
	if len(limits) > 0 {
		h.Set("Ratelimit", strings.Join(limits, ", "))
		h.Set("Ratelimit-Policy", strings.Join(policies, ", "))
	}
}

func refusedIETF(v *verdict) content {
	var names []string
	for _, r := range v.readings {
		if r.wait > 0 {
			names = append(names, strconv.Quote(r.unit))
		}
	}
	return problem(429, "quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded", names)
}

func failureIETF(status int, text string) content {
	if status == 503 || status == 529 {
		return problem(status, "temporary-reduced-capacity", "Request cannot be satisfied due to temporary server capacity constraints", nil)
	}
	return jsonProblem(jsonContent(status, `{"type":"about:blank","title":%q,"status":%d}`, text, status))
}

func problem(status int, kind, title string, violated []string) content {
	return jsonProblem(jsonContent(status, `{"type":"https://iana.org/assignments/http-problem-types#%s","title":%q,"status":%d,"violated-policies":[%s]}`,
		kind, title, status, strings.Join(violated, ",")))
}

func jsonProblem(c content) content {
	c.set("Content-Type", "application/problem+json")
	return c
}
