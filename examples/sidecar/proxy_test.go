package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

var small = []byte(`{"model":"big"}`)

func TestAgentsShareOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{Requests: 60, RequestBurst: 60})
		o := toProvider(t)
		o.rpm = 60
		s := started(t, o, p.Transport())
		var agents sync.WaitGroup
		for i := range 100 {
			agents.Go(func() {
				req := request(t, t.Context(), "/v1/messages", small)
				req.Header.Set("Authorization", "Bearer agent-"+string(rune('a'+i%26)))
				if a := s.do(t, req); a.status != 200 {
					t.Errorf("status %d: %s", a.status, a.body)
				}
			})
		}
		began := time.Now()
		agents.Wait()
		if p.Served() != 100 || p.Refused() != 0 {
			t.Errorf("%d served, %d refused by the provider", p.Served(), p.Refused())
		}
		// 54 at once, the rest at 54 a minute.
		if took := time.Since(began); took < 51*time.Second || took > 52*time.Second {
			t.Errorf("it took %v, want 46 times 1.11 s", took)
		}
	})
}

func TestALocalRefusalIsA429WithWholeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		o := toProvider(t)
		o.rpm, o.wait = 10, 3*time.Second // with headroom 9, one in 6.67 s
		s := started(t, o, p.Transport())
		for range 9 {
			s.do(t, request(t, t.Context(), "/", small))
		}
		time.Sleep(time.Second)
		began := time.Now()
		a := s.do(t, request(t, t.Context(), "/", small))
		if a.status != 429 || a.header.Get("Retry-After") != "6" { // 5.67 s
			t.Errorf("status %d, Retry-After %q; want 429 and 6", a.status, a.header.Get("Retry-After"))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v, want none", took)
		}
		var body struct {
			Type  string
			Error struct{ Type, Code, Message string }
		}
		if err := json.Unmarshal([]byte(a.body), &body); err != nil || a.header.Get("Content-Type") != "application/json" {
			t.Fatalf("the body is %q, %v", a.body, err)
		}
		if body.Type != "error" || body.Error.Type != "rate_limit_error" || body.Error.Code != "no_budget" || body.Error.Message == "" {
			t.Errorf("the body is %s", a.body)
		}
		if p.Hits() != 9 {
			t.Errorf("%d calls reached the provider, want 9", p.Hits())
		}
		time.Sleep(6 * time.Second)
		if a := s.do(t, request(t, t.Context(), "/", small)); a.status != 200 {
			t.Errorf("after the stated wait: %d", a.status)
		}
	})
}

func TestTheProvidersLastRefusalComesThroughAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		refusal := metertest.Reply(429, `{"error":{"message":"the provider's own"}}`, "Retry-After", "1", "X-Request-Id", "req_1")
		refusal.Times = -1
		p.Script(refusal)
		s := started(t, toProvider(t), p.Transport())
		a := s.do(t, request(t, t.Context(), "/", small))
		if a.status != 429 || a.body != refusal.Body || a.header.Get("X-Request-Id") != "req_1" || a.header.Get("Retry-After") != "1" {
			t.Errorf("got %d %v %q", a.status, a.header, a.body)
		}
		if p.Hits() != 6 {
			t.Errorf("%d sends, want 6", p.Hits())
		}
	})
}

func TestAHoldLongerThanAnyWaitRefusesTheNextCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		p.Script(metertest.Reply(429, "the provider's own", "Retry-After", "50", "X-Request-Id", "req_1", "Connection", "X-Hop", "X-Hop", "1"))
		o := toProvider(t)
		o.wait = 20 * time.Second
		s := started(t, o, p.Transport())
		a := s.do(t, request(t, t.Context(), "/", small))
		if a.status != 429 || a.body != "the provider's own" || a.header.Get("Retry-After") != "50" || a.header.Get("X-Request-Id") != "req_1" || a.header.Get("X-Hop") != "" {
			t.Errorf("got %d, %v %q; want what the provider said", a.status, a.header, a.body)
		}
		a = s.do(t, request(t, t.Context(), "/", small))
		if after := a.header.Get("Retry-After"); a.status != 429 || after != "50" && after != "51" || !strings.Contains(a.body, "no_budget") {
			t.Errorf("the next call: %d, Retry-After %q, %s", a.status, after, a.body)
		}
		if p.Hits() != 1 {
			t.Errorf("%d sends, want 1", p.Hits())
		}
	})
}

