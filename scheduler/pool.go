package scheduler

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/warmroute/kvindex"
)

// Pool is the set of endpoints with what each last reported. Readers load a
// snapshot that never changes; Set and Report, one at a time, publish the next.
//
// (1) no two endpoints of a snapshot have the same Spec or the same ID;
// (2) IDs are the smallest that are free, except that an ID released by a Set
// is not given away by the same Set;
// (3) an endpoint keeps its ID and what we know about it for as long as each
// Set names its Spec.
type Pool struct {
	epoch    time.Time // origin of the times kept as durations
	snapshot atomic.Pointer[snapshot]

	mu   sync.Mutex // serializes the writers
	used []bool     // by ID
}

// snapshot is one state of the pool.
type snapshot struct {
	endpoints []*Endpoint  // in the order Set named them
	index     map[Spec]int // into endpoints; shared by the snapshots between two Sets
	ids       int          // one more than the largest ID in use
}

// NewPool returns a pool without endpoints.
func NewPool() *Pool {
	p := &Pool{epoch: time.Now()}
	p.snapshot.Store(&snapshot{})
	return p
}

// Snapshot returns the endpoints as they are now. The slice and what it points
// to are shared and must not be changed.
func (p *Pool) Snapshot() []*Endpoint { return p.snapshot.Load().endpoints }

// since returns the time from the pool's epoch to t. Picks compare times with
// every endpoint, and durations compare at a tenth of the cost.
func (p *Pool) since(t time.Time) time.Duration { return t.Sub(p.epoch) }

// Set makes specs the endpoints of the pool and returns which were new to it
// and which it no longer has. A Spec named twice counts once; addresses are
// stored without the IPv4-in-IPv6 form. It names at most 65,536 endpoints; the
// rest is ignored.
//
// The caller must have stopped applying events for a removed endpoint before
// it calls Set again, because the ID may then name another endpoint.
func (p *Pool) Set(specs []Spec) (added, removed []*Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()

	old := p.snapshot.Load()
	next := &snapshot{endpoints: make([]*Endpoint, 0, len(specs)), index: make(map[Spec]int, len(specs))}
	for _, s := range specs {
		s.Addr = netip.AddrPortFrom(s.Addr.Addr().Unmap(), s.Addr.Port())
		s.Rank = max(s.Rank, -1)
		if _, twice := next.index[s]; twice {
			continue
		}
		var e *Endpoint
		if i, ok := old.index[s]; ok {
			e = old.endpoints[i]
		} else {
			id, free := p.takeIDLocked()
			if !free {
				continue
			}
			e = &Endpoint{ID: id, Addr: s.Addr, Rank: s.Rank, own: newLedger()}
			added = append(added, e)
		}
		next.index[s] = len(next.endpoints)
		next.endpoints = append(next.endpoints, e)
		next.ids = max(next.ids, int(e.ID)+1)
	}
	for _, e := range old.endpoints {
		if _, stays := next.index[e.Spec()]; !stays {
			removed = append(removed, e)
			p.used[e.ID] = false
		}
	}
	p.snapshot.Store(next)
	return added, removed
}

// takeIDLocked returns the smallest free ID.
func (p *Pool) takeIDLocked() (kvindex.EndpointID, bool) {
	i := slices.Index(p.used, false)
	if i < 0 {
		i = len(p.used)
		if i > int(^kvindex.EndpointID(0)) {
			return 0, false
		}
		p.used = append(p.used, false)
	}
	p.used[i] = true
	return kvindex.EndpointID(i), true
}

// Report is news about one endpoint.
type Report struct {
	Up        bool
	Load      Load      // ignored when its At is zero: what was known before stays, and ages
	Identity  *Identity // nil when nothing new was learned
	Restarted bool      // the engine started again: its queue is empty
}

// Report merges r into the endpoint that s names and reports whether there is
// one: news about an endpoint that has left is dropped.
func (p *Pool) Report(s Spec, r Report) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	old := p.snapshot.Load()
	i, ok := old.index[s]
	if !ok {
		return false
	}
	e := *old.endpoints[i]
	e.Up = r.Up
	if r.Identity != nil {
		e.Identity = *r.Identity
	}
	if r.Restarted {
		e.Load = Load{}
		e.own.restart()
	}
	if !r.Load.At.IsZero() {
		e.Load, e.loadAt = r.Load, p.since(r.Load.At)
		if e.Load.complete() {
			e.own.observe(e.loadAt, &e.Load)
		}
	}
	next := &snapshot{endpoints: slices.Clone(old.endpoints), index: old.index, ids: old.ids}
	next.endpoints[i] = &e
	p.snapshot.Store(next)
	return true
}
