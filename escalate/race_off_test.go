//go:build !race

package escalate

const raceEnabled = false