// Only part of a very long refusal is kept: half a document is worse than none.
func TestARefusalTooLongToBeKeptIsToldInTheSidecarsWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		p.Script(metertest.Reply(429, strings.Repeat("x", 1<<20), "Retry-After", "50"))
		o := toProvider(t)
		o.wait = 20 * time.Second
		s := started(t, o, p.Transport())
		if a := s.do(t, request(t, t.Context(), "/", small)); a.status != 429 || a.header.Get("Retry-After") == "" || !json.Valid([]byte(a.body)) {
			t.Errorf("got %d, %v, %d bytes", a.status, a.header, len(a.body))
		}
	})
}

func TestALostCallIsSentAgain(t *testing.T) {
	for name, lost := range map[string]metertest.Answer{
		"no answer": {Fault: metertest.ResetAfter}, "500": metertest.Reply(500, "x"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := metertest.New(metertest.Config{})
				p.Script(lost)
				s := started(t, toProvider(t), p.Transport())
				if a := s.do(t, request(t, t.Context(), "/", small)); a.status != 200 || p.Hits() != 2 {
					t.Errorf("status %d after %d sends, want 200 after 2", a.status, p.Hits())
				}
			})
		})
	}
}

func TestAStreamThatBeginsWithAnOverloadErrorGoesToTheBackup(t *testing.T) {
	const overloaded = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	for _, c := range []struct {
		name, host, provider string
		backup               bool
	}{
		{"a host that is known", "api.anthropic.com", "", true},
		{"one that -provider names", "gateway.example.com", "anthropic", true},
		{"one of a port that -provider names", "gateway.example.com:8443", "anthropic", true},
		{"no backup", "api.anthropic.com", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begins := metertest.Answer{Status: 200, Events: []metertest.Event{{Data: metertest.SSE("error", overloaded)}}, Times: -1}
				p, b := metertest.New(metertest.Config{Script: []metertest.Answer{begins}}), metertest.New(metertest.Config{})
				b.Script(metertest.Answer{Events: events(3, time.Second)})
				o := toProvider(t)
				o.upstream, o.provider = upstreamAt(t, "https://"+c.host), c.provider
				if c.backup {
					o.backup = upstreamAt(t, "https://backup.example.com")
				}
				base := metertest.Hosts{c.host: p, "backup.example.com": b}.Transport()
				a := started(t, o, base).do(t, request(t, t.Context(), "/v1/messages", small))
				if c.backup && (a.status != 200 || strings.Count(a.body, "delta") != 3 || b.Served() != 1) {
					t.Errorf("got %d %q, the backup served %d; want its stream", a.status, a.body, b.Served())
				}
				if !c.backup && (a.status != 529 || a.body != overloaded || p.Hits() < 2) {
					t.Errorf("got %d %q after %d sends, want the error as a refusal", a.status, a.body, p.Hits())
				}
			})
		})
	}
}

func TestHopByHopHeadersStayOnTheirHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		p.Script(metertest.Reply(200, "ok", "Keep-Alive", "timeout=5", "Connection", "X-Inner", "X-Inner", "1", "Proxy-Authenticate", "Basic", "X-Kept", "1"))
		s := started(t, toProvider(t), p.Transport())
		req := request(t, t.Context(), "/v1/x?a=1&b=2", small)
		for name, value := range map[string]string{
			"Connection": "X-Private, Keep-Alive", "X-Private": "1", "Keep-Alive": "timeout=5", "Te": "gzip", "Proxy-Authorization": "Basic x",
			"Proxy-Connection": "keep-alive", "X-Forwarded-For": "10.0.0.1", "X-Forwarded-Host": "agent", "Forwarded": "for=10.0.0.1",
			"Authorization": "Bearer agent", "X-Api-Key": "agent", "User-Agent": "agent/1", "X-Custom": "kept", "Accept-Encoding": "br",
		} {
			req.Header.Set(name, value)
		}
		a := s.do(t, req)
		e := p.Ledger()[0]
		for _, name := range []string{"Connection", "X-Private", "Keep-Alive", "Te", "Proxy-Authorization", "Proxy-Connection", "X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Accept-Encoding"} {
			if v, ok := e.Header[name]; ok {
				t.Errorf("the provider saw %s: %q", name, v)
			}
		}
		for name, want := range map[string]string{"Authorization": "Bearer agent", "X-Api-Key": "agent", "User-Agent": "agent/1", "X-Custom": "kept"} {
			if v := e.Header.Get(name); v != want {
				t.Errorf("the provider saw %s: %q, want %q", name, v, want)
			}
		}
		if e.Host != "api.example.com" || e.Path != "/v1/x" || e.Query != "a=1&b=2" || e.Method != "POST" || e.BodySHA256 != sha256.Sum256(small) {
			t.Errorf("the provider saw %s %s%s?%s", e.Method, e.Host, e.Path, e.Query)
		}
		for _, name := range []string{"Keep-Alive", "X-Inner", "Proxy-Authenticate"} {
			if v, ok := a.header[name]; ok {
				t.Errorf("the agent saw %s: %q", name, v)
			}
		}
		if a.header.Get("X-Kept") != "1" {
			t.Error("the agent did not see X-Kept")
		}
	})
}

func TestEventsReachTheAgentAsTheyAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		p.Script(metertest.Reply(429, "x", "Retry-After", "2"), metertest.Answer{Status: 200, Events: events(5, 3*time.Second)})
		s := started(t, toProvider(t), p.Transport())
		a := s.call(t.Context())
		if a.err != nil || len(a.arrived) != 5 {
			t.Fatalf("%d events, %v", len(a.arrived), a.err)
		}
		for i := 1; i < 5; i++ {
			if gap := a.arrived[i].Sub(a.arrived[i-1]); gap != 3*time.Second {
				t.Errorf("event %d came %v after the one before, want 3 s", i, gap)
			}
		}
	})
}

// Also where the answer's length is known, and it is no event stream.
func TestPiecesReachTheAgentAsTheyAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		p.Script(metertest.Answer{
			Status: 200, Header: http.Header{"Content-Type": {"application/json"}, "Content-Length": {"2"}},
			Events: []metertest.Event{{After: time.Second, Data: "4"}, {After: time.Second, Data: "2"}},
		})
		base := p.Transport()
		s := started(t, toProvider(t), roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err == nil {
				resp.ContentLength = 2
			}
			return resp, err
		}))
		began := time.Now()
		resp, err := s.client.Do(request(t, t.Context(), "/", small))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.ContentLength != 2 {
			t.Fatalf("the length is %d, want 2", resp.ContentLength)
		}
		piece := make([]byte, 16)
		for i, want := range []string{"4", "2"} {
			n, err := resp.Body.Read(piece)
			if err != nil && err != io.EOF {
				t.Fatal(err)
			}
			if got, at := string(piece[:n]), time.Since(began); got != want || at != time.Duration(i+1)*time.Second {
				t.Errorf("read %q after %v, want %q after %d s", got, at, want, i+1)
			}
		}
	})
}

func TestAStreamThatBreaksOffIsNoWholeOneForTheAgent(t *testing.T) {
	for name, broken := range map[string]metertest.Answer{
		"stream": {Status: 200, Events: events(4, time.Second), Fault: metertest.ResetDuringBody},
		"body":   {Status: 200, Body: strings.Repeat("x", 10_000), Fault: metertest.ResetDuringBody},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := metertest.New(metertest.Config{})
				p.Script(broken)
				s := started(t, toProvider(t), p.Transport())
				a := s.do(t, request(t, t.Context(), "/", small))
				if a.status != 200 || len(a.body) == 0 || a.err == nil {
					t.Errorf("got %d with %d bytes and %v, want a broken body", a.status, len(a.body), a.err)
				}
				if a := s.do(t, request(t, t.Context(), "/", small)); a.status != 200 {
					t.Errorf("the next call: %d", a.status)
				}
			})
		})
	}
}

