// Package quality holds the test of what the scheduler alone is worth: a
// recorded trace against simulated engines in virtual time, without HTTP and
// without a wall clock. The scheduler, its ledger and the index are the real
// ones, fed by the engines' events as bytes and by load samples that come late,
// as a scrape delivers them. Equal settings give equal numbers on every machine.
package quality
