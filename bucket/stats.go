package bucket

import "time"

// KeyStats is a snapshot of one key.
type KeyStats struct {
	Key        string
	Queued     int           // calls waiting
	InFlight   int           // open grants
	HeldFor    time.Duration // until the hold ends; 0 when there is none
	OldestSlot time.Duration // age of the oldest open grant; 0 when there is none
	Levels     []Level       // one for each limit, in the order of the configuration
}

// Level is what one limit has left.
type Level struct {
	Limit     Limit
	Available float64 // below zero is debt
	Capacity  float64 // the most it holds, Headroom included
}
