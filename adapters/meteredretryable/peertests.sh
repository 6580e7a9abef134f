#!/bin/sh
# Runs retryablehttp's own published tests with a stack installed on each of
# their clients, just before its first request: see PEERTESTS.md.
#
#	adapters/meteredretryable/peertests.sh [bare] [go test flags]
#
# With "bare" first, nothing is installed, for comparison. The tests are those of
# the version in go.mod, from the module cache, copied into a temporary folder.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
peer=github.com/hashicorp/go-retryablehttp
dir=$(go list -m -f '{{.Dir}}' $peer)
[ -n "$dir" ] || { go mod download $peer; dir=$(go list -m -f '{{.Dir}}' $peer); }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp -R "$dir/." "$tmp"
chmod -R u+w "$tmp"
cd "$tmp"

bare=${1-}
if [ "$bare" = bare ]; then shift; else
	# A way in for a test that is outside of retryablehttp's package, as ours
	# must be: it depends on it.
	cat > metered.go <<'GO'
package retryablehttp

// BeforeDo is called with the client of each Request that is done.
var BeforeDo = func(*Client) {}
GO
	sed -i 's/^func (c \*Client) Do(req \*Request) (\*http.Response, error) {$/&\n\tBeforeDo(c)/' client.go
	grep -q BeforeDo client.go
	cat > metered_test.go <<'GO'
package retryablehttp_test

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/meteredhttp/meteredhttp/adapters/meteredretryable"
	"github.com/meteredhttp/meteredhttp/middleware"
	"github.com/meteredhttp/meteredhttp/retryafter"
)

func TestMain(m *testing.M) {
	stack, err := middleware.New(middleware.Config{
		Ladder: retryafter.Policy{RespectRetryAfter: true, DefaultDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond, MaxRetries: 1},
		Retry:  middleware.RetryPolicy{BaseDelay: time.Millisecond},
	})
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	retryablehttp.BeforeDo = func(c *retryablehttp.Client) {
		mu.Lock()
		defer mu.Unlock()
		if err := meteredretryable.Install(c, stack); err != nil && !errors.Is(err, meteredretryable.ErrInstalled) {
			panic(err)
		}
	}
	code := m.Run()
	var sent int64
	for _, k := range stack.Stats().Keys {
		sent += k.Sends
	}
	println("requests sent by the stack:", sent)
	os.Exit(code)
}
GO
fi
cat > go.work <<WORK
go 1.25.0

use .
use $root
WORK
go test -count=1 "$@" .
