package meteredresty

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/middleware"
)

// ErrNotRetried is what a call ends with where a retry condition asked for
// another attempt after a refusal that the Stack has dealt with, and a hook has
// given the request a context of its own, so that resty could not be stopped
// without an error. The refused answer comes with it, closed.
var ErrNotRetried = errors.New("meteredresty: the stack has dealt with this answer, resty must not retry it")

// call is one logical call of a client, through all of resty's attempts. It is
// the context of the request meanwhile, over that of the turn.
//
// It is also what ends resty's loop. That goes on if any retry condition says
// so, whatever others say, but it leaves a request alone whose context is done.
// So this one is, from the moment that the loop must end until it has, for whoever
// asks; no channel is closed that somebody waits on, and what was derived from
// the context lives on, the answer's body first of all.
type call struct {
	context.Context // the turn's

	own     context.Context // the request's own, for afterwards
	request *resty.Request
	end     func()
	loops   bool // resty may come again
	attempt int  // the request's, as of the newest attempt
	replay  replay

	stopped atomic.Bool
	answer  atomic.Pointer[refusedBody]
	once    onceBody    // of the first answer that needs one
	ended   atomic.Bool // Execute is about to return
}

type callKey struct{}

// callOf returns the call that ctx belongs to and that still runs, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil || c.ended.Load() {
		return nil
	}
	return c
}

// Value answers for the call itself, and for the turn.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Err is the turn's, or context.Canceled where resty's loop must end.
func (c *call) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.over() {
		return context.Canceled
	}
	return nil
}

// Done is the turn's. Asked when Err has turned, it is closed.
func (c *call) Done() <-chan struct{} {
	if c.over() {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return c.Context.Done()
}

// over reports whether resty's loop must end here. While resty, or a hook, is
// busy with a refused answer's body it is not over; it is once the body is
// closed, and before it is read, which resty does first thing unless the
// answer is left for the caller to parse.
func (c *call) over() bool {
	if !c.loops || c.ended.Load() {
		return false
	}
	if c.stopped.Load() {
		return true
	}
	b := c.answer.Load()
	return b != nil && (b.closed.Load() || !b.read.Load())
}

// hook makes the calls of client turns. All of it is free to be there twice, on
// a clone of a client that has it.
func (t *transport) hook(client *resty.Client) {
	client.OnBeforeRequest(t.begin)
	client.OnSuccess(func(_ *resty.Client, resp *resty.Response) {
		if resp != nil { // a negative RetryCount makes no attempt
			finish(resp.Request)
		}
	})
	client.OnError(func(r *resty.Request, _ error) { finish(r) })
	client.OnPanic(func(r *resty.Request, _ error) { finish(r) })

	usual := client.RetryAfter
	client.SetRetryAfter(func(c *resty.Client, resp *resty.Response) (time.Duration, error) {
		if dealtWith(resp) {
			if resp.RawResponse != nil {
				resp.RawResponse.Body.Close() // SetDoNotParseResponse leaves it open
			}
			return 0, ErrNotRetried
		}
		if usual == nil {
			return 0, nil // resty's own algorithm
		}
		return usual(c, resp)
	})
}

// begin runs before each attempt, under locks of the client's.
func (t *transport) begin(client *resty.Client, r *resty.Request) error {
	ctx := r.Context()
	outer := callOf(ctx)
	if outer != nil && outer.request == r {
		if outer.attempt == r.Attempt {
			return nil // there twice
		}
		outer.attempt = r.Attempt
		return outer.replay.again(r)
	}
	if outer != nil && ctx == outer {
		ctx = outer.own // a call made by a hook of another: not that one's turn
	}
	turn, end := t.stack.Turn(ctx)
	c := &call{Context: turn, own: ctx, request: r, end: end, loops: client.RetryCount > 0, attempt: r.Attempt}
	c.replay.reader = r.Body
	r.SetContext(c)
	return nil
}

// finish runs when resty's loop has ended. The request is left as it was, for
// another call: unless a hook has put a context of its own over ours.
func finish(r *resty.Request) {
	c := callOf(r.Context())
	if c == nil || c.request != r {
		return
	}
	c.ended.Store(true)
	c.end()
	c.replay.finish(r)
	if r.Context() == c {
		r.SetContext(c.own)
	}
}

// dealtWith reports, to the client's SetRetryAfter, whether there must be no
// retry: the last answer or, where the call is known, what there was instead.
func dealtWith(resp *resty.Response) bool {
	c := callOf(resp.Request.Context())
	if c == nil || c.request != resp.Request {
		return resp.RawResponse != nil && middleware.Handled(resp.RawResponse, nil)
	}
	return c.stopped.Load() || c.answer.Load() != nil
}

// refused notes an answer that the Stack has dealt with.
func (c *call) refused(resp *http.Response) {
	b := &refusedBody{ReadCloser: resp.Body}
	resp.Body = b
	c.answer.Store(b)
}

// refusedBody is the body of a refused answer that is handed back.
type refusedBody struct {
	io.ReadCloser
	read, closed atomic.Bool
}

func (b *refusedBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	return b.ReadCloser.Read(p)
}

func (b *refusedBody) Close() error {
	err := b.ReadCloser.Close()
	b.closed.Store(true)
	return err
}

// answeredOnce watches the answer of a request that must not be carried out
// twice: it may have been, so a connection that breaks off under the body is no
// reason to come again.
func (c *call) answeredOnce(resp *http.Response) {
	if _, ok := resp.Body.(io.Writer); ok {
		return
	}
	b := &c.once
	if b.taken.Swap(true) {
		b = new(onceBody)
	}
	b.ReadCloser, b.c = resp.Body, c
	resp.Body = b
}

type onceBody struct {
	io.ReadCloser
	c     *call
	taken atomic.Bool
}

func (b *onceBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.c.stopped.Store(true)
	}
	return n, err
}