func TestARequestIsSentAgainWhole(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   int
		known  bool // its length
		status int
		hits   int
	}{
		{"small", 1000, true, 200, 2},
		{"with pictures", 3 << 20, true, 200, 2},
		{"in chunks", 3 << 20, false, 200, 2},
		{"longer than is kept", maxKept + 1, true, 429, 1},
		{"longer than is kept, in chunks", maxKept + 1, false, 429, 1},
		{"none", 0, true, 200, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := metertest.New(metertest.Config{})
				p.Script(metertest.Reply(429, "x", "Retry-After", "1"))
				s := started(t, toProvider(t), p.Transport())
				body := bytes.Repeat([]byte("p"), c.size)
				req := request(t, t.Context(), "/", body)
				if !c.known {
					req.ContentLength, req.GetBody = -1, nil
				}
				if a := s.do(t, req); a.status != c.status {
					t.Errorf("status %d, want %d", a.status, c.status)
				}
				if p.Hits() != c.hits {
					t.Errorf("%d sends, want %d", p.Hits(), c.hits)
				}
				for _, e := range p.Ledger() {
					if e.BodySHA256 != sha256.Sum256(body) {
						t.Errorf("%d bytes arrived, or others than were sent", e.BodyLen)
					}
				}
			})
		})
	}
}

func TestAnAgentThatLeavesTheQueueGivesItsPlaceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		o := toProvider(t)
		o.rpm = 1
		s := started(t, o, p.Transport())
		s.do(t, request(t, t.Context(), "/", small))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if resp, err := s.client.Do(request(t, ctx, "/", small)); err == nil {
			resp.Body.Close()
			t.Error("served in vain")
		}
		began := time.Now()
		if a := s.do(t, request(t, t.Context(), "/", small)); a.status != 200 {
			t.Errorf("status %d", a.status)
		}
		if took := time.Since(began); took > 62*time.Second {
			t.Errorf("it waited %v, behind one that had left", took)
		}
		if p.Hits() != 2 {
			t.Errorf("%d calls reached the provider, want 2", p.Hits())
		}
	})
}

func TestTheBackupTakesWhatTheUpstreamRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := metertest.New(metertest.Config{}), metertest.New(metertest.Config{})
		base := metertest.Hosts{"api.example.com": p, "backup.example.com": b}.Transport()
		o := toProvider(t)
		o.upstream = upstreamAt(t, "https://api.example.com/openai")
		o.backup, o.backupModel = upstreamAt(t, "https://backup.example.com/other"), "small"
		o.backupHeader = http.Header{"X-Api-Key": {"of the backup"}}
		o.rpm, o.wait = 1, time.Second
		s := started(t, o, base)
		post := func() {
			req := request(t, t.Context(), "/v1/chat/completions", []byte(`{"model":"big","n":1}`))
			req.Header.Set("Authorization", "Bearer agent")
			if a := s.do(t, req); a.status != 200 {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		}
		post()
		post() // no budget: a local refusal goes to the backup too
		time.Sleep(2 * time.Minute)
		p.Script(metertest.Reply(429, "x", "Retry-After", "300"))
		post()
		post() // the upstream rests
		if p.Hits() != 2 || b.Served() != 3 {
			t.Fatalf("the upstream had %d calls, the backup served %d; want 2 and 3", p.Hits(), b.Served())
		}
		if e := p.Ledger()[0]; e.Path != "/openai/v1/chat/completions" || e.Model != "big" || e.Header.Get("Authorization") != "Bearer agent" {
			t.Errorf("the upstream saw %s for %s, %v", e.Path, e.Model, e.Header)
		}
		for _, e := range b.Ledger() {
			if e.Path != "/other/v1/chat/completions" || e.Model != "small" || e.Header.Get("Authorization") != "" || e.Header.Get("X-Api-Key") != "of the backup" {
				t.Errorf("the backup saw %s for %s, %v", e.Path, e.Model, e.Header)
			}
		}
	})
}

