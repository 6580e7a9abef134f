package metertest

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func statuses(t *testing.T, rt http.RoundTripper, url string, n int) []int {
	t.Helper()
	var got []int
	for range n {
		req, _ := http.NewRequest("POST", url, strings.NewReader(`{"model":"big"}`))
		resp, err := rt.RoundTrip(req)
		if err != nil {
			got = append(got, 0)
			continue
		}
		resp.Body.Close()
		got = append(got, resp.StatusCode)
	}
	return got
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestInvalidConfigsAnswerWithTheReason(t *testing.T) {
	for _, c := range []Config{
		{Requests: -1}, {Tokens: -1}, {RequestBurst: -1}, {Per: -1}, {Offset: -1}, {Up: -1}, {Jitter: 2}, {Jitter: -0.1},
		{MaxConns: -1}, {Neighbour: Neighbour{Every: -1}}, {Meter: 3}, {Dialect: 6}, {RetryAfter: 5},
		{Script: []Answer{{Status: 42}}}, {Script: []Answer{{Delay: -1}}}, {Script: []Answer{{Fault: 99}}},
		{Script: []Answer{{Early: true}}}, {Script: []Answer{{Endless: true}}}, {Script: []Answer{{Length: -2}}},
		{Script: []Answer{{Events: []Event{{After: -1}}}}},
	} {
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), "metertest: ") {
			t.Errorf("%+v: Validate returned %v", c, err)
			continue
		}
		resp, body := get(t, New(c).Transport(), "")
		if resp.StatusCode != 500 || !strings.Contains(body, err.Error()) {
			t.Errorf("%+v: %d %s, want 500 and %v", c, resp.StatusCode, body, err)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero Config: %v", err)
	}
	p := New(Config{})
	p.Script(Answer{Status: 1})
	if resp, body := get(t, p.Transport(), ""); resp.StatusCode != 500 || !strings.Contains(body, "Status 1") {
		t.Errorf("an invalid Answer: %d %s", resp.StatusCode, body)
	}
}

func TestScriptsComeFirstAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Requests: 1, Script: []Answer{Reply(429, "x", "Retry-After", "2"), Reply(200, "ok")}})
		rt := p.Transport()
		resp, body := get(t, rt, "")
		if resp.StatusCode != 429 || body != "x" || resp.Header.Get("Retry-After") != "2" {
			t.Errorf("first %d %q %v", resp.StatusCode, body, resp.Header)
		}
		if resp, body := get(t, rt, ""); resp.StatusCode != 200 || body != "ok" {
			t.Errorf("second %d %q", resp.StatusCode, body)
		}
		// The script has left the meter alone; now it decides.
		if got := statuses(t, rt, "https://a.test/", 2); !equal(got, []int{200, 429}) {
			t.Errorf("then %v", got)
		}
		p.Script(Answer{Status: 503, Times: 2}, Answer{Status: 500, Times: -1})
		if got := statuses(t, rt, "https://a.test/", 5); !equal(got, []int{503, 503, 500, 500, 500}) {
			t.Errorf("repeated answers: %v", got)
		}
		p.ClearScript()
		if got := statuses(t, rt, "https://a.test/", 1); !equal(got, []int{429}) {
			t.Errorf("without a script: %v", got)
		}
		time.Sleep(time.Minute)
		p.Script(Answer{Body: "metered"}, Answer{Body: "metered"})
		if resp, body := get(t, rt, ""); resp.StatusCode != 200 || body != "metered" {
			t.Errorf("a metered scripted answer: %d %q", resp.StatusCode, body)
		}
		if resp, body := get(t, rt, ""); resp.StatusCode != 429 || body == "metered" {
			t.Errorf("a metered scripted answer over the limit: %d %q", resp.StatusCode, body)
		}
	})
}

func TestScriptsSelectByHostPathAndModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		rt := p.Transport()
		p.ScriptFor(Match{Host: "b.test"}, Reply(501, ""))
		p.ScriptFor(Match{Path: "/v2/"}, Reply(502, ""))
		p.ScriptFor(Match{Model: "small"}, Reply(503, ""))
		p.ScriptFor(Match{Model: "big"}, Reply(504, ""), Answer{Fault: DialError})
		for _, c := range []struct {
			url  string
			want []int
		}{
			{"https://b.test/", []int{501}},
			{"https://a.test/v2/x", []int{502}},
			{"https://a.test/", []int{504, 0, 200}},
		} {
			if got := statuses(t, rt, c.url, len(c.want)); !equal(got, c.want) {
				t.Errorf("%s: %v, want %v", c.url, got, c.want)
			}
		}
		req, _ := http.NewRequest("GET", "https://a.test/v1beta/models/small:generateContent", nil)
		if resp, err := rt.RoundTrip(req); err != nil || resp.StatusCode != 503 {
			t.Errorf("a model in the path: %v %v", resp, err)
		}
	})
}

func TestLatencyIsSplitAndTheDecisionFallsAtArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Requests: 1, Up: 10 * time.Millisecond, Latency: 250 * time.Millisecond, RefusedLatency: 20 * time.Millisecond})
		rt := p.Transport()
		start := time.Now()
		get(t, rt, "")
		if took := time.Since(start); took != 250*time.Millisecond {
			t.Errorf("served after %v", took)
		}
		second := time.Now()
		get(t, rt, "")
		if took := time.Since(second); took != 20*time.Millisecond {
			t.Errorf("refused after %v", took)
		}
		l := p.Ledger()
		if at := l[0].At.Sub(start); at != 10*time.Millisecond {
			t.Errorf("the first was decided after %v", at)
		}
		if at := l[1].At.Sub(second); at != 10*time.Millisecond {
			t.Errorf("the second was decided after %v", at)
		}
		p.Script(Answer{Status: 200, Delay: time.Second})
		second = time.Now()
		get(t, rt, "")
		if took := time.Since(second); took != 1250*time.Millisecond {
			t.Errorf("delayed: after %v", took)
		}
		time.Sleep(time.Minute)
		p.Script(Answer{Delay: 2 * time.Second})
		second = time.Now()
		get(t, rt, "")
		if took := time.Since(second); took != 2250*time.Millisecond {
			t.Errorf("metered and delayed: after %v", took)
		}
	})
}

func TestJitterIsBoundedAndRepeatsWithItsSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(seed uint64) (took []time.Duration) {
			rt := New(Config{Latency: 100 * time.Millisecond, Jitter: 0.5, Seed: seed}).Transport()
			for range 50 {
				start := time.Now()
				get(t, rt, "")
				took = append(took, time.Since(start))
			}
			return took
		}
		a, b, c := run(1), run(1), run(2)
		same := 0
		for i := range a {
			if a[i] < 50*time.Millisecond || a[i] > 150*time.Millisecond {
				t.Errorf("%v is out of bounds", a[i])
			}
			if a[i] != b[i] {
				t.Errorf("seed 1 gave %v and %v", a[i], b[i])
			}
			if a[i] == c[i] {
				same++
			}
		}
		if same > 5 {
			t.Errorf("seeds 1 and 2 agree %d times of 50", same)
		}
	})
}

func TestARefusedCallMayCostARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Requests: 60, RequestBurst: 2, Tokens: 10, RefusedCostsRequest: true})
		rt := p.Transport()
		get(t, rt, "11") // refused for its tokens: takes one of two
		get(t, rt, "1")  // takes the other
		for range 5 {
			get(t, rt, "1") // nothing there to take
		}
		// Never below zero: one second later there is one again.
		time.Sleep(time.Second)
		if resp, _ := get(t, rt, "1"); resp.StatusCode != 200 {
			t.Errorf("a second later: %d", resp.StatusCode)
		}
		time.Sleep(900 * time.Millisecond)
		get(t, rt, "1") // takes nine tenths
		time.Sleep(900 * time.Millisecond)
		if resp, _ := get(t, rt, "1"); resp.StatusCode != 429 {
			t.Errorf("what a refused call took was there: %d", resp.StatusCode)
		}
	})
}

