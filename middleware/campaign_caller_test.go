package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/escalate"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

// call is one caller, with his request and what he does with the answer.
func (c *campaign) call(p *plannedCall) {
	time.Sleep(p.start)
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { return nil }})
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Minute, context.Canceled)
	defer cancel()
	ends := c.since() + 20*time.Minute
	for _, d := range []time.Duration{p.cancel, p.deadline} {
		if d > 0 {
			ends = min(ends, c.since()+d)
		}
	}
	if p.deadline > 0 {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, p.deadline)
		defer stop()
	}
	if p.cancel > 0 {
		timer := time.AfterFunc(p.cancel, cancel)
		defer timer.Stop()
	}
	defer func() {
		if v := recover(); v != nil {
			if err, ok := v.(error); !ok || !errors.Is(err, errHostile) {
				buf := make([]byte, 4<<10)
				c.complain("call %d: panic: %v\n%s", p.id, v, buf[:runtime.Stack(buf, false)])
			}
		}
	}()
	var resp *http.Response
	var err error
	switch c.host {
	case "net/http":
		resp, err = c.do(ctx, p)
	case "resty":
		r := c.resty.R().SetContext(ctx).SetHeader("X-Call", fmt.Sprint(p.id))
		if p.body != "" {
			r.SetBody(newCampaignBody(p.body))
		}
		if p.key {
			r.SetHeader("Idempotency-Key", "k")
		}
		if p.reads >= 0 {
			r.SetDoNotParseResponse(true)
		}
		var rr *resty.Response
		if rr, err = r.Execute(p.method, "http://"+primaryHost+"/v1/things"); err == nil && p.reads >= 0 {
			resp = rr.RawResponse
		} else if err == nil {
			c.ended(ctx, p, rr.StatusCode(), nil)
			return
		} else if rr != nil && rr.RawResponse != nil && p.reads >= 0 {
			rr.RawResponse.Body.Close()
		}
	case "retryablehttp":
		var body any
		if p.body != "" {
			body = newCampaignBody(p.body)
		}
		var r *retryablehttp.Request
		if r, err = retryablehttp.NewRequestWithContext(ctx, p.method, "http://"+primaryHost+"/v1/things", body); err != nil {
			return // its own reading of the body has failed
		}
		r.Header.Set("X-Call", fmt.Sprint(p.id))
		if p.key {
			r.Header.Set("Idempotency-Key", "k")
		}
		resp, err = c.retry.Do(r)
	}
	if late := c.since() - ends; c.host == "net/http" && late > time.Second {
		c.complain("call %d returned %v after its context had ended", p.id, late)
	}
	if err != nil {
		c.ended(ctx, p, 0, err)
		return
	}
	if resp == nil || resp.Body == nil {
		c.complain("call %d: no answer or no body, and no error", p.id)
		return
	}
	c.ended(ctx, p, resp.StatusCode, nil)
	close := time.AfterFunc(2*time.Minute, func() { resp.Body.Close() })
	defer close.Stop()
	if p.reads < 0 {
		io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	} else {
		io.ReadFull(resp.Body, make([]byte, p.reads))
	}
	resp.Body.Close()
	resp.Body.Close()
}

// enter is where a request comes to the layers: what net/http does to it above,
// like closing a body twice, is none of their business.
func (c *campaign) enter(layers http.RoundTripper, req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return layers.RoundTrip(req)
	}
	b := &closesOnce{ReadCloser: req.Body}
	r := req.WithContext(req.Context())
	r.Body = b
	defer func() {
		time.AfterFunc(50*time.Second, func() { // it may be closed after RoundTrip has returned
			if n := b.closes.Load(); n != 1 {
				c.complain("the body of call %s, a %s for %s, was closed %d times", req.Header.Get("X-Call"), req.Method, req.URL, n)
			}
		})
	}()
	return layers.RoundTrip(r)
}

type closesOnce struct {
	io.ReadCloser
	closes atomic.Int32
}

func (b *closesOnce) Close() error {
	b.closes.Add(1)
	return b.ReadCloser.Close()
}

