// Package e2e holds the tests of the whole program: a real Envoy, simulated
// engines and the picker, as separate processes. `make e2e` builds what they
// need and runs them. The folders below it start such a set of processes
// (stack), replay a trace through it (replay) and compare two replays (demo).
package e2e
