package metertest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// Match selects requests; an empty field matches all. So one provider can be two:
// one script for each of its models, or for each of its hosts.
type Match struct {
	// Host is the host as in the Host header, with its port if that has one.
	Host string
	// Path is the beginning of the URL's path.
	Path string
	// Model is the string in the top-level field "model" of a JSON body or, where
	// there is none, the name behind "/models/" in the path.
	Model string
}

func (m Match) head(r *http.Request) bool {
	return (m.Host == "" || m.Host == hostOf(r)) && strings.HasPrefix(r.URL.Path, m.Path)
}

func hostOf(r *http.Request) string {
	if r.Host != "" {
		return r.Host
	}
	return r.URL.Host
}

func modelOf(r *http.Request, body []byte) string {
	if bytes.Contains(body, []byte(`"model"`)) {
		var b struct {
			Model string `json:"model"`
		}
		if json.Unmarshal(body, &b) == nil && b.Model != "" {
			return b.Model
		}
	}
	if _, rest, ok := strings.Cut(r.URL.Path, "/models/"); ok {
		if i := strings.IndexAny(rest, ":/"); i >= 0 {
			rest = rest[:i]
		}
		return rest
	}
	return ""
}

// rule is a script and whom it is for.
type rule struct {
	match   Match
	answers []Answer
	given   int // of answers[0]
}

func (s *rule) next() Answer {
	a := s.answers[0]
	s.given++
	if a.Times >= 0 && s.given >= max(a.Times, 1) {
		s.answers, s.given = s.answers[1:], 0
	}
	return a
}

// script is a list of rules; the first that matches and has an answer gives it.
// Empty rules are dropped. Not safe for concurrent use.
type script struct{ rules []*rule }

func (s *script) add(m Match, answers []Answer) {
	if len(answers) == 0 {
		return
	}
	for _, r := range s.rules {
		if r.match == m {
			r.answers = append(r.answers, answers...)
			return
		}
	}
	s.rules = append(s.rules, &rule{match: m, answers: append([]Answer(nil), answers...)})
}

func (s *script) pop(i int) Answer {
	a := s.rules[i].next()
	if len(s.rules[i].answers) == 0 {
		s.rules = append(s.rules[:i:i], s.rules[i+1:]...)
	}
	return a
}

// beforeBody gives the answer of a request whose body is not read yet, if that
// answer is due without reading it. peek returns the model, and whether it can be
// known without the body.
func (s *script) beforeBody(r *http.Request, peek func() (string, bool)) (Answer, bool) {
	for i, rule := range s.rules {
		if !rule.match.head(r) {
			continue
		}
		if rule.match.Model != "" {
			model, known := peek()
			if !known {
				return Answer{}, false
			}
			if model != rule.match.Model {
				continue
			}
		}
		if a := rule.answers[0]; a.Early || a.Fault == DialError || a.Fault == ResetBefore {
			return s.pop(i), true
		}
		return Answer{}, false
	}
	return Answer{}, false
}

// withBody gives the answer of a request that is here as a whole.
func (s *script) withBody(r *http.Request, model string) (Answer, bool) {
	for i, rule := range s.rules {
		if rule.match.head(r) && (rule.match.Model == "" || rule.match.Model == model) {
			return s.pop(i), true
		}
	}
	return Answer{}, false
}
