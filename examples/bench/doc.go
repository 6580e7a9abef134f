// Package bench measures meteredhttp beside its peers, in the same run.
//
//	cd examples && go test ./bench -bench 'Acquire|Stack|Adapters' -benchmem
//
// # How to read it
//
// Nanoseconds differ from one machine, and from one minute, to the next. So each
// benchmark runs ours and the peers in turns, some thousand operations each, over
// and over, and prints the ratio of the two beside its own time. A number that
// begins with "x/" is such a ratio, ours over the peer's: x/peer 0.50 is half the
// peer's time. ns/op, B/op and allocs/op are ours; where the peer's own time is
// of use, it stands there with the peer's name, as peer-ns.
//
//   - BenchmarkAcquire takes a call's budget and settles it. The peer is a pair of
//     limiters of golang.org/x/time/rate, one for requests and one for tokens, that
//     are asked with Allow: what one writes without this library. The pair knows no
//     keys, gives nothing back and does not take both or nothing.
//   - BenchmarkStack sends a POST of 1 KiB through everything that middleware.New
//     builds, with a backup route, on a call that is served. "added" is what is
//     left when the time of the bare transport, which is in memory and allocates
//     nothing, is taken away. x/rival and x/failsafe are ratios of added times.
//     The rival is wired by hand from go-retryablehttp, two limiters of x/time/rate
//     and gobreaker; failsafe is failsafe-go's RoundTripper with its retry policy,
//     circuit breaker and rate limiter. See peers_test.go for how they are set up.
//   - BenchmarkLayers builds the Stack up layer by layer, to show what each one adds.
//   - BenchmarkAdapters calls through resty and retryablehttp: bare, with a Stack
//     under them by hand, and with one installed by its adapter. "added" is over the
//     bare host, "over-hand" is what the adapter itself costs.
//   - BenchmarkWaiters lets crowds wait on one key, and grants them all at once.
//
// TestMultiply counts, with -v, how often one call is sent to a server that refuses
// everything, by each host with and without ours.
//
// TestGoodput is of another kind: it runs a batch of jobs against seven servers that
// meter in seven ways, on virtual time, and prints what each of twelve other clients and
// ours make of it: makespan over the least possible and wasted calls, medians of five, how
// long a job takes, and the jobs that each library's default budget loses. With -v it draws
// the table as goodput.svg in this folder, or in the file that a flag names.
//
// The servers publish the same limits. R and T are a bucket of a minute, of requests and of
// tokens; W and WT count by fixed windows of a minute; Q and QT refill ten or a hundred times a
// second with a small bucket; at S, like Q, a refused call costs a permit too.
//
//	cd examples && go test ./bench -run Goodput -v [-goodput.svg FILE]
//
// The other clients never give up, so that time and waste are all there is to compare. They
// are told what ours is: the published requests and tokens a minute.
//
// Under the race detector and with -short ours alone is run, once.
//
// TestComparison is all of that and more on one page: ours and eight peers, what a take and a request
// cost, connections, jobs lost, sends under stacked retries, and where ours loses. It writes
// docs/COMPARISON.md, or with -v alone prints it.
//
//	cd examples && go test ./bench -run Comparison -v [-args -comparison.write]
//
// TestIncident starts 512 agents within a second on a key of 1,500,000 tokens and 9,000
// requests a minute, and counts after six minutes which of them live, how much of the
// budget they used, and how many calls were refused. The calls cost 2,000 to 20,000
// tokens, bounded Pareto with a mean of 4,900, and take 1.5 to 4.5 s.
//
//	cd examples && go test ./bench -run Incident -v
//
// TestVariantsWithLoweredAndRaisedLimits and the other TestVariants are the batch, or work
// without end, with one thing otherwise; TestRandomServers draws the servers.
//
//	cd examples && go test ./bench -run 'Variants|RandomServers' -v
//
// What must hold wherever it runs (allocations, bytes for each waiter, order) is
// held by tests, without a clock. They need a build without the race detector,
// which changes what is allocated; under it they check less, and say so.
package bench
