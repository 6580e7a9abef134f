//go:build race

package escalate

// The race detector makes sync.Pool forget at random.
const raceEnabled = true
