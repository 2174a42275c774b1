package scheduler

import (
	"math"
	"net/netip"
	"strconv"
	"time"

	"github.com/warmroute/warmroute/kvindex"
)

// Endpoint is one engine a request can go to: an address and, when several
// data-parallel ranks share that address, one of them. An Endpoint that was
// published is never changed; a report makes a new one.
type Endpoint struct {
	ID   kvindex.EndpointID
	Addr netip.AddrPort
	Rank int // data-parallel rank behind Addr, -1 when the address has only one

	Identity
	Load Load
	Up   bool // answered when last asked; false until it did so once

	loadAt time.Duration // Load.At since the pool's epoch
	own    *ledger       // what we sent there, shared by every version of this endpoint
}

// Spec names an endpoint before anything is known about it. It is the
// identity of an endpoint: an address alone may hide several ranks.
type Spec struct {
	Addr netip.AddrPort
	Rank int // -1 when the address has only one rank
}

// Spec returns what identifies the endpoint.
func (e *Endpoint) Spec() Spec { return Spec{Addr: e.Addr, Rank: e.Rank} }

// String returns ip:port, followed by #rank when the address has several.
func (s Spec) String() string {
	if s.Rank < 0 {
		return s.Addr.String()
	}
	return s.Addr.String() + "#" + strconv.Itoa(s.Rank)
}

// Identity is what an engine says about itself and keeps until it restarts,
// except for adapters, which come and go.
type Identity struct {
	Base      string  // base model; namespaces its blocks
	Models    []Model // names it answers to; empty when unknown: it is then tried for every model
	BlockSize int     // tokens per KV block, 0 when unknown
	KVBlocks  int     // KV blocks of this rank, 0 when unknown
}

// Model is one name a request may use, and the adapter behind it.
type Model struct {
	Name    string
	Adapter string // LoRA adapter; empty for the base model and its aliases
}

// serves returns the model entry that answers to name. An empty name is the
// engine's default, its base model; an endpoint whose models are not known
// yet serves every name.
func (id *Identity) serves(name string) (Model, bool) {
	if name == "" || len(id.Models) == 0 {
		return Model{}, true
	}
	for _, m := range id.Models {
		if m.Name == name {
			return m, true
		}
	}
	return Model{}, false
}

// Load is one sample of an engine's own load figures. A figure that was not
// reported is negative, which is a state of its own and never means idle.
type Load struct {
	Waiting int     // requests queued
	Running int     // requests in the running batch
	KVUsage float64 // referenced KV blocks / all of them, 0..1

	PrefixQueries float64 // prompt tokens looked up in the prefix cache since the engine started
	PrefixHits    float64 // of those, tokens found

	At time.Time // when the sample was taken; zero when there never was one
}

// UnknownLoad is a sample taken at a time when the engine reported none of
// the figures.
func UnknownLoad(at time.Time) Load {
	return Load{Waiting: -1, Running: -1, KVUsage: -1, PrefixQueries: -1, PrefixHits: -1, At: at}
}

// complete reports whether the sample was taken and each figure that is costed
// was reported.
func (l *Load) complete() bool {
	return !l.At.IsZero() && l.Waiting >= 0 && l.Running >= 0 && l.KVUsage >= 0 && !math.IsInf(l.KVUsage, 1)
}
