#!/usr/bin/env bash
# Everything that must hold: formatting, vet, the tests of every module under the race detector
# (fuzz targets run their seed corpora), and the examples that end by themselves.
set -euo pipefail
cd "$(dirname "$0")"

run() { printf '\n$ %s\n' "$*"; "$@"; }

command -v go >/dev/null || { echo "test.sh: Go 1.25 or later is needed: https://go.dev/dl" >&2; exit 1; }
run go version

# provide installs what a command comes with, by the system's package manager, where it is missing; where it
# cannot, it says so, and the tests say what they leave out.
provide() {
	command -v "$1" >/dev/null && return
	local root=
	[ "$(id -u)" = 0 ] || root="sudo -n"
	printf '\n== %s is missing: installing it\n' "$1"
	if command -v apt-get >/dev/null; then
		$root apt-get install -y -q "$2" || { $root apt-get update -q && $root apt-get install -y -q "$2"; }
	elif command -v apk >/dev/null; then
		$root apk add "$3"
	elif command -v dnf >/dev/null; then
		$root dnf install -y -q "$3"
	elif command -v brew >/dev/null; then
		brew install "$3"
	fi || true
	command -v "$1" >/dev/null || printf '== %s cannot be installed here: %s\n' "$1" "$4"
}
provide redis-server redis-server redis "the Redis tests run on an embedded server, without faults, clusters and replicas"
provide chromium chromium chromium "the dashboard is not tested in a browser"

printf '\n$ gofmt -l .\n'
unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
	printf 'gofmt would change:\n%s\n' "$unformatted" >&2
	exit 1
fi

# Every folder with a go.mod is a module; each is vetted and tested as its users build it.
for mod in $(git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod' | sort); do
	dir=$(dirname "$mod")
	printf '\n== module %s\n' "$dir"
	(cd "$dir" && run go vet ./... && run go test -race ./...)
done

# The pages are outside of the module that tests them, so the go command would not see that one has changed.
printf '\n== documentation\n'
(cd examples && run go test -count=1 ./docs)

# The race detector changes what is allocated, so allocations are counted without it.
printf '\n== allocations\n'
run go test -run 'Alloc|Waiter' ./bucket ./retryafter ./adapters/llm
(cd examples && run go test -run 'Alloc|Waiter' ./bench)

printf '\n== examples that end by themselves\n'
for example in quickstart resty retryablehttp stack openai anthropic; do
	run go run "./examples/$example"
done
run go run ./examples/sidecar -demo
run go run ./examples/dashboard -for 8s -png "$(mktemp -d)/dashboard.png"
run go run ./examples/batch -demo
run go run ./examples/observe -listen 127.0.0.1:0 -for 5s
if command -v redis-server >/dev/null; then
	run go run ./examples/redis
fi
run go run ./examples/fleet -out "$(mktemp -d)/fleet.svg"
