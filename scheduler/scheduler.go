// Package scheduler chooses the endpoint that answers a request first.
//
// It keeps the set of endpoints with what they last reported, weighs the
// prompt tokens each would still have to compute against the work it already
// has, and names one. Pick may be called from many goroutines at once; it does
// no I/O and never blocks on a writer.
package scheduler

import (
	"errors"
	"net/netip"
	"time"
)

// ErrNoEndpoint reports that no endpoint may serve the request: there are
// none, none is up, none serves the model, or the subset names none of them.
// The wrapping error says which.
var ErrNoEndpoint = errors.New("scheduler: no endpoint")

// Request is one prompt to place.
type Request struct {
	Model string // model or adapter name as the client wrote it; empty when it wrote none
	Salt  string // cache_salt; empty for none

	// Tokens is the whole prompt as the engine will compute it. It is empty
	// when Untokenized says why it could not be made.
	Tokens      []uint32
	Untokenized string // bounded label: why there are no Tokens; empty otherwise

	Bodyless bool // the request carries no prompt at all, such as GET /v1/models

	// Subset restricts the candidates to these addresses when HasSubset is set;
	// a zero port matches every port of the address (EPP protocol, Subset).
	Subset    []netip.AddrPort
	HasSubset bool

	Now time.Time // when the request arrived
}

// Decision is the endpoint a request goes to, and why.
type Decision struct {
	Endpoint netip.AddrPort
	Rank     int    // data-parallel rank behind Endpoint, -1 when it has only one
	Reason   Reason // the one reason that decided
	Matched  int    // leading prompt tokens the endpoint already holds
	Prompt   int    // prompt tokens in all, 0 when unknown
}

// Reason says what decided a pick. Its values are metric labels.
type Reason string

// The reasons of a pick; exactly one applies to each.
const (
	ReasonPrefix      Reason = "prefix"        // the warmest endpoint won
	ReasonBalanced    Reason = "balanced"      // another beat the warmest on cost
	ReasonNoOverlap   Reason = "no_overlap"    // nobody holds any block of the prompt
	ReasonUntokenized Reason = "untokenizable" // no tokens, placed by load
	ReasonNoIndex     Reason = "no_index"      // no candidate has reported blocks yet, placed by load
	ReasonNoLoad      Reason = "no_load"       // no candidate has reported its load yet
	ReasonSingle      Reason = "single"        // only one endpoint exists
	ReasonSubset      Reason = "subset"        // the subset left only one
	ReasonUnserved    Reason = "unserved"      // no endpoint, up or down, has the model; any that is up says so itself
	ReasonBodyless    Reason = "bodyless"      // no prompt to place
)