// do sends by net/http, and looks whether the request is as it was.
func (c *campaign) do(ctx context.Context, p *plannedCall) (*http.Response, error) {
	var body io.Reader
	if p.body != "" {
		body = newCampaignBody(p.body)
	}
	req, err := http.NewRequestWithContext(ctx, p.method, "http://"+primaryHost+"/v1/things?q=1", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Call", fmt.Sprint(p.id))
	req.Header["x-odd"] = []string{"a", ""}
	if p.key {
		req.Header.Set("Idempotency-Key", "k")
	}
	was, header, url := *req, req.Header.Clone(), req.URL.String()
	defer func() {
		same := req.Method == was.Method && req.URL == was.URL && req.URL.String() == url && req.Body == was.Body && req.ContentLength == was.ContentLength &&
			(req.GetBody == nil) == (was.GetBody == nil) && req.Host == was.Host && req.Context() == was.Context() && reflect.DeepEqual(req.Header, header)
		if !same {
			c.complain("call %d: the caller's request has changed: %+v", p.id, req)
		}
	}()
	return c.client.Do(req)
}

// ended checks how a call has ended.
func (c *campaign) ended(ctx context.Context, p *plannedCall, status int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if status < 400 {
			c.served++
		}
		return
	}
	if ctx.Err() != nil {
		c.cancelled++
	}
	wrong := func(format string, args ...any) {
		c.wrong = append(c.wrong, fmt.Sprintf("call %d ended in %q: ", p.id, err)+fmt.Sprintf(format, args...))
	}
	var (
		wait      *bucket.WaitError
		refused   *retryafter.RefusedError
		escalated *escalate.Error
	)
	if errors.As(err, &wait) && (!errors.Is(err, context.DeadlineExceeded) || !wait.Local()) {
		wrong("a WaitError that does not match DeadlineExceeded")
	}
	if errors.As(err, &refused) && (refused.Status < 400 || refused.Attempts < 1) {
		wrong("a RefusedError of status %d after %d attempts", refused.Status, refused.Attempts)
	}
	if errors.As(err, &escalated) && (!c.escalate || escalated.Key == "" || escalated.RetryAfter < 0) {
		wrong("an escalation of %q, %v", escalated.Key, escalated.RetryAfter)
	}
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		wrong("nobody has cancelled it")
	}
	if errors.Is(err, context.DeadlineExceeded) && wait == nil && ctx.Err() == nil && c.clientTimeout == 0 {
		wrong("its deadline is not over")
	}
	if c.host != "net/http" {
		return
	}
	known := ctx.Err() != nil || wait != nil || refused != nil || escalated != nil || c.clientTimeout > 0 && errors.Is(err, context.DeadlineExceeded)
	for _, target := range []error{errHostile, errStore, errBodyFails, bucket.ErrQueueFull, bucket.ErrOversize, bucket.ErrOverdue} {
		known = known || errors.Is(err, target)
	}
	if !known && !strings.Contains(err.Error(), "Location header") {
		wrong("an error of a kind that is not documented: %T", errors.Unwrap(err))
	}
}

var errBodyFails = errors.New("the caller's body fails")

// campaignBody is a body without a GetBody.
type campaignBody struct {
	io.Reader
	kind string
	n    int
	done chan struct{}
	mu   sync.Mutex
	shut int
}

// newCampaignBody is a body of a kind; "replayable" is one that net/http knows.
func newCampaignBody(kind string) io.Reader {
	switch kind {
	case "replayable":
		return bytes.NewReader([]byte(`{"model":"m"}`))
	case "huge":
		return &campaignBody{Reader: bytes.NewReader(make([]byte, middleware.ReplayLimit+9)), kind: kind, done: make(chan struct{})}
	}
	return &campaignBody{Reader: strings.NewReader(`{"model":"m"}`), kind: kind, done: make(chan struct{})}
}

func (b *campaignBody) Read(p []byte) (int, error) {
	b.n++
	switch b.kind {
	case "slow":
		time.Sleep(150 * time.Millisecond)
		p = p[:min(len(p), 5)]
	case "failing":
		if b.n > 1 {
			return 0, errBodyFails
		}
	case "blocking":
		if b.n > 1 {
			select {
			case <-b.done:
			case <-time.After(40 * time.Second):
			}
		}
	}
	return b.Reader.Read(p)
}

func (b *campaignBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut++; b.shut == 1 {
		close(b.done)
	}
	return nil
}
