package retryafter

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestEveryProviderOfTheTableIsValid(t *testing.T) {
	seen := map[string]string{}
	for _, list := range [][]Provider{modelProviders, cloudProviders, apiProviders} {
		if err := (Reader{Providers: list}).Validate(); err != nil {
			t.Error(err)
		}
		for _, p := range list {
			for _, key := range append([]string{"name " + p.Name}, p.Hosts...) {
				if seen[key] != "" {
					t.Errorf("%s: in the table of both %s and %s", key, seen[key], p.Name)
				}
				seen[key] = p.Name
			}
		}
	}
}

func TestHostsLeadToTheirProviders(t *testing.T) {
	for host, want := range map[string]string{
		"api.openai.com":                          "openai",
		"API.OpenAI.com:443":                      "openai",
		"api.openai.com.":                         "openai",
		"eu.api.openai.com":                       "openai",
		"example.openai.azure.com":                "azure-openai",
		"Example.openai.azure.com":                "azure-openai",
		"generativelanguage.googleapis.com":       "gemini",
		"us-central1-aiplatform.googleapis.com":   "vertex",
		"aiplatform.googleapis.com":               "vertex",
		"www.googleapis.com":                      "google",
		"bedrock-runtime.eu-west-1.amazonaws.com": "bedrock",
		"dynamodb.us-east-1.amazonaws.com":        "aws",
		"slack.com":                               "slack",
		"api.example.com":                         "generic",
		"openai.com":                              "generic",
		"notapi.openai.com":                       "generic",
		"api.openai.com.evil.example":             "generic",
		"localhost":                               "generic",
		"localhost:8080":                          "generic",
		"127.0.0.1:8080":                          "generic",
		"[::1]":                                   "generic",
		"[::1]:8080":                              "generic",
		"::1":                                     "generic",
		":80":                                     "generic",
		"":                                        "generic",
		".":                                       "generic",
		"bedrock-runtime.amazonaws.com":           "aws",
		"bedrock-runtime-fips.x.amazonaws.com:443": "bedrock",
	} {
		if got := (Reader{}).For(host).Name(); got != want {
			t.Errorf("%q is %s, want %s", host, got, want)
		}
		// The same through a Reader that declares something else.
		if got := (Reader{Hosts: map[string]string{"other.example": "openai"}}).For(host).Name(); got != want {
			t.Errorf("%q with other hosts declared is %s, want %s", host, got, want)
		}
	}
}

// acme is a provider as a user declares it.
var acme = Provider{
	Name:   "acme",
	Hosts:  []string{"api.acme.example", "*.acme.example"},
	Meters: []Meter{{Unit: "requests", Limit: "acme-quota", Remaining: "acme-left", Reset: "acme-back", Format: Milliseconds, Per: time.Hour}},
	Rules: []Rule{
		{Status: []int{420}, Class: RateLimited, Floor: 30 * time.Second},
		{Paths: []string{"fault.kind"}, Is: []string{"BROKE"}, Class: QuotaExhausted},
	},
	Hints: []Hint{{Path: "fault.wait", Format: Milliseconds}},
}

func TestAUserDeclaresAProviderOfHisOwn(t *testing.T) {
	r := Reader{Providers: []Provider{acme}}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	h := header("Acme-Quota", "10", "Acme-Left", "0", "Acme-Back", "1500")
	windows := []Window{{"requests", 10, 0, 1500 * time.Millisecond, time.Hour, false}}
	for _, test := range []struct {
		host   string
		status int
		body   string
		want   Signal
	}{
		{"api.acme.example", 420, ``, Signal{Class: RateLimited, Retryable: true, Floor: 30 * time.Second, Windows: windows}},
		{"eu.acme.example:8443", 400, `{"fault":{"kind":"broke"}}`, Signal{Class: QuotaExhausted, Windows: windows}},
		{"api.acme.example", 429, `{"fault":{"wait":250}}`, Signal{Class: RateLimited, Retryable: true, RetryAfter: 250 * time.Millisecond, HasHint: true, Windows: windows}},
		{"api.other.example", 420, ``, Signal{Class: Other}},
	} {
		if got := r.Classify(test.host, test.status, h, []byte(test.body), noon); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s %d: %+v, want %+v", test.host, test.status, got, test.want)
		}
	}
}

func TestAUsersProviderStandsInForTheTables(t *testing.T) {
	r := Reader{Providers: []Provider{{Name: "openai", Rules: []Rule{{Status: []int{429}, Class: Overloaded}}}}}
	if sig := r.Classify("api.openai.com", 429, header(), nil, noon); sig.Class != Overloaded {
		t.Errorf("%+v", sig)
	}
	if sig := (Reader{}).Classify("api.openai.com", 429, header(), nil, noon); sig.Class != RateLimited {
		t.Errorf("the zero Reader changed: %+v", sig)
	}
}

