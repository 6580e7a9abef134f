package meteredretryable

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/meteredhttp/meteredhttp/internal/weakset"
	"github.com/meteredhttp/meteredhttp/middleware"
)

// ErrInstalled is matched by the error of Install where the client has a Stack
// already: this one, or another, or layers of package middleware.
var ErrInstalled = errors.New("already installed")

// Install puts s under client: every call of the client, with all the attempts
// of its own loop, becomes one turn of s. It changes two things: the transport
// of client.HTTPClient, which s then sends through, and client.CheckRetry, which
// is asked from then on only about what s has not dealt with. So both are set
// before Install; all other fields and hooks are the caller's, before and after.
// A nil HTTPClient becomes the one of retryablehttp.NewClient, as it does in the
// client's first Do without Install, and a nil CheckRetry DefaultRetryPolicy.
//
// Clients that share a quota share a Stack: Install it on each, also on those
// that have one http.Client between them.
//
// Install returns an error, and changes nothing, if client or s is nil, and one
// that matches [ErrInstalled] if there is a Stack under the client already. It
// must not run while the client is in use.
func Install(client *retryablehttp.Client, s *middleware.Stack) error {
	switch {
	case client == nil:
		return errors.New("meteredretryable: Install on a nil client")
	case s == nil:
		return errors.New("meteredretryable: Install of a nil stack")
	}
	hc := client.HTTPClient
	if hc == nil {
		hc = retryablehttp.NewClient().HTTPClient
	}
	t, ok := hc.Transport.(*transport)
	switch {
	case ok && t.stack != s:
		return fmt.Errorf("meteredretryable: another stack is %w on this client, or on one with the same http.Client", ErrInstalled)
	case !ok && middleware.Layered(hc.Transport):
		return fmt.Errorf("meteredretryable: a stack, or a layer of one, is %w as the transport of client.HTTPClient: give Install a client without", ErrInstalled)
	case !ok:
		t = &transport{next: s.Transport(hc.Transport), stack: s, host: hc}
		hc.Transport = t
	}
	if !t.clients.Add(client) {
		return fmt.Errorf("meteredretryable: the stack is %w on this client", ErrInstalled)
	}
	client.HTTPClient = hc
	client.CheckRetry = t.checkRetry(client, client.CheckRetry)
	return nil
}

// transport is the RoundTripper of an http.Client that a Stack is installed on.
// It is where retryablehttp's attempts, one by one, come by.
type transport struct {
	next  http.RoundTripper // the Stack, over the client's own transport
	stack *middleware.Stack
	host  *http.Client // whose transport it is

	waiting waiting
	unnamed unnamed

	clients weakset.Set[retryablehttp.Client] // whose CheckRetry is wrapped
}
