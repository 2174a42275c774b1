package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warmroute/warmroute/kvindex"
)

// Index answers which blocks endpoints hold.
type Index interface {
	// Match sets depth[e] to the number of leading hashes endpoint e holds.
	Match(hashes []kvindex.BlockHash, depth []int)

	// BlockSize returns the tokens per block of what e reported, 0 before its
	// first block.
	BlockSize(e kvindex.EndpointID) int
}

// Scheduler picks endpoints. It may be used from many goroutines at once.
type Scheduler struct {
	cfg   Config
	pool  *Pool
	index Index

	scratch sync.Pool // of *scratch
	ties    atomic.Uint64
	stats   counters
}

// New returns a scheduler over the endpoints of pool and the blocks of index.
// It panics when cfg does not validate.
func New(cfg Config, pool *Pool, index Index) *Scheduler {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	s := &Scheduler{cfg: cfg.withDefaults(), pool: pool, index: index}
	s.scratch.New = func() any { return new(scratch) }
	seed := cfg.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	s.ties.Store(seed)
	return s
}

// candidate is an endpoint that may serve the request.
type candidate struct {
	endpoint *Endpoint
	group    int // into scratch.groups, -1 when it has reported no blocks
	matched  int // prompt tokens it holds
	cost     cost
}

// group is a set of endpoints for which the prompt has the same hashes.
type group struct {
	base, adapter string
	blockSize     int
}

// scratch is the memory of one pick.
type scratch struct {
	candidates []candidate
	groups     []group
	hashes     []kvindex.BlockHash
	depth      []int
	subset     []netip.AddrPort

	unserved    bool   // no endpoint has the model
	up, serving int    // endpoints left after the first filters
	model       string // the inventory's own copy of the model name, for counting
}

// maxHashes bounds the hashes kept between picks, 512 KiB: a prompt of a
// million tokens in blocks of 16.
const maxHashes = 64 << 10

// release gives the scratch back without holding on to endpoints.
func (s *Scheduler) release(sc *scratch) {
	if cap(sc.hashes) > maxHashes {
		return
	}
	clear(sc.candidates)
	clear(sc.groups)
	sc.model = ""
	s.scratch.Put(sc)
}

// Pick chooses the endpoint with the lowest expected cost for req and reserves
// the work there. The error wraps ErrNoEndpoint, and says which condition no
// endpoint met, or is that of ctx.
func (s *Scheduler) Pick(ctx context.Context, req *Request) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	sc := s.scratch.Get().(*scratch)
	defer s.release(sc)

	snap := s.pool.snapshot.Load()
	s.filter(sc, snap, req)
	if len(sc.candidates) == 0 {
		return Decision{}, s.none(sc, snap, req)
	}
	s.match(sc, snap, req)

	prompt, now := s.promptTokens(req), s.pool.since(req.Now)
	s.price(sc.candidates, prompt, now)
	best := cheapest(sc.candidates, s.random)

	c := &sc.candidates[best]
	d := Decision{
		Endpoint: c.endpoint.Addr,
		Rank:     c.endpoint.Rank,
		Reason:   reason(sc, best, req),
		Matched:  c.matched,
		Prompt:   len(req.Tokens),
	}
	if !req.Bodyless {
		work := s.prefill(prompt - c.matched)
		c.endpoint.own.reserve(now, time.Duration(work*float64(time.Second)), prompt)
	}
	s.stats.count(sc.model, d)
	return d, nil
}

// promptTokens returns the length of the prompt, assumed when it is not known.
func (s *Scheduler) promptTokens(req *Request) int {
	switch {
	case req.Bodyless:
		return 0
	case len(req.Tokens) == 0 && req.Untokenized != "":
		return s.cfg.UnknownPrompt
	}
	return len(req.Tokens)
}

