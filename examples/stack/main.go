// Stack shows our layers among those of others: golang.org/x/oauth2, otelhttp of
// OpenTelemetry, and a RoundTripper that logs, in each order that makes sense. One
// call is made through each; the server refuses it once. The servers are in memory.
//
//	go run ./examples/stack
//
// # Which order
//
// From the caller inwards: oauth2, meteredhttp, logging, otelhttp, the transport.
//
// What stands outside the Stack sees calls, what stands inside sees sends. A
// refused call that is sent again is one call and two sends.
//
// otelhttp inside makes a span of each send, with the status and the duration of
// that send alone, and gives each a traceparent of its own. Outside it makes one
// span of the call, waits included, and the server sees one traceparent twice. A
// second otelhttp outside makes the sends its children. The same goes for logs.
//
// oauth2 outside asks for a token once for each call. A Stack sees that token: it
// takes it out before a call goes to a backup at another origin, and
// [middleware.KeyByCredential] tells accounts apart by it. But a call can wait for
// minutes, and is sent again with the token it came with: renew tokens early
// enough, as [source] does. oauth2 inside asks once for each send, which is always
// fresh; there it gives its token to every backup as well, in the place of the
// backup's own. So it belongs inside only where all routes take the same token.
//
// The token source has a client of its own, with no Stack under it: tokens are not
// charged to the model's budget, nor kept waiting behind it.
//
// Neither oauth2 nor otelhttp hands CloseIdleConnections on. Keep the transport at
// the bottom, and call it there.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/meteredhttp/meteredhttp/bucket"
	"github.com/meteredhttp/meteredhttp/middleware"
)

func main() {
	if err := show(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// show makes one call through each order and writes what was seen of it.
func show(ctx context.Context, w io.Writer) error {
	fmt.Fprint(w, "One call; the server refuses it once, for a second. By then its token wants renewal.\n\n")
	rows := make([]string, len(orders))
	errs := make([]error, len(orders))
	var calls sync.WaitGroup
	for i, o := range orders {
		calls.Go(func() { rows[i], errs[i] = row(ctx, o) })
	}
	calls.Wait()

	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "from the caller inwards\tanswer\tsent\tcharged\tlogged\tspans\ttraceparents\ttokens")
	for i, r := range rows {
		if errs[i] != nil {
			return fmt.Errorf("stack: %s: %w", orders[i], errs[i])
		}
		fmt.Fprintln(t, r)
	}
	return t.Flush()
}

func row(ctx context.Context, o order) (string, error) {
	s := newScene(11 * time.Second) // of which oauth2 keeps 10 in hand
	s.model.Script(refusal("1"))
	stack, err := middleware.New(middleware.Config{
		Bucket: bucket.Config{Limits: []bucket.Limit{bucket.PerMinute(bucket.Requests, 60)}},
	})
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: s.chain(o, stack, s.tokens(0))}
	resp, err := s.call(ctx, client)
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "", err
	}
	if err := resp.Body.Close(); err != nil {
		return "", err
	}
	var charged int64
	for _, k := range stack.Stats().Keys {
		charged += k.Sends
	}
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s", o, resp.StatusCode, s.model.Hits(), charged,
		s.logged.Load(), len(s.spans.Ended()), len(s.traceparents()), strings.Join(s.tokensSeen(), " ")), nil
}
