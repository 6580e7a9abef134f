//go:build race

package bucket_test

// raceEnabled is for tests whose size is their point, which the race detector makes ten times slower.
const raceEnabled = true