func TestANeighbourTakesHisShare(t *testing.T) {
	for _, poisson := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := New(Config{Requests: 60, RequestBurst: 10, Tokens: 6000, Neighbour: Neighbour{
				Every: 2 * time.Second, Tokens: 100, Poisson: poisson, From: 10 * time.Second, Until: 610 * time.Second,
			}})
			rt := p.Transport()
			get(t, rt, "")
			time.Sleep(10 * time.Second)
			if s, r := p.Neighbour(); s+r != 0 {
				t.Errorf("he called %d times before he came", s+r)
			}
			served := 0
			for range 1200 { // twice a second, of which half must be refused
				resp, _ := get(t, rt, "")
				if resp.StatusCode == 200 {
					served++
				}
				time.Sleep(500 * time.Millisecond)
			}
			s, r := p.Neighbour()
			if s+r < 250 || s+r > 350 || !poisson && s+r != 299 {
				t.Errorf("poisson %v: he called %d times in 600 s, every 2 s", poisson, s+r)
			}
			// The regular one comes when something has just come back; a random one
			// finds what a greedy client leaves him, which is next to nothing.
			if !poisson && s < 200 {
				t.Errorf("he was served %d times and refused %d times", s, r)
			}
			if all := served + s; all < 600 || all > 611 {
				t.Errorf("poisson %v: %d served of both in 600 s at 60 a minute", poisson, all)
			}
			time.Sleep(time.Hour)
			if s2, r2 := p.Neighbour(); s2+r2 != s+r && s2+r2 != s+r+1 {
				t.Errorf("he went on calling after he had left: %d, %d", s+r, s2+r2)
			}
		})
	}
}

func TestLimitsChangeInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Requests: 600, RequestBurst: 10})
		rt := p.Transport()
		p.SetLimits(300, 0)
		p.SetBursts(5, 0)
		if got := statuses(t, rt, "https://a.test/", 7); !equal(got, []int{200, 200, 200, 200, 200, 429, 429}) {
			t.Errorf("halved: %v", got)
		}
		time.Sleep(200 * time.Millisecond)
		if got := statuses(t, rt, "https://a.test/", 2); !equal(got, []int{200, 429}) {
			t.Errorf("halved, 200 ms later: %v", got)
		}
		p.SetLimits(0, 0)
		if got := statuses(t, rt, "https://a.test/", 3); !equal(got, []int{200, 200, 200}) {
			t.Errorf("unmetered: %v", got)
		}
		p.SetLimits(60, 0)
		p.SetBursts(0, 0)
		if got := p.meters[0].left(time.Since(p.start)); got != 5 {
			t.Errorf("metered again: %d left, want the burst of 5 it was made with", got)
		}
	})
}

func TestTheLedgerTellsWhatCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Requests: 1, Script: []Answer{{Fault: ResetBefore}, {Fault: ResetAfter, Status: 200}}})
		rt := p.Transport()
		send := func() {
			req, _ := http.NewRequest("PUT", "https://a.test/v1/x?q=1", strings.NewReader(`{"model":"big"}`))
			req.Header.Set("X-Test", "1")
			req.Header.Set(TokensHeader, "7")
			resp, err := rt.RoundTrip(req)
			if err == nil {
				resp.Body.Close()
			}
			req.Header.Set("X-Test", "changed later")
		}
		for range 4 {
			send()
		}
		l := p.Ledger()
		if len(l) != 4 || p.Hits() != 4 || p.Served() != 1 || p.Refused() != 1 || p.Tokens() != 7 {
			t.Fatalf("%d entries, %d hits, %d served, %d refused, %d tokens", len(l), p.Hits(), p.Served(), p.Refused(), p.Tokens())
		}
		sum := sha256.Sum256([]byte(`{"model":"big"}`))
		for i, want := range []Entry{
			{Fault: ResetBefore},
			{Fault: ResetAfter, Tokens: 7, BodyLen: 15, BodySHA256: sum, Model: "big"},
			{Admitted: true, Status: 200, Tokens: 7, BodyLen: 15, BodySHA256: sum, Model: "big"},
			{Status: 429, Tokens: 7, BodyLen: 15, BodySHA256: sum, Model: "big"},
		} {
			e := l[i]
			if i == 0 {
				want.BodySHA256 = sha256.Sum256(nil)
			}
			if e.Admitted != want.Admitted || e.Status != want.Status || e.Fault != want.Fault || e.Tokens != want.Tokens ||
				e.BodyLen != want.BodyLen || e.BodySHA256 != want.BodySHA256 || e.Model != want.Model {
				t.Errorf("entry %d is %+v", i, e)
			}
			if e.Method != "PUT" || e.Host != "a.test" || e.Path != "/v1/x" || e.Query != "q=1" || e.ContentLength != 15 || e.Header.Get("X-Test") != "1" {
				t.Errorf("entry %d is %+v", i, e)
			}
		}
	})
}

func TestRespondAndCostDecideByTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{
			Tokens:  100,
			Cost:    func(_ *http.Request, body []byte) int64 { return int64(len(body)) * 4 },
			Respond: func(r *http.Request, body []byte) Answer { return Reply(201, r.Method+string(body), "X-Seen", "1") },
			Dialect: OpenAI,
		})
		resp, body := get(t, p.Transport(), "")
		if resp.StatusCode != 201 || body != `POST{"model":"m-1"}` || resp.Header.Get("X-Seen") != "1" {
			t.Errorf("%d %s %v", resp.StatusCode, body, resp.Header)
		}
		if got := resp.Header.Get("X-Ratelimit-Remaining-Tokens"); got != "40" {
			t.Errorf("remaining %s, want 40", got)
		}
		if e := p.Ledger()[0]; e.Status != 201 || !e.Admitted {
			t.Errorf("noted as %+v", e)
		}
	})
}

func TestHostsRouteByHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := New(Config{}), New(Config{Script: []Answer{Reply(503, "")}})
		rt := Hosts{"p.test": p, "b.test:8443": b}.Transport()
		if got := statuses(t, rt, "https://p.test/", 1); !equal(got, []int{200}) {
			t.Errorf("p: %v", got)
		}
		if got := statuses(t, rt, "https://b.test:8443/", 1); !equal(got, []int{503}) {
			t.Errorf("b: %v", got)
		}
		s := &countedBody{from: strings.NewReader("x")}
		_, err := rt.RoundTrip(&http.Request{Method: "POST", URL: &url.URL{Scheme: "https", Host: "c.test"}, Header: http.Header{}, Body: s})
		if err == nil || s.count() != 1 {
			t.Errorf("an unknown host: %v, body closed %d times", err, s.count())
		}
		rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
		if p.Hits() != 1 || b.Hits() != 1 {
			t.Errorf("hits %d and %d", p.Hits(), b.Hits())
		}
	})
}

func TestFaultsBeforeTheAnswer(t *testing.T) {
	for _, c := range []struct {
		fault Fault
		want  error
		read  bool
	}{
		{DialError, syscall.ECONNREFUSED, false},
		{ResetBefore, syscall.ECONNRESET, false},
		{ResetAfter, syscall.ECONNRESET, true},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{Requests: 1, Script: []Answer{{Fault: c.fault}}})
				s := &countedBody{from: strings.NewReader("payload")}
				req, _ := http.NewRequest("POST", "https://a.test/", s)
				resp, err := p.Transport().RoundTrip(req)
				if resp != nil || !errors.Is(err, c.want) {
					t.Errorf("%v, %v, want %v", resp, err, c.want)
				}
				if s.touched() != c.read || s.count() != 1 {
					t.Errorf("body touched %v, closed %d times", s.touched(), s.count())
				}
				if p.ConnsInUse() != 0 || p.Hits() != 1 || p.Served() != 0 || p.Refused() != 0 {
					t.Errorf("%d connections in use, %d hits, %d served, %d refused", p.ConnsInUse(), p.Hits(), p.Served(), p.Refused())
				}
				if got := statuses(t, p.Transport(), "https://a.test/", 1); !equal(got, []int{200}) {
					t.Errorf("the fault has asked the meter: %v", got)
				}
			})
		})
	}
}