func TestWhenAllRestTheAgentLearnsTheSoonest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := metertest.New(metertest.Config{}), metertest.New(metertest.Config{})
		p.Script(metertest.Reply(429, "x", "Retry-After", "300"))
		b.Script(metertest.Reply(429, `{"error":{"code":"insufficient_quota"}}`, "Retry-After", "200"))
		o := toProvider(t)
		o.backup = upstreamAt(t, "https://backup.example.com")
		o.wait = 10 * time.Second
		s := started(t, o, metertest.Hosts{"api.example.com": p, "backup.example.com": b}.Transport())
		s.do(t, request(t, t.Context(), "/", small)) // opens the upstream's gate, and holds the backup
		a := s.do(t, request(t, t.Context(), "/", small))
		if a.status != 429 || a.header.Get("Retry-After") == "" {
			t.Errorf("got %d, %v, %s", a.status, a.header, a.body)
		}
	})
}

func TestTokensAreSettledForWhatTheAnswerStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{Respond: func(*http.Request, []byte) metertest.Answer {
			return metertest.Reply(200, `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"}}],"usage":{"prompt_tokens":60,"completion_tokens":40,"total_tokens":100}}`, "Content-Type", "application/json")
		}})
		o := toProvider(t)
		o.upstream, o.tpm = upstreamAt(t, "https://api.openai.com"), 10_000
		proxy, err := newProxy(o, p.Transport(), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		l, dial, _ := inMemory()
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- serve(ctx, l, proxy) }()
		transport := &http.Transport{DialContext: dial}
		s := &sidecar{client: &http.Client{Transport: transport}}
		s.do(t, request(t, t.Context(), "/v1/chat/completions", []byte(`{"model":"big","max_tokens":5000,"messages":[{"role":"user","content":"hello"}]}`)))
		level := proxy.stack.Stats().Keys[0].Budget.Levels
		if got := level[len(level)-1].Available; got < 8890 || got > 8910 {
			t.Errorf("%v tokens of 9,000 are left after a call of 100", got)
		}
		transport.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func TestStoppingLetsCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{})
		o := toProvider(t)
		o.rpm = 2
		s := started(t, o, p.Transport())
		p.Script(metertest.Answer{Status: 200, Events: events(10, time.Second)})
		var calls sync.WaitGroup
		var stream answer
		var queued [2]answer
		calls.Go(func() { stream = s.call(t.Context()) })
		synctest.Wait()
		for i := range queued { // for 7 s, and for half a minute more
			calls.Go(func() { queued[i] = s.call(t.Context()) })
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		began := time.Now()
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 25*time.Second {
			t.Errorf("it stopped after %v, with a call in the queue", took)
		}
		calls.Wait()
		if stream.err != nil || len(stream.arrived) != 10 {
			t.Errorf("the stream ended with %d of 10 events, %v", len(stream.arrived), stream.err)
		}
		for _, a := range queued {
			if a.err != nil || a.status != 200 {
				t.Errorf("a queued call: %s", a)
			}
		}
		if a := s.call(t.Context()); a.err == nil {
			t.Error("a call was taken after the end")
		}
	})
}

func TestWhatAProviderAsksForIsReadByTheNameOfTheProvider(t *testing.T) {
	for provider, read := range map[string]bool{"gemini": true, "": false} {
		synctest.Test(t, func(t *testing.T) {
			p := metertest.New(metertest.Config{})
			p.Script(metertest.Reply(429, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}]}}`))
			o := toProvider(t)
			o.provider = provider
			s := started(t, o, p.Transport())
			began := time.Now()
			a := s.do(t, request(t, t.Context(), "/", small))
			if took := time.Since(began); a.status != 200 || (took >= 7*time.Second) != read {
				t.Errorf("-provider %q: status %d after %v", provider, a.status, took)
			}
		})
	}
}
