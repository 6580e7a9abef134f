// Package meteredredis keeps one budget for a fleet, on Redis or Valkey.
//
// A provider limits the whole account. Ten processes with ten limiters each think that they have the full quota;
// the processes that share a Limiter's store, prefix and keys have it once:
//
//	limiter, err := meteredredis.New(client, meteredredis.Config{Limits: []bucket.Limit{
//		bucket.PerMinute(bucket.Requests, 9_000),
//		bucket.PerMinute(bucket.Tokens, 1_500_000),
//	}})
//	...
//	stack, err := middleware.New(middleware.Config{Limiter: limiter})
//
// # What it promises
//
// A [Limiter] keeps the contracts of bucket.Local over all processes together: several limits at once, all or
// nothing; both shapes; settlement both ways; debt; holds, and the ramp after them; reports; overdue probes, one
// at a time; refusal of calls that could not leave before their deadline. One decision is one script on one
// hash, so it is one slot of a cluster. Time is the server's. A 429 anywhere is known everywhere: once the
// refusal has reached the store, no process is admitted before the hold ends.
//
// One call to the store is under way for each key and process. Who comes meanwhile goes with the next one, as
// do settlements and reports: a hundred goroutines cost one round trip. Who must wait is told by the store when
// to come again; where that is more than a second, the head of the line asks once a second, since another process
// may have given something back. Nothing is handed out in advance: a process that dies takes no more with it than
// what its open calls cost.
//
// # What it does not
//
// Order is first in, first out within a process. Between processes the head that has waited longest has a claim
// on what comes back; who stands behind it in its process has none.
//
// MaxInFlight, MaxQueue and MaxKeys are each process's own.
//
// The log of a Window is kept in slices of a 256th of its length; what was admitted in one counts from the last
// of it. It never admits more than the limit, and may admit a little later than bucket.Local would.
//
// A take that the store did not answer in time may have happened. It is not sent again, and its charge, if there
// was one, stays until it has been refilled; so does a refund that got lost. Both err on the safe side.
//
// Limits that processes were told differently are the lowest that any of them was told lately.
//
// # When the store is away
//
// A call of the store that fails or takes longer than Config.Timeout ends the use of it: Config.OnStoreDown says
// how calls are admitted until a search in the background finds it again. Under [LocalShare], the default, no
// call fails for want of the store. A store that comes back empty, after a flush or a failover, does not mean a
// full bucket: each process declares what it knew before anything is taken, and the lowest level holds. After an
// outage, also one of a store that has forgotten nothing but did not hear of what was admitted meanwhile, it
// starts from what is left of one process's share, and all go back to it at one instant, about a second after
// the first has found it: until then each keeps to its share. A process that alone loses the store, or finds it too
// slow, has its share beside the others, who have the whole: for so long the fleet may take that much more than the
// limit. It is owed when the process is back, and waited for by all.
//
// Nothing newer than Redis 6.2 is used. Tested on Redis 7.0, on a cluster of three, and on a failover to a replica.
package meteredredis