// filter collects the endpoints that are up, serve the model and are in the
// subset, and counts what each condition left.
//
// A model that no endpoint has, one that is down included, is one the client
// misspelt or an adapter loaded since the engines were last asked. Every
// endpoint that is up is then a candidate: its answer is better than ours.
func (s *Scheduler) filter(sc *scratch, snap *snapshot, req *Request) {
	sc.candidates, sc.groups = sc.candidates[:0], sc.groups[:0]
	sc.up, sc.serving = 0, 0
	if req.HasSubset {
		sc.subset = sc.subset[:0]
		for _, a := range req.Subset {
			sc.subset = append(sc.subset, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
		}
		slices.SortFunc(sc.subset, netip.AddrPort.Compare)
	}

	sc.unserved = !slices.ContainsFunc(snap.endpoints, func(e *Endpoint) bool {
		_, ok := e.serves(req.Model)
		return ok
	})

	for _, e := range snap.endpoints {
		if !e.Up {
			continue
		}
		sc.up++
		m, ok := e.serves(req.Model)
		if !ok && !sc.unserved {
			continue
		}
		sc.serving++
		if m.Name != "" {
			sc.model = m.Name
		} else if sc.model == "" && req.Model == "" {
			sc.model = e.Base
		}
		if req.HasSubset && !inSubset(sc.subset, e.Addr) {
			continue
		}
		group := -1
		if ok {
			group = s.group(sc, e, m.Adapter)
		}
		sc.candidates = append(sc.candidates, candidate{endpoint: e, group: group})
	}
	if sc.unserved {
		sc.model = otherModels
	}
}

// inSubset reports whether the sorted subset names a, with its port or with
// none.
func inSubset(subset []netip.AddrPort, a netip.AddrPort) bool {
	if _, ok := slices.BinarySearchFunc(subset, a, netip.AddrPort.Compare); ok {
		return true
	}
	_, ok := slices.BinarySearchFunc(subset, netip.AddrPortFrom(a.Addr(), 0), netip.AddrPort.Compare)
	return ok
}

// group returns the hash group of e, a new one when it is the first of its
// kind, and -1 when e has reported no blocks.
func (s *Scheduler) group(sc *scratch, e *Endpoint, adapter string) int {
	g := group{base: e.Base, adapter: adapter, blockSize: s.index.BlockSize(e.ID)}
	if g.blockSize <= 0 {
		return -1
	}
	i := slices.Index(sc.groups, g)
	if i < 0 {
		i = len(sc.groups)
		sc.groups = append(sc.groups, g)
	}
	return i
}

// match finds how many prompt tokens each candidate holds.
//
// The last token is always computed, because its output is what the engine
// needs to go on; so a prompt of n tokens reuses the full blocks of n-1 at
// most, which is what vLLM reports as cached.
func (s *Scheduler) match(sc *scratch, snap *snapshot, req *Request) {
	if len(req.Tokens) < 2 {
		return
	}
	tokens := req.Tokens[:len(req.Tokens)-1]
	sc.depth = slices.Grow(sc.depth[:0], snap.ids)[:snap.ids]
	for i, g := range sc.groups {
		root := kvindex.Namespace{Model: g.base, Adapter: g.adapter, Salt: req.Salt}.Root(g.blockSize)
		sc.hashes = kvindex.AppendHashes(sc.hashes[:0], root, tokens, g.blockSize)
		if len(sc.hashes) == 0 {
			continue
		}
		s.index.Match(sc.hashes, sc.depth)
		for j := range sc.candidates {
			if c := &sc.candidates[j]; c.group == i {
				c.matched = g.blockSize * min(sc.depth[c.endpoint.ID], len(sc.hashes))
			}
		}
	}
}

// reason says what decided that candidate best was picked. Of the reasons that
// apply it is the first of:
//
//	bodyless       there was nothing to place
//	unserved       nobody has the model
//	single         no other endpoint could serve the model
//	subset         the subset left no other
//	untokenizable  the prompt is not known
//	no_index       no candidate has reported blocks
//	prefix         the pick holds as much of the prompt as any candidate
//	balanced       another holds more, and was dearer
//	no_load        nobody holds any of it, nobody reported its load
//	no_overlap     nobody holds any of it
//
// What hides a cache miss comes before what it leads to: an operator who looks
// for silent misses finds each under its cause.
func reason(sc *scratch, best int, req *Request) Reason {
	warmest, indexed, loaded := 0, false, false
	for i := range sc.candidates {
		c := &sc.candidates[i]
		warmest = max(warmest, c.matched)
		indexed = indexed || c.group >= 0
		loaded = loaded || c.cost.known
	}
	switch {
	case req.Bodyless:
		return ReasonBodyless
	case sc.unserved:
		return ReasonUnserved
	case sc.serving == 1:
		return ReasonSingle
	case len(sc.candidates) == 1:
		return ReasonSubset
	case req.Untokenized != "":
		return ReasonUntokenized
	case !indexed:
		return ReasonNoIndex
	case warmest > 0 && sc.candidates[best].matched == warmest:
		return ReasonPrefix
	case warmest > 0:
		return ReasonBalanced
	case !loaded:
		return ReasonNoLoad
	}
	return ReasonNoOverlap
}

// none says which condition no endpoint met, and counts it.
func (s *Scheduler) none(sc *scratch, snap *snapshot, req *Request) error {
	switch all := len(snap.endpoints); {
	case all == 0:
		s.stats.noneKnown.Add(1)
		return fmt.Errorf("%w: none is known", ErrNoEndpoint)
	case sc.up == 0:
		s.stats.noneUp.Add(1)
		return fmt.Errorf("%w: none of %d is up", ErrNoEndpoint, all)
	case sc.serving == 0:
		s.stats.noneServes.Add(1)
		return fmt.Errorf("%w: none of the %d that are up serves model %.100q", ErrNoEndpoint, sc.up, req.Model)
	default:
		s.stats.noneInSubset.Add(1)
		return fmt.Errorf("%w: the subset of %d names none of the %d that serve the request", ErrNoEndpoint, len(req.Subset), sc.serving)
	}
}

// random is splitmix64 over a shared counter: reproducible from a seed, and
// without a lock.
func (s *Scheduler) random() uint64 {
	z := s.ties.Add(0x9e3779b97f4a7c15)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
