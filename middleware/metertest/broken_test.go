package metertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// roundTripper is a layer of one function. It passes CloseIdleConnections on.
type roundTripper struct {
	base http.RoundTripper
	do   func(base http.RoundTripper, req *http.Request) (*http.Response, error)
}

func (r *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.do(r.base, req)
}

func (r *roundTripper) CloseIdleConnections() {
	(&http.Client{Transport: r.base}).CloseIdleConnections()
}

func layer(do func(base http.RoundTripper, req *http.Request) (*http.Response, error)) wrapper {
	return func(base http.RoundTripper) http.RoundTripper { return &roundTripper{base, do} }
}

func flawed(f flaw) wrapper {
	return func(base http.RoundTripper) http.RoundTripper { return &retrier{base, f} }
}

// onAnswer is a layer that changes answers.
func onAnswer(change func(resp *http.Response)) wrapper {
	return layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil {
			change(resp)
		}
		return resp, err
	})
}

// onClone is a layer that sends a changed copy.
func onClone(change func(req *http.Request)) wrapper {
	return layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		change(req)
		return base.RoundTrip(req)
	})
}

type body struct {
	io.Reader
	close func() error
}

func (b body) Close() error { return b.close() }

func leftBehind(c chan struct{}) { <-c }

// brokenLayers are layers that do one thing wrong, and the clauses that must say
// so.
var brokenLayers = []struct {
	name    string
	wrap    wrapper
	clauses []string
}{
	{"sets a header on the caller's request", layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		req.Header.Set("X-Retry", "0")
		return base.RoundTrip(req)
	}), []string{"RequestIsNeverChanged", "RequestBodyIsClosedOnce"}},
	{"changes the caller's URL for a while", layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		host := req.URL.Host
		req.URL.Host = "proxy.example.com"
		defer func() { req.URL.Host = host }()
		return base.RoundTrip(req)
	}), []string{"RequestIsNeverChanged", "RequestArrivesAsSent"}},
	{"replaces the caller's body", layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			all, _ := io.ReadAll(req.Body)
			req.Body.Close()
			req.Body = io.NopCloser(bytes.NewReader(all))
		}
		return base.RoundTrip(req)
	}), []string{"RequestIsNeverChanged"}},
	{"drops the Host", onClone(func(req *http.Request) { req.Host = "" }), []string{"RequestArrivesAsSent"}},
	{"joins headers of one name", onClone(func(req *http.Request) {
		for name, values := range req.Header {
			req.Header[name] = []string{strings.Join(values, ", ")}
		}
	}), []string{"RequestArrivesAsSent"}},
	{"shares one request among attempts", flawed(sharesTheRequest), []string{"RequestIsNeverChanged"}},
	{"closes a body that the transport still reads", flawed(closesTheBodyOfAttempts), []string{"RequestIsLeftAloneWhileInUse", "RequestBodyIsClosedOnce"}},
	{"closes the body again", layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		if req.Body != nil {
			defer req.Body.Close()
		}
		return base.RoundTrip(req)
	}), []string{"RequestBodyIsClosedOnce"}},
	{"forgets the body when it refuses", layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		return base.RoundTrip(req)
	}), []string{"RequestBodyIsClosedOnEarlyRefusal"}},
	{"drops the context", onClone(func(req *http.Request) { *req = *req.WithContext(context.WithoutCancel(req.Context())) }),
		[]string{"RequestBodyIsClosedOnEarlyRefusal", "ContextIsPassedOn", "ContextErrorsStayContextErrors", "CancelEndsTheBody"}},
	{"hides what went wrong with the body", layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		if req.Body == nil || req.Body == http.NoBody {
			return base.RoundTrip(req)
		}
		all, _ := io.ReadAll(req.Body) // and the error is gone
		req.Body.Close()
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(all))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(all)), nil }
		return base.RoundTrip(req)
	}), []string{"RequestBodyErrorComesBack", "ExpectIsPassedOn"}},
	{"sends the used body again", flawed(sendsTheUsedBody), []string{"ReplaysAreWhole", "BodyWithoutGetBodyIsNeverSentEmpty", "BodyWithFailingGetBodyIsNeverSentEmpty"}},
	{"sends nothing where it has no GetBody", flawed(sendsEmptyWithoutGetBody), []string{"BodyWithoutGetBodyIsNeverSentEmpty"}},
	{"loses GetBody", flawed(losesGetBody), []string{"ReplaysAreWhole", "RedirectsKeepTheBody"}},
	{"loses the length", flawed(losesLength), []string{"ReplaysAreWhole", "RequestIsNeverChanged"}},
	{"makes an empty reader of no body", onClone(func(req *http.Request) {
		if req.Body == nil || req.Body == http.NoBody {
			req.Body = io.NopCloser(strings.NewReader(""))
		}
	}), []string{"NilBodyAndNoBodyStayEmpty"}},
	{"makes HEAD a GET", onClone(func(req *http.Request) { req.Method = "GET" }), []string{"HeadIsPassedOn"}},
	{"strips Expect", onClone(func(req *http.Request) { req.Header.Del("Expect") }), []string{"ExpectIsPassedOn"}},
	{"strips request trailers", onClone(func(req *http.Request) { req.Trailer = nil }), []string{"RequestTrailersArePassedOn"}},

	{"sends everything twice", layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err != nil || req.Body != nil && req.GetBody == nil {
			return resp, err
		}
		again := req.Clone(req.Context())
		if req.Body != nil {
			again.Body, _ = req.GetBody()
		}
		resp.Body.Close()
		return base.RoundTrip(again)
	}), []string{"ServedIsSentOnce"}},
	{"makes the answer anew", onAnswer(func(resp *http.Response) {
		*resp = http.Response{StatusCode: resp.StatusCode, Header: resp.Header, Body: resp.Body, ContentLength: -1}
	}), []string{"AnswerComesBackWhole", "AnswerHasItsRequest", "AnswerTrailersAreKept"}},
	{"cuts what it has looked at", onAnswer(func(resp *http.Response) {
		if resp.StatusCode >= 400 {
			io.CopyN(io.Discard, resp.Body, 512)
		}
	}), []string{"ErrorAnswerComesBackWhole"}},
	{"returns neither answer nor error", layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil && resp.StatusCode == 503 {
			resp.Body.Close()
			return nil, nil
		}
		return resp, err
	}), []string{"AnswerOrError"}},
	{"returns an answer beside the error", layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil && resp.StatusCode >= 500 {
			resp.Body.Close()
			return resp, errors.New("server error")
		}
		return resp, err
	}), []string{"AnswerOrError"}},
	{"returns a nil Body", onAnswer(func(resp *http.Response) {
		if resp.ContentLength == 0 {
			resp.Body.Close()
			resp.Body = nil
		}
	}), []string{"AnswerOrError"}},
	{"keeps Close to itself", onAnswer(func(resp *http.Response) { resp.Body = io.NopCloser(resp.Body) }),
		[]string{"CloseReachesTheAnswersBody", "CancelEndsTheBody"}},
	{"reads success bodies whole", onAnswer(func(resp *http.Response) {
		if resp.StatusCode != 101 {
			all, _ := io.ReadAll(resp.Body)
			resp.Body = body{bytes.NewReader(all), resp.Body.Close}
		}
	}), []string{"SuccessBodyIsNotReadAhead", "EventsFlowOneByOne"}},
	{"reads a first event", onAnswer(func(resp *http.Response) {
		r := bufio.NewReader(resp.Body)
		r.Peek(1)
		resp.Body = body{r, resp.Body.Close}
	}), []string{"SuccessBodyIsNotReadAhead", "SwitchedProtocolKeepsItsWriter"}},
	{"buffers events", onAnswer(func(resp *http.Response) {
		from := resp.Body
		resp.Body = body{readerFunc(func(p []byte) (int, error) {
			n, err := io.ReadAtLeast(from, p, len(p)/64)
			if err == io.ErrUnexpectedEOF {
				err = io.EOF
			}
			return n, err
		}), from.Close}
	}), []string{"EventsFlowOneByOne"}},
	{"hides the Writer of a switched connection", onAnswer(func(resp *http.Response) { resp.Body = body{resp.Body, resp.Body.Close} }),
		[]string{"SwitchedProtocolKeepsItsWriter"}},
	{"starts from a context of its own", onClone(func(req *http.Request) { *req = *req.WithContext(context.Background()) }),
		[]string{"InformationalAnswersAreTraced", "ContextIsPassedOn"}},

	{"leaks what it drops", flawed(leaksDropped), []string{"DroppedAnswersAreClosedBeforeTheWait"}},
	{"closes what it drops after the wait", flawed(closesAfterTheWait), []string{"DroppedAnswersAreClosedBeforeTheWait"}},
	{"drains without end", flawed(drainsWithoutEnd), []string{"DroppedEndlessBodyIsBounded", "DroppedTricklingBodyIsBounded", "DroppedSilentBodyIsBounded"}},
	{"drains for any time", flawed(drainsWithoutTime), []string{"DroppedTricklingBodyIsBounded", "DroppedSilentBodyIsBounded"}},

	{"cancels with the headers", layer(func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(req.Context(), time.Minute)
		defer cancel()
		return base.RoundTrip(req.WithContext(ctx))
	}), []string{"ContextLivesUntilTheBodyEnds", "EventsFlowOneByOne"}},
	{"makes text of errors", flawed(wrapsErrorsInText), []string{"ContextErrorsStayContextErrors", "BaseErrorComesBack"}},
	{"sleeps deaf", flawed(sleepsDeaf), []string{"CancelEndsEveryWait"}},
	{"loses CloseIdleConnections", flawed(losesCloseIdle), []string{"CloseIdleConnectionsIsPassedOn"}},
	{"keeps its slot when the base panics", func(base http.RoundTripper) http.RoundTripper {
		slots := make(chan struct{}, 10)
		return &roundTripper{base, func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
			select {
			case slots <- struct{}{}:
			case <-req.Context().Done():
				if req.Body != nil {
					req.Body.Close()
				}
				return nil, req.Context().Err()
			}
			resp, err := base.RoundTrip(req)
			<-slots
			return resp, err
		}}
	}, []string{"BasePanicLeaksNothing"}},
	{"swallows the base's panic", layer(func(base http.RoundTripper, req *http.Request) (resp *http.Response, err error) {
		defer func() { recover() }()
		return base.RoundTrip(req)
	}), []string{"BasePanicLeaksNothing"}},
	{"mixes up its callers", func(base http.RoundTripper) http.RoundTripper {
		var mu sync.Mutex
		var last *http.Response
		return &roundTripper{base, func(base http.RoundTripper, req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			if last == nil {
				last = resp
			}
			last, resp = resp, last
			return resp, nil
		}}
	}, []string{"ConcurrentUse"}},
	{"leaves a goroutine behind", func(base http.RoundTripper) http.RoundTripper {
		go leftBehind(make(chan struct{}))
		return base
	}, []string{"ServedIsSentOnce"}},
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
