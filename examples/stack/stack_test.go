package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/middleware/metertest"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const want = `One call; the server refuses it once, for a second. By then its token wants renewal.

from the caller inwards                                answer   sent   charged   logged   spans   traceparents   tokens
oauth2 > meteredhttp > logging > otelhttp              200      2      2         2        2       2              token-1 token-1
otelhttp > oauth2 > meteredhttp > logging > otelhttp   200      2      2         2        3       2              token-1 token-1
logging > otelhttp > oauth2 > meteredhttp              200      2      2         1        1       1              token-1 token-1
meteredhttp > oauth2 > logging > otelhttp              200      2      2         2        2       2              token-1 token-2
`

func TestTheProgramPrintsWhatEachOrderShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := show(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != want {
			t.Errorf("printed\n%s\nwant\n%s", got, want)
		}
	})
}

var (
	chosen  = orders[0]
	tree    = orders[1]
	outside = orders[2]
	renewed = orders[3] // oauth2 inside
)

func newStack(t *testing.T, c middleware.Config) *middleware.Stack {
	t.Helper()
	stack, err := middleware.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return stack
}

// answer makes the scene's call, reads the answer to its end and returns the status.
func answer(ctx context.Context, t *testing.T, s *scene, client *http.Client) int {
	t.Helper()
	resp, err := s.call(ctx, client)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	return resp.StatusCode
}

// status of a client span; 0 if it has none.
func status(attributes []attribute.KeyValue) int64 {
	for _, a := range attributes {
		if a.Key == "http.response.status_code" {
			return a.Value.AsInt64()
		}
	}
	return 0
}

func TestInsideEverySendHasASpanOutsideTheCallHasOne(t *testing.T) {
	for _, c := range []struct {
		order    order
		statuses []int64 // of the client spans, as they ended
		children int     // spans right under the caller's
	}{
		{chosen, []int64{429, 503, 200}, 3},
		{renewed, []int64{429, 503, 200}, 3},
		{outside, []int64{200}, 1},
		{tree, []int64{429, 503, 200, 200}, 1},
	} {
		t.Run(c.order.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(time.Hour)
				s.model.Script(refusal("2"), metertest.Reply(503, "busy", "Retry-After", "3"))
				ctx, caller := s.tracing.Tracer("test").Start(t.Context(), "caller")
				client := &http.Client{Transport: s.chain(c.order, newStack(t, middleware.Config{}), s.tokens(0))}
				if got := answer(ctx, t, s, client); got != 200 {
					t.Errorf("the answer is %d", got)
				}
				var statuses []int64
				children := 0
				sent := map[string]bool{} // span IDs that went out
				for _, span := range s.spans.Ended() {
					statuses = append(statuses, status(span.Attributes()))
					if span.Parent().SpanID() == caller.SpanContext().SpanID() {
						children++
					}
					if span.SpanContext().TraceID() != caller.SpanContext().TraceID() {
						t.Errorf("span %s is in another trace", span.Name())
					}
					sent[span.SpanContext().SpanID().String()] = true
				}
				if !slices.Equal(statuses, c.statuses) {
					t.Errorf("spans ended with %v, want %v", statuses, c.statuses)
				}
				if children != c.children {
					t.Errorf("%d spans stand right under the caller's, want %d", children, c.children)
				}
				if n, all := len(s.spans.Ended()), len(s.spans.Started())-1; n != all {
					t.Errorf("%d of %d spans have ended", n, all)
				}
				if s.model.Hits() != 3 {
					t.Errorf("%d sends, want 3", s.model.Hits())
				}
				for parent := range s.traceparents() {
					part := strings.Split(parent, "-")
					if len(part) != 4 || part[1] != caller.SpanContext().TraceID().String() || !sent[part[2]] {
						t.Errorf("traceparent %q names no span of this call", parent)
					}
				}
			})
		})
	}
}

func TestOutsideTheSpanLastsAsLongAsTheCallInsideAsTheSend(t *testing.T) {
	for _, c := range []struct {
		order order
		last  time.Duration
	}{{outside, 10 * time.Second}, {chosen, 50 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(time.Hour)
			s.model.Script(refusal("10"))
			answer(t.Context(), t, s, &http.Client{Transport: s.chain(c.order, newStack(t, middleware.Config{}), s.tokens(0))})
			spans := s.spans.Ended()
			span := spans[len(spans)-1]
			if took := span.EndTime().Sub(span.StartTime()); took < c.last || took > c.last+2*time.Second {
				t.Errorf("%s: the last span took %v, want %v and the jitter", c.order, took, c.last)
			}
		})
	}
}

func TestATokenRequestIsNotChargedToTheModel(t *testing.T) {
	for _, o := range orders {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(time.Hour)
			stack := newStack(t, middleware.Config{
				Bucket: bucket.Config{Headroom: 1, Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}},
			})
			client := &http.Client{Transport: s.chain(o, stack, s.tokens(0))}
			answer(t.Context(), t, s, client)
			if s.auth.Hits() != 1 {
				t.Errorf("%s: %d token requests, want 1", o, s.auth.Hits())
			}
			keys := stack.Stats().Keys
			if len(keys) != 1 || keys[0].Key != "https://api.example.com:443" || keys[0].Sends != 1 {
				t.Fatalf("%s: charged %+v, want one send to the model", o, keys)
			}
			if left := keys[0].Budget.Levels[0].Available; left < 59 {
				t.Errorf("%s: %v of 60 requests are left after one call", o, left)
			}
		})
	}
}

func TestATokenIsFetchedWhileTheBudgetIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(time.Hour)
		stack := newStack(t, middleware.Config{})
		stack.Limiter().(*bucket.Local).Hold("https://api.example.com:443", time.Now().Add(30*time.Second))
		began := time.Now()
		answer(t.Context(), t, s, &http.Client{Transport: s.chain(chosen, stack, s.tokens(0))})
		if s.auth.Ledger()[0].At.Sub(began) > time.Second {
			t.Error("the token request waited for the model's budget")
		}
		if s.model.Ledger()[0].At.Sub(began) < 30*time.Second {
			t.Error("the call did not wait for the model's budget")
		}
	})
}

// A token of 15 minutes is 14 old when a call comes, and is refused for a minute.
func TestARefreshedTokenReachesTheResend(t *testing.T) {
	for _, c := range []struct {
		name   string
		order  order
		early  time.Duration
		status int
		tokens []string // that the second call was sent with
	}{
		{"inside, each send asks for one", renewed, 0, 200, []string{"token-1", "token-2"}},
		{"outside, renewed in time", chosen, 5 * time.Minute, 200, []string{"token-2", "token-2"}},
		{"outside, renewed too late", chosen, 0, 401, []string{"token-1", "token-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(15 * time.Minute)
				client := &http.Client{Transport: s.chain(c.order, newStack(t, middleware.Config{}), s.tokens(c.early))}
				if got := answer(t.Context(), t, s, client); got != 200 {
					t.Errorf("the first answer is %d", got)
				}
				time.Sleep(14 * time.Minute)
				s.model.Script(refusal("60"))
				if got := answer(t.Context(), t, s, client); got != c.status {
					t.Errorf("the answer is %d, want %d", got, c.status)
				}
				if got := s.tokensSeen()[1:]; !slices.Equal(got, c.tokens) {
					t.Errorf("sent with %v, want %v", got, c.tokens)
				}
			})
		})
	}
}

// The reason why oauth2 stands outside.
func TestTheModelsTokenGoesToABackupOnlyFromInside(t *testing.T) {
	for _, c := range []struct {
		order order
		want  string
	}{{chosen, "Bearer of the backup"}, {renewed, "Bearer token-1"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(time.Hour)
			router, err := escalate.New(escalate.Config{
				Primary: escalate.Route{Name: "model"},
				Backups: []escalate.Route{{Name: "backup", URL: backupURL, Header: http.Header{"Authorization": {"Bearer of the backup"}}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			s.model.Script(refusal("300"))
			client := &http.Client{Transport: s.chain(c.order, newStack(t, middleware.Config{Router: router}), s.tokens(0))}
			if got := answer(t.Context(), t, s, client); got != 200 || s.backup.Served() != 1 {
				t.Fatalf("%s: the answer is %d, the backup served %d", c.order, got, s.backup.Served())
			}
			if got := s.backup.Ledger()[0].Header.Get("Authorization"); got != c.want {
				t.Errorf("%s: the backup saw %q, want %q", c.order, got, c.want)
			}
		})
	}
}

func TestKeyByCredentialSeesATokenFromOutsideOnly(t *testing.T) {
	for _, c := range []struct {
		order  order
		hashed bool
	}{{chosen, true}, {renewed, false}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(time.Hour)
			stack := newStack(t, middleware.Config{Pace: middleware.PaceConfig{Key: middleware.KeyByCredential}})
			answer(t.Context(), t, s, &http.Client{Transport: s.chain(c.order, stack, s.tokens(0))})
			if key := stack.Stats().Keys[0].Key; strings.HasSuffix(key, ":443") == c.hashed {
				t.Errorf("%s: the key is %q", c.order, key)
			}
		})
	}
}

func TestManyCallsShareOneTokenAndOneBudget(t *testing.T) {
	for _, o := range orders {
		synctest.Test(t, func(t *testing.T) {
			const n = 40
			s := newScene(24 * time.Hour)
			s.model.Script(refusal("1"), refusal("1"))
			stack := newStack(t, middleware.Config{
				Bucket: bucket.Config{Limits: []bucket.Limit{{Unit: bucket.Requests, Amount: 60, Per: time.Minute, Burst: 10}}},
			})
			client := &http.Client{Transport: s.chain(o, stack, s.tokens(0))}
			var calls sync.WaitGroup
			for i := range n {
				calls.Go(func() {
					if got := answer(t.Context(), t, s, client); got != 200 {
						t.Errorf("%s: call %d: %d", o, i, got)
					}
				})
			}
			calls.Wait()
			if s.auth.Hits() != 1 || s.model.Served() != n || s.model.Refused() != 2 {
				t.Errorf("%s: %d token requests, %d served, %d refused", o, s.auth.Hits(), s.model.Served(), s.model.Refused())
			}
			if begun, ended := len(s.spans.Started()), len(s.spans.Ended()); begun != ended {
				t.Errorf("%s: %d of %d spans have ended", o, ended, begun)
			}
			if open := s.model.OpenBodies(); open != 0 {
				t.Errorf("%s: %d answers are open", o, open)
			}
		})
	}
}

func TestACancelledWaitEndsTheCallAndItsSpans(t *testing.T) {
	for _, o := range orders {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(time.Hour)
			s.model.Script(refusal("30"))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Second, cancel)
			began := time.Now()
			resp, err := s.call(ctx, &http.Client{Transport: s.chain(o, newStack(t, middleware.Config{}), s.tokens(0))})
			if err == nil {
				resp.Body.Close()
			}
			var refused *retryafter.RefusedError
			if !errors.Is(err, context.Canceled) || !errors.As(err, &refused) || refused.Status != 429 {
				t.Errorf("%s: %v, want a refusal whose wait was cancelled", o, err)
			}
			if took := time.Since(began); took != 5*time.Second {
				t.Errorf("%s: it took %v, want 5 s", o, took)
			}
			if begun, ended := len(s.spans.Started()), len(s.spans.Ended()); begun != ended {
				t.Errorf("%s: %d of %d spans have ended", o, ended, begun)
			}
		})
	}
}

func TestATokenServerThatFailsIsNoRefusalOfTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(time.Hour)
		s.auth.SetStatus(500)
		stack := newStack(t, middleware.Config{})
		resp, err := s.call(t.Context(), &http.Client{Transport: s.chain(chosen, stack, s.tokens(0))})
		if err == nil {
			resp.Body.Close()
			t.Fatal("served without a token")
		}
		if s.model.Hits() != 0 || len(stack.Stats().Keys) != 0 {
			t.Errorf("%d sends, charged %+v; want neither", s.model.Hits(), stack.Stats().Keys)
		}
	})
}

// An event reaches the caller when the server has sent it, whoever stands between.
func TestEventsPassThroughEveryOrderAsTheyCome(t *testing.T) {
	for _, o := range orders {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(time.Hour)
			var events []metertest.Event
			for i := range 3 {
				events = append(events, metertest.Event{After: time.Second, Data: metertest.SSE("", strconv.Itoa(i))})
			}
			s.model.Script(refusal("1"), metertest.Answer{Status: 200, Events: events})
			resp, err := s.call(t.Context(), &http.Client{Transport: s.chain(o, newStack(t, middleware.Config{}), s.tokens(0))})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			headers, p := time.Now(), make([]byte, 1024)
			for i := 1; i <= 3; i++ {
				if n, err := resp.Body.Read(p); n == 0 || time.Since(headers) != time.Duration(i)*time.Second {
					t.Errorf("%s: event %d came after %v with %d bytes, %v", o, i, time.Since(headers), n, err)
				}
			}
			if _, err := resp.Body.Read(p); err != io.EOF {
				t.Errorf("%s: at the end: %v", o, err)
			}
		})
	}
}

func TestLoggingHoldsTheContract(t *testing.T) {
	quiet := logging(slog.New(slog.DiscardHandler))
	t.Run("alone", func(t *testing.T) { metertest.TestRoundTripper(t, quiet) })
	t.Run("around and inside ours", func(t *testing.T) {
		metertest.TestRoundTripper(t, func(base http.RoundTripper) http.RoundTripper {
			return middleware.Chain(base, quiet, newStack(t, middleware.Config{}).Transport, quiet)
		})
	})
}

func TestALogLineHasTheTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(time.Hour)
		var log bytes.Buffer
		s.logger = slog.New(slog.NewTextHandler(&log, nil))
		ctx, span := s.tracing.Tracer("test").Start(t.Context(), "caller")
		s.model.Script(refusal("1"), metertest.Answer{Fault: metertest.DialError})
		answer(ctx, t, s, &http.Client{Transport: s.chain(chosen, newStack(t, middleware.Config{}), s.tokens(0))})
		id := trace.SpanContextFromContext(ctx).TraceID().String()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines, want one for each send:\n%s", len(lines), &log)
		}
		for i, want := range []string{"status=429", "refused", "status=200"} {
			if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], "trace="+id) {
				t.Errorf("line %d is %q, want %s and the trace", i, lines[i], want)
			}
		}
		span.End()
	})
}
