package metertest

import (
	"net/http"
	"testing"
	"testing/synctest"
)

// TestRoundTripper is the contract that a layer around an http.RoundTripper keeps,
// as a test, in the manner of golang.org/x/net/nettest.TestConn. Each clause is a
// subtest, runs on virtual time in a synctest bubble of its own, and gets a fresh
// layer from wrap, which is called inside the bubble.
//
// A layer may refuse, wait and send again: 429, 503 and other 5xx answers,
// connection faults. It may also do nothing; wrap may return its argument. What
// it must not do is break a promise that callers and base transports rely on:
//
//   - the caller's request is never changed, not even for a while; its body is
//     closed exactly once on every path;
//   - what is sent again is sent whole, from GetBody or a copy; else it is not
//     sent again and the answer is handed back;
//   - every attempt has a working GetBody where the caller's request has one, the
//     right ContentLength, and the caller's context behind its own;
//   - an answer that is dropped is read within bounds, of bytes and of time, and
//     closed before a wait begins;
//   - an answer that is returned is untouched: not read ahead, events at their
//     instants, trailers, Request, a Writer where the protocol was switched;
//   - whatever is derived for an attempt lives until its body ends;
//   - context errors stay context errors, and cancelling ends every wait at once;
//   - CloseIdleConnections reaches the base.
//
// A goroutine that the layer leaves behind fails the subtest too. Run it under
// -race as well: some clauses are about memory that a transport still reads.
func TestRoundTripper(t *testing.T, wrap func(base http.RoundTripper) http.RoundTripper) {
	for _, c := range clauses() {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%v: something waits for ever, in the call or left behind by it", p)
				}
			}()
			synctest.Test(t, func(t *testing.T) { c.check(t, wrap) })
		})
	}
}

// tb is the part of testing.TB that clauses use, so that a test can run them
// expecting failure. As there, Fatalf must be called from the clause's own
// goroutine.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

type wrapper = func(base http.RoundTripper) http.RoundTripper

type clause struct {
	name  string
	check func(t tb, wrap wrapper)
}

func clauses() []clause {
	return []clause{
		{"RequestArrivesAsSent", requestArrivesAsSent},
		{"RequestIsNeverChanged", requestIsNeverChanged},
		{"RequestIsLeftAloneWhileInUse", requestIsLeftAloneWhileInUse},
		{"RequestBodyIsClosedOnce", requestBodyIsClosedOnce},
		{"RequestBodyIsClosedOnEarlyRefusal", requestBodyIsClosedOnEarlyRefusal},
		{"RequestBodyErrorComesBack", requestBodyErrorComesBack},
		{"ReplaysAreWhole", replaysAreWhole},
		{"BodyWithoutGetBodyIsNeverSentEmpty", bodyWithoutGetBody},
		{"BodyWithFailingGetBodyIsNeverSentEmpty", bodyWithFailingGetBody},
		{"NilBodyAndNoBodyStayEmpty", nilBodyAndNoBody},
		{"HeadIsPassedOn", headIsPassedOn},
		{"ExpectIsPassedOn", expectIsPassedOn},
		{"RequestTrailersArePassedOn", requestTrailers},
		{"RedirectsKeepTheBody", redirectsKeepTheBody},

		{"ServedIsSentOnce", servedIsSentOnce},
		{"AnswerComesBackWhole", answerComesBackWhole},
		{"ErrorAnswerComesBackWhole", errorAnswerComesBackWhole},
		{"AnswerOrError", answerOrError},
		{"AnswerHasItsRequest", answerHasItsRequest},
		{"AnswerTrailersAreKept", answerTrailers},
		{"CloseReachesTheAnswersBody", closeReachesTheBody},
		{"SuccessBodyIsNotReadAhead", successBodyIsNotReadAhead},
		{"EventsFlowOneByOne", eventsFlow},
		{"SwitchedProtocolKeepsItsWriter", switchedProtocol},
		{"InformationalAnswersAreTraced", informationalAnswers},

		{"DroppedAnswersAreClosedBeforeTheWait", droppedAnswersAreClosed},
		{"DroppedEndlessBodyIsBounded", droppedEndlessBody},
		{"DroppedTricklingBodyIsBounded", droppedTricklingBody},
		{"DroppedSilentBodyIsBounded", droppedSilentBody},

		{"ContextIsPassedOn", contextIsPassedOn},
		{"ContextLivesUntilTheBodyEnds", contextLivesUntilTheBodyEnds},
		{"ContextErrorsStayContextErrors", contextErrors},
		{"CancelEndsEveryWait", cancelEndsEveryWait},
		{"CancelEndsTheBody", cancelEndsTheBody},

		{"CloseIdleConnectionsIsPassedOn", closeIdleConnections},
		{"BaseErrorComesBack", baseErrorComesBack},
		{"BasePanicLeaksNothing", basePanicLeaksNothing},
		{"ConcurrentUse", concurrentUse},
	}
}
