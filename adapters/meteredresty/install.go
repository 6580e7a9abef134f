package meteredresty

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/go-resty/resty/v2"

	"github.com/meteredhttp/meteredhttp/internal/weakset"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// ErrInstalled is matched by the error of Install where the client has a Stack
// already: this one, or another, or layers of package middleware.
var ErrInstalled = errors.New("already installed")

// Install puts s under client: every call of the client, with all the attempts
// of resty's own loop, becomes one turn of s. The transport that the client has
// now is what s sends through, so Install comes last: see the package
// documentation for what must come before it and what may come after.
//
// Clients that share a quota share a Stack: Install it on each. A client and
// its clones have one http.Client, so Install on one of them puts s under all;
// clones made after it are complete, and a clone made before it gets the rest
// by an Install of its own, with the same s.
//
// Install returns an error, and changes nothing, if client or s is nil, if client
// was not made by one of resty's constructors, and one that matches
// [ErrInstalled] if there is a Stack under the client already, except for the
// clone above. It must not run while the client is in use.
func Install(client *resty.Client, s *middleware.Stack) error {
	switch {
	case client == nil:
		return errors.New("meteredresty: Install on a nil client")
	case s == nil:
		return errors.New("meteredresty: Install of a nil stack")
	case client.GetClient() == nil:
		return errors.New("meteredresty: Install on a client that none of resty's constructors made")
	}
	hc := client.GetClient()
	t, ok := hc.Transport.(*transport)
	switch {
	case ok && t.stack != s:
		return fmt.Errorf("meteredresty: another stack is %w on this client, or on one that it is a clone of", ErrInstalled)
	case !ok && middleware.Layered(hc.Transport):
		return fmt.Errorf("meteredresty: a stack, or a layer of one, is %w as the client's transport: give Install a client without", ErrInstalled)
	case !ok:
		t = &transport{next: s.Transport(hc.Transport), stack: s}
		hc.Transport = t
	}
	if !t.clients.Add(client) {
		return fmt.Errorf("meteredresty: the stack is %w on this client", ErrInstalled)
	}
	t.hook(client)
	return nil
}

// transport is the RoundTripper of a client that a Stack is installed on. It is
// where resty's attempts, one by one, come by.
type transport struct {
	next  http.RoundTripper // the Stack, over the client's own transport
	stack *middleware.Stack

	clients weakset.Set[resty.Client] // that have the hooks
}

// RoundTrip sends req through the Stack, and ends resty's loop where it must not
// go on: where the Stack has done what can be done about a refusal, and where a
// request that must not be carried out twice may have been carried out.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	if c == nil { // not a call of resty's
		return t.next.RoundTrip(req)
	}
	sent, err := c.outgoing(req)
	if err != nil {
		return nil, err
	}
	resp, err := t.next.RoundTrip(sent)
	if err != nil {
		if middleware.Handled(nil, err) || !t.stack.Resendable(sent, err) {
			c.stopped.Store(true)
		}
		return resp, err
	}
	switch {
	case resp.StatusCode >= http.StatusBadRequest && middleware.Handled(resp, nil):
		c.refused(resp)
	case c.loops && !t.stack.Resendable(sent, nil):
		c.answeredOnce(resp)
	}
	if resp.Request == sent {
		resp.Request = req
	}
	return resp, nil
}

// CloseIdleConnections passes http.Client.CloseIdleConnections on.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