func TestAProxySpeaksAKnownProvider(t *testing.T) {
	r := Reader{
		Providers: []Provider{acme},
		Hosts: map[string]string{
			"proxy.example": "openai", "localhost:8080": "anthropic", "*.corp.example": "acme", "*.ai.corp.example": "groq", "api.openai.com": "generic",
		},
	}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"proxy.example": "openai", "Proxy.Example:8443": "openai", "localhost:8080": "anthropic", "localhost:8081": "generic",
		"x.corp.example": "acme", "x.ai.corp.example": "groq", "api.openai.com": "generic", "api.anthropic.com": "anthropic",
	} {
		if got := r.For(host).Name(); got != want {
			t.Errorf("%s is %s, want %s", host, got, want)
		}
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	one := func(p Provider) Reader {
		if p.Name == "" {
			p.Name = "p"
		}
		return Reader{Providers: []Provider{p}}
	}
	for want, r := range map[string]Reader{
		"Name must not be empty":            {Providers: []Provider{{}}},
		"two providers are named":           {Providers: []Provider{acme, acme}},
		"is not a known provider":           {Hosts: map[string]string{"a.example": "nobody"}},
		`Reader.Hosts: "https://a.example"`: {Hosts: map[string]string{"https://a.example": "openai"}},
		`"a.example:80" is not a host`:      one(Provider{Hosts: []string{"a.example:80"}}),
		`"" is not a host`:                  one(Provider{Hosts: []string{""}}),
		"ShouldRetry":                       one(Provider{ShouldRetry: "X-Retry: "}),
		"has no Unit":                       one(Provider{Meters: []Meter{{Limit: "x"}}}),
		"reads no header":                   one(Provider{Meters: []Meter{{Unit: "x"}}}),
		"Remaining, Limit, UsedOf, Reset":   one(Provider{Meters: []Meter{{Unit: "x", Interval: "y"}}}),
		`"X Left", which is not a header's`: one(Provider{Meters: []Meter{{Unit: "x", Remaining: "X Left"}}}),
		"beside UsedOf":                     one(Provider{Meters: []Meter{{Unit: "x", UsedOf: "y", Limit: "z"}}}),
		"UsedOfKey without":                 one(Provider{Meters: []Meter{{Unit: "x", Limit: "z", UsedOfKey: "y"}}}),
		"Used without Limit or Remaining":   one(Provider{Meters: []Meter{{Unit: "x", Used: "y", Reset: "z"}}}),
		"Present beside amounts":            one(Provider{Meters: []Meter{{Unit: "x", Present: "y", Remaining: "z"}}}),
		"a Format without Reset":            one(Provider{Meters: []Meter{{Unit: "x", Limit: "y", Format: Seconds}}}),
		"without Interval":                  one(Provider{Meters: []Meter{{Unit: "x", Limit: "y", FillRate: "z"}}}),
		"FillRate without a limit":          one(Provider{Meters: []Meter{{Unit: "x", Remaining: "y", Interval: "a", FillRate: "z"}}}),
		"adds nothing to meter 0":           one(Provider{Meters: []Meter{{Unit: "x", Limit: "y"}, {Unit: "x", Present: "z"}}}),
		"negative length":                   one(Provider{Meters: []Meter{{Unit: "x", Limit: "y", Per: -1}}}),
		"unknown Format":                    one(Provider{Meters: []Meter{{Unit: "x", Limit: "y", Format: 99}}}),
		"more than 60 meters":               one(Provider{Meters: make([]Meter, 61)}),
		"class other than OK":               one(Provider{Rules: []Rule{{Status: []int{429}}}}),
		"unknown Retry":                     one(Provider{Rules: []Rule{{Class: Other, Retry: 9}}}),
		"negative duration":                 one(Provider{Rules: []Rule{{Class: Other, Floor: -1}}}),
		"write two rules":                   one(Provider{Rules: []Rule{{Class: Other, Header: "x", Paths: []string{"y"}}}}),
		"where to look":                     one(Provider{Rules: []Rule{{Class: Other, Is: []string{"y"}}}}),
		"is not a status":                   one(Provider{Rules: []Rule{{Class: Other, Status: []int{7}}}}),
		"200, which is no error":            one(Provider{Rules: []Rule{{Class: Other, Status: []int{200}}}}),
		`rule 0 looks at "x:"`:              one(Provider{Rules: []Rule{{Class: Other, Header: "x:"}}}),
		"hint 0 has an unknown":             one(Provider{Hints: []Hint{{Path: "x", Format: 99}}}),
		"hint 0 does not say where":         one(Provider{Hints: []Hint{{Format: Seconds}}}),
		"hint 1 looks at a header and":      one(Provider{Hints: []Hint{{Path: "x"}, {Path: "x", Header: "y"}}}),
		`hint 0 looks at "x y"`:             one(Provider{Hints: []Hint{{Header: "x y"}}}),
		"an empty phrase":                   one(Provider{Hints: []Hint{{Path: "x", After: []string{""}}}}),
		"a Format beside After":             one(Provider{Hints: []Hint{{Path: "x", After: []string{"in "}, Format: Seconds}}}),
		"numbers in Retry-After":            one(Provider{Hints: []Hint{{Header: "retry-after", Format: Milliseconds}}}),
		`code "x"`:                          one(Provider{Embedded: []string{"x"}, Codes: map[string]int{"x": 7}}),
		"Embedded, which is empty":          one(Provider{Codes: map[string]int{"x": 429}}),
	} {
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "retryafter: ") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (Reader{}).Validate(); err != nil {
		t.Errorf("the zero Reader: %v", err)
	}
}
