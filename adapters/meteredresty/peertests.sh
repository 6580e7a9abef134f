#!/bin/sh
# Runs resty's own published tests with a stack installed on each of their
# clients, just before its first request: see PEERTESTS.md.
#
#	adapters/meteredresty/peertests.sh [bare] [go test flags]
#
# With "bare" first, nothing is installed, for comparison. The tests are those of
# the version in go.mod, from the module cache, copied into a temporary folder.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
resty=$(go list -m -f '{{.Dir}}' github.com/go-resty/resty/v2)
[ -n "$resty" ] || { go mod download github.com/go-resty/resty/v2; resty=$(go list -m -f '{{.Dir}}' github.com/go-resty/resty/v2); }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp -R "$resty/." "$tmp"
chmod -R u+w "$tmp"
cd "$tmp"

bare=${1-}
if [ "$bare" = bare ]; then shift; else
	# A way in for a test that is outside of resty's package, as ours must be:
	# it depends on it.
	cat > metered.go <<'GO'
package resty

// BeforeExecute is called with the client of each Request that is executed.
var BeforeExecute = func(*Client) {}
GO
	awk '{ print } /^func \(r \*Request\) Execute\(/ { print "\tBeforeExecute(r.client)" }' request.go > request.go.new
	mv request.go.new request.go
	grep -q BeforeExecute request.go
	cat > metered_test.go <<'GO'
package resty_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/meteredhttp/meteredhttp/adapters/meteredresty"
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
	resty.BeforeExecute = func(c *resty.Client) {
		if err := meteredresty.Install(c, stack); err != nil && !errors.Is(err, meteredresty.ErrInstalled) {
			panic(err)
		}
	}
	code := m.Run()
	keys, sends := len(stack.Stats().Keys), int64(0)
	for _, k := range stack.Stats().Keys {
		sends += k.Sends
	}
	fmt.Printf("the stack sent %d requests to %d servers\n", sends, keys)
	if sends == 0 {
		code = 1
	}
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
