package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteredhttp/meteredhttp/middleware/metertest"
)

// inMemory is a network without one: on it a batch runs on virtual time.
func inMemory(p *metertest.Provider) (string, http.RoundTripper, func(), error) {
	return "http://provider.test/jobs", p.Transport(), func() {}, nil
}

var demonstrated = regexp.MustCompile(`^A provider of 1,200 requests and 600,000 tokens per minute, a second's worth at once.

240 jobs of 128,922 tokens, 20 at a time, each 200ms: about 13.5s
  what binds   the limit of 600,000 tokens per minute; jobs wait 13.3s for it
  done  .*
 .* 100 % 13.5s *
1\d\d of 240 jobs done, 1\d\d of them now; 0 refused on the way
  predicted    .* for these 1\d\d
  actual       .*, [+-][0-4]\.\d %
  results      .*

Interrupted in the middle. The same command again:

Resuming: 1\d\d of 240 jobs are done. The limits are taken to be full again.
1\d\d jobs of .*
(?s:.*)240 of 240 jobs done, 1\d\d of them now; 0 refused on the way
  predicted    .* for all of it
  actual       .*, [+-][0-4]\.\d %
  results      .*

The provider has carried out 240 calls, for 240 jobs.
$`)

func TestTheDemonstration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := demonstrate(t.Context(), batch{stdout: &out}, inMemory); err != nil {
			t.Error(err)
		}
		if !demonstrated.Match(out.Bytes()) {
			t.Errorf("printed\n%s", out.String())
		}
	})
}

// small is a batch of n jobs for a provider, with its files in a folder of the test's.
func small(t *testing.T, n int, base http.RoundTripper) (batch, *bytes.Buffer) {
	dir, out := t.TempDir(), new(bytes.Buffer)
	return batch{
		options: options{
			journal: filepath.Join(dir, "journal"), results: filepath.Join(dir, "results"),
			url: "http://provider.test/", workers: 1, burst: time.Minute, headroom: 1,
		},
		jobs: demoBatch(n), base: base, stdout: out,
	}, out
}

// results are the statuses in the file of results, by id, in its order.
func (b batch) read(t *testing.T) (all []result) {
	t.Helper()
	text, err := os.ReadFile(b.results)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func TestRefusalsAreWaitedOutAndErrorsAreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{Latency: 100 * time.Millisecond, Script: []metertest.Answer{
			metertest.Reply(429, "", "Retry-After", "1"), metertest.Reply(200, `{"n":1}`), metertest.Reply(404, "no such thing"),
		}})
		b, out := small(t, 3, p.Transport())
		err := b.run(t.Context())
		if err == nil || err.Error() != "batch: 1 of the answers is an error" {
			t.Errorf("got %v", err)
		}
		got := b.read(t)
		if len(got) != 3 || got[0].Status != 200 || string(got[0].Body) != `{"n":1}` || got[0].Took != 100 ||
			got[1].Status != 404 || string(got[1].Body) != `"no such thing"` || got[2].Status != 200 {
			t.Errorf("results %+v\n%s", got, out)
		}
		hits := p.Hits()
		if err := b.run(t.Context()); err == nil || p.Hits() != hits { // all is answered
			t.Errorf("got %v, and %d more sends", err, p.Hits()-hits)
		}
	})
}

// A job whose connection was lost is in doubt: nothing sends it again unasked.
func TestAJobInDoubtIsSentAgainOnlyWhenAsked(t *testing.T) {
	for _, how := range []string{"resend", "idempotent"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := metertest.New(metertest.Config{Script: []metertest.Answer{{Fault: metertest.ResetAfter}}})
				b, _ := small(t, 2, p.Transport())
				if err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), "1 of the jobs has no answer") {
					t.Errorf("got %v", err)
				}
				hits := p.Hits()
				var out bytes.Buffer
				b.stdout = &out
				if err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), "in doubt") || p.Hits() != hits {
					t.Errorf("got %v, and %d more sends", err, p.Hits()-hits)
				}
				if !strings.Contains(out.String(), "1 job was sent before, with no answer on record, and may have been carried out: job-001") {
					t.Errorf("printed\n%s", out.String())
				}
				b.resend, b.idempotent = how == "resend", how == "idempotent"
				if err := b.run(t.Context()); err != nil || p.Hits() != hits+1 || len(b.read(t)) != 2 {
					t.Errorf("got %v, and %d more sends", err, p.Hits()-hits)
				}
			})
		})
	}
}

func TestAnIdempotencyKeyIsTheSameForEverySend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{Script: []metertest.Answer{{Fault: metertest.ResetAfter}}})
		var keys []string
		b, _ := small(t, 2, tripper(func(r *http.Request) (*http.Response, error) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			return p.Transport().RoundTrip(r)
		}))
		b.idempotent = true
		if err := b.run(t.Context()); err != nil {
			t.Error(err)
		}
		if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] == keys[2] {
			t.Errorf("keys %q", keys)
		}
	})
}

// An interrupt lets what has left come back, and stops what waits for its budget.
func TestAnInterruptWaitsForWhatIsOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{Latency: 10 * time.Second})
		b, out := small(t, 10, p.Transport())
		b.workers, b.rpm, b.burst = 5, 120, time.Second
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(1200*time.Millisecond, interrupt)
		start := time.Now()
		if err := b.run(ctx); !errors.Is(err, errInterrupted) {
			t.Errorf("got %v", err)
		}
		sent := p.Hits()
		if took := time.Since(start); took < 10*time.Second || took > 12*time.Second || sent == 0 || sent == 5 {
			t.Errorf("it ended after %v, with %d sent\n%s", took, sent, out)
		}
		if got := b.read(t); len(got) != sent || strings.Contains(out.String(), "doubt") {
			t.Errorf("%d sent, %d recorded\n%s", sent, len(got), out)
		}
		if err := b.run(t.Context()); err != nil || p.Hits() != 10 || len(b.read(t)) != 10 {
			t.Errorf("got %v, %d sent\n%s", err, p.Hits(), out)
		}
	})
}

// What was never sent, since nobody listens, is in no doubt.
func TestAJobThatNeverLeftIsInNoDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := metertest.New(metertest.Config{Script: []metertest.Answer{{Fault: metertest.DialError}, {Fault: metertest.DialError},
			{Fault: metertest.DialError}, {Fault: metertest.DialError}}})
		b, out := small(t, 1, p.Transport())
		if err := b.run(t.Context()); err == nil || strings.Contains(out.String(), "doubt") {
			t.Errorf("got %v\n%s", err, out)
		}
		if err := b.run(t.Context()); err != nil || len(b.read(t)) != 1 {
			t.Errorf("got %v\n%s", err, out)
		}
	})
}

func TestTheBarIsForATerminal(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, out := small(t, 10, metertest.New(metertest.Config{Latency: time.Second}).Transport())
			b.terminal = terminal
			if err := b.run(t.Context()); err != nil {
				t.Error(err)
			}
			if shown := strings.Contains(out.String(), "(10/10"); shown != terminal || strings.Contains(out.String(), "\r") != terminal {
				t.Errorf("a terminal %v, a bar %v:\n%q", terminal, shown, out.String())
			}
		})
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
