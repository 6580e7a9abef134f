//go:build race

package bench

// The race detector bears no more than 8,128 goroutines, and changes what is
// allocated.
const raceDetector = true
