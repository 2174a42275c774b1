//go:build race

package scheduler

// raceEnabled says that sync.Pool drops what it is given at random, so that
// allocation counts mean nothing.
const raceEnabled = true
