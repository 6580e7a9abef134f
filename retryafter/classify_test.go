package retryafter

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAnUnknownHostIsReadByStatusAndHeadersAlone(t *testing.T) {
	const quota = `{"error":{"code":"insufficient_quota","message":"try again in 5s"}}`
	for _, test := range []struct {
		status    int
		class     Class
		retryable bool
	}{
		{200, OK, false}, {204, OK, false}, {101, OK, false}, {304, OK, false}, {307, OK, false},
		{400, Other, false}, {401, Other, false}, {402, Other, false}, {403, Other, false}, {404, Other, false},
		{408, Other, true}, {409, Other, false}, {413, Other, false}, {425, Other, false}, {498, Other, false},
		{429, RateLimited, true},
		{500, ServerError, true}, {501, ServerError, false}, {502, ServerError, true}, {504, ServerError, true}, {505, ServerError, false},
		{503, Overloaded, true}, {529, Overloaded, true},
		{0, Other, false}, {99, Other, false}, {600, Other, false}, {-1, Other, false},
	} {
		sig := Classify("api.example.com", test.status, header(), []byte(quota), noon)
		if want := (Signal{Class: test.class, Retryable: test.retryable}); !reflect.DeepEqual(sig, want) {
			t.Errorf("%d: %+v, want %+v", test.status, sig, want)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		name, host string
		status     int
		h          http.Header
		body       string
		want       Signal
	}{
		{"a key told not to retry is not retried", "api.openai.com", 500, header("X-Should-Retry", "false"), ``, Signal{Class: ServerError}},
		{"a key told to retry is", "api.openai.com", 401, header("X-Should-Retry", "True"), ``, Signal{Class: Other, Retryable: true}},
		{"being told to retry does not fill a purse", "api.openai.com", 429, header("X-Should-Retry", "true"),
			`{"error":{"type":"insufficient_quota"}}`, Signal{Class: QuotaExhausted}},
		{"nor make a request smaller", "api.openai.com", 429, header("X-Should-Retry", "true"),
			`{"error":{"message":"Request too large for gpt-4o"}}`, Signal{Class: Other}},
		{"any other word is none", "api.openai.com", 500, header("X-Should-Retry", "maybe"), ``, Signal{Class: ServerError, Retryable: true}},
		{"a header's hint outranks the text's", "api.openai.com", 429, header("Retry-After", "7"),
			`{"error":{"message":"Please try again in 20s."}}`, Signal{Class: RateLimited, Retryable: true, RetryAfter: 7 * time.Second, HasHint: true}},
		{"a phrase without a duration is passed over", "api.openai.com", 429, header(),
			`{"error":{"message":"try again in a while; or try again in 1m30s"}}`, Signal{Class: RateLimited, Retryable: true, RetryAfter: 90 * time.Second, HasHint: true}},
		{"a text without a unit is no hint", "api.openai.com", 429, header(),
			`{"error":{"message":"try again in 20"}}`, Signal{Class: RateLimited, Retryable: true}},
		{"Azure's high demand is overload", "x.openai.azure.com", 429, header(),
			`{"error":{"code":"429","message":"The service is temporarily unable to process your request due to high demand."}}`, Signal{Class: Overloaded, Retryable: true}},
		{"Azure's gateway has a quota of its own", "x.azure-api.net", 403, header(),
			`{"statusCode":403,"message":"Out of call volume quota. Quota will be replenished in 01:10:00."}`, Signal{Class: QuotaExhausted}},
		{"a Google minute without a delay is a minute", "generativelanguage.googleapis.com", 429, header(),
			`{"error":{"details":[{"violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]}]}}`, Signal{Class: RateLimited, Retryable: true, Floor: time.Minute}},
		{"Google's long delay is a spent quota", "generativelanguage.googleapis.com", 429, header(),
			`{"error":{"details":[{"retryDelay":"301s"}]}}`, Signal{Class: QuotaExhausted, RetryAfter: 301 * time.Second, HasHint: true}},
		{"Google's limit of ten is not a limit of zero", "generativelanguage.googleapis.com", 429, header(),
			`{"error":{"message":"Quota exceeded, limit: 10, model: x"}}`, Signal{Class: RateLimited, Retryable: true}},
		{"Google's 499 is overload", "us-central1-aiplatform.googleapis.com", 499, header(), ``, Signal{Class: Overloaded, Retryable: true}},
		{"Google's classic daily limit is spent", "www.googleapis.com", 403, header(), `{"error":{"errors":[{"reason":"dailyLimitExceeded"}]}}`, Signal{Class: QuotaExhausted}},
		{"AWS throttles with 400 and a name", "dynamodb.us-east-1.amazonaws.com", 400, header(),
			`{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}`, Signal{Class: RateLimited, Retryable: true}},
		{"an AWS name may go on with a URL", "bedrock-runtime.eu-west-1.amazonaws.com", 429, header("x-amzn-ErrorType", "ModelNotReadyException:http://internal"),
			``, Signal{Class: Overloaded, Retryable: true}},
		{"Bedrock's day is spent", "bedrock-runtime.eu-west-1.amazonaws.com", 429, header("x-amzn-ErrorType", "ThrottlingException"),
			`{"message":"Too many tokens per day, please wait before trying again."}`, Signal{Class: QuotaExhausted}},
		{"Anthropic's bill is not paid", "api.anthropic.com", 402, header(), `{"error":{"type":"billing_error"}}`, Signal{Class: QuotaExhausted}},
		{"Mistral's capacity is not the caller's", "api.mistral.ai", 429, header(), `{"code":3505,"type":"service_tier_capacity_exceeded"}`, Signal{Class: Overloaded, Retryable: true}},
		{"Stripe's lock is no rate", "api.stripe.com", 429, header(), `{"error":{"code":"lock_timeout"}}`, Signal{Class: Other, Retryable: true}},
		{"HubSpot's ten seconds are its minimum", "api.hubapi.com", 429, header(), `{"policyName":"TEN_SECONDLY_ROLLING"}`, Signal{Class: RateLimited, Retryable: true, Floor: 10 * time.Second}},
		{"HubSpot's lock passes", "api.hubapi.com", 423, header(), ``, Signal{Class: Other, Retryable: true, Floor: 2 * time.Second}},
		{"Discord's body has the exact wait", "discord.com", 429, header(), `{"retry_after":64.57}`, Signal{Class: RateLimited, Retryable: true, RetryAfter: 64570 * time.Millisecond, HasHint: true}},
		{"OpenRouter's body has headers in it", "openrouter.ai", 429, header(),
			`{"error":{"code":429,"message":"Rate limit exceeded: free-models-per-min","metadata":{"headers":{"X-RateLimit-Limit":"20","X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1796040060000"}}}}`,
			Signal{Class: RateLimited, Retryable: true, Windows: []Window{{"requests", 20, 0, time.Minute, 0, false}}}},
		{"OpenRouter's free day is spent", "openrouter.ai", 429, header(), `{"error":{"code":429,"message":"Rate limit exceeded: free-models-per-day"}}`, Signal{Class: QuotaExhausted}},
		{"OpenRouter's budget says when it is back", "openrouter.ai", 403, header(), `{"error":{"code":403,"metadata":{"resets_at":"2026-11-30T13:00:00Z"}}}`,
			Signal{Class: QuotaExhausted, RetryAfter: time.Hour, HasHint: true}},
		{"an OpenRouter request too big for its budget never fits", "openrouter.ai", 402, header(), `{"error":{"metadata":{"error_type":"weight_exceeds_budget"}}}`, Signal{Class: Other}},
		{"Slack refuses with 200 as well", "slack.com", 200, header(), `{"ok":false,"error":"ratelimited"}`, Signal{Class: RateLimited, Retryable: true}},
		{"a stream's error has its own class", "api.openai.com", 200, header("Content-Type", "text/event-stream"),
			"event: error\ndata: {\"type\":\"error\",\ndata: \"code\":\"server_is_overloaded\"}\n", Signal{Class: Overloaded, Retryable: true}},
		{"a stream without an error is a success", "api.openai.com", 200, header("Content-Type", "text/event-stream"),
			"data: {\"choices\":[]}\n\ndata: [DONE]\n\n", Signal{}},
		{"Shopify's points come back", "x.myshopify.com", 200, header(),
			`{"errors":[{"extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":101,"throttleStatus":{"maximumAvailable":1000,"currentlyAvailable":51,"restoreRate":50}}}}`,
			Signal{Class: RateLimited, Retryable: true, Floor: time.Second, Windows: []Window{{"points", 1000, 51, 18980 * time.Millisecond, 20 * time.Second, true}}}},
		{"a body cut off is read as far as it goes", "api.openai.com", 429, header(), `{"error":{"type":"insufficient_quota","message":"You exce`, Signal{Class: QuotaExhausted}},
		{"a body cut off within a name is read as far as it goes", "api.openai.com", 429, header(), `{"error":{"type":"insufficient_quota","mess`, Signal{Class: QuotaExhausted}},
		{"a byte order mark is no obstacle", "api.openai.com", 429, header(), "\ufeff" + `{"error":{"type":"insufficient_quota"}}`, Signal{Class: QuotaExhausted}},
		{"HTML says nothing", "api.openai.com", 429, header(), `<html><body>insufficient_quota</body></html>`, Signal{Class: RateLimited, Retryable: true}},
		{"a text says nothing", "api.openai.com", 429, header(), `insufficient_quota`, Signal{Class: RateLimited, Retryable: true}},
		{"a code in the wrong place says nothing", "api.openai.com", 429, header(), `{"note":{"code":"insufficient_quota"}}`, Signal{Class: RateLimited, Retryable: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Classify(test.host, test.status, test.h, []byte(test.body), noon); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestABodyThatTheCallerAskedToBePackedIsUnpacked(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(`{"error":{"code":"insufficient_quota"}}`))
	z.Close()
	h := header("Content-Encoding", "gzip")
	if sig := Classify("api.openai.com", 429, h, packed.Bytes(), noon); sig.Class != QuotaExhausted {
		t.Errorf("%+v", sig)
	}
	if sig := Classify("api.openai.com", 429, h, packed.Bytes()[:8], noon); sig.Class != RateLimited {
		t.Errorf("cut off: %+v", sig)
	}
}

func TestFieldReport_B2_GitHubsLimitsHideBehind403(t *testing.T) {
	const page = `"documentation_url":"https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"`
	for _, test := range []struct {
		name  string
		h     http.Header
		body  string
		class Class
		wait  time.Duration
	}{
		{"by the message", header(), `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes."}`, RateLimited, time.Minute},
		{"by the page when the wording changes", header(), `{"message":"Slow down.",` + page + `}`, RateLimited, time.Minute},
		{"with a hint", header("Retry-After", "77"), `{"message":"You have exceeded a secondary rate limit."}`, RateLimited, 77 * time.Second},
		{"by the older name", header(), `{"message":"You have triggered an abuse detection mechanism."}`, RateLimited, time.Minute},
		{"by what remains", header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1796040750"), `{"message":"API rate limit exceeded"}`, RateLimited, 750 * time.Second},
		{"not without a sign", header("X-RateLimit-Remaining", "9"), `{"message":"Must have admin rights to Repository."}`, Other, absent},
	} {
		t.Run(test.name, func(t *testing.T) {
			sig := Classify("api.github.com", 403, test.h, []byte(test.body), noon)
			wait, ok := sig.Wait(nil)
			if !ok {
				wait = absent
			}
			if sig.Class != test.class || sig.Retryable != (test.class == RateLimited) || wait != test.wait {
				t.Errorf("%+v, wait %v; want %v and %v", sig, wait, test.class, test.wait)
			}
			action, climb := DefaultPolicy().Step(Refusal{Signal: sig, Total: 1, OnRoute: 1})
			if want := test.class == RateLimited; (action == Wait) != want || want && climb < time.Minute {
				t.Errorf("the ladder: %v %v", action, climb)
			}
		})
	}
}

func TestFieldReport_B2_APlain403ComesBackByteForByte(t *testing.T) {
	const text = "Must have admin rights to Repository."
	resp := answer("api.github.com", 403, header(), strings.NewReader(text))
	if sig := Read(resp, noon); sig.Class != Other || sig.Retryable {
		t.Errorf("%+v", sig)
	}
	mustRead(t, resp, text)
}

func TestFieldReport_F6_NoCreditIsNotWaitedOut(t *testing.T) {
	const text = `{"error":{"code":"insufficient_quota"}}`
	resp := answer("api.openai.com", 429, header(), strings.NewReader(text))
	sig := Read(resp, noon)
	if sig.Class != QuotaExhausted || sig.Retryable {
		t.Fatalf("%+v", sig)
	}
	mustRead(t, resp, text)
	p := DefaultPolicy()
	if action, _ := p.Step(Refusal{Signal: sig, Total: 1, OnRoute: 1}); action != Return {
		t.Errorf("without a backup: %v, want return", action)
	}
	if action, _ := p.Step(Refusal{Signal: sig, Total: 1, OnRoute: 1, Route: true}); action != Escalate {
		t.Errorf("with a backup: %v, want escalate", action)
	}
}
