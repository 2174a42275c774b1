package kvindex

import (
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
)

// ErrDetached reports events for an endpoint that is not attached, or no
// longer the one they were meant for.
var ErrDetached = errors.New("kvindex: endpoint is not attached")

// Index knows which endpoints hold which blocks. Its zero value is not ready;
// New makes one. All methods may be called at once.
//
// Its invariants, where "copies" are those an endpoint has announced and not
// yet removed or cleared, and a "resolved" block is one whose own hash is known:
//
//  1. A block is resolved by its tokens, the own hash of its parent and what
//     the engine said its hash takes in besides; never by a guess. Until then
//     its copies are counted and nobody is credited.
//  2. An endpoint is in the holder set of an own hash, in a tier, iff each of its
//     groups that prove a prefix has a copy of a resolved block with that hash
//     in that tier.
//  3. An own hash without holders is absent from the table, and a holder set
//     without blocks is forgotten.
//  4. In one group of one endpoint at most one engine hash is resolved to an own
//     hash: the newest.
//  5. Copies on the GPU are counted one by one; other tiers are held or not.
//  6. Match reports depth d for an endpoint only if, for every i < d, the
//     endpoint was in the GPU set of block i, or, from some block on, in the CPU
//     set of every block.
//
// Writers of one endpoint exclude each other; writers of different endpoints
// meet for the length of one block. Match takes no lock that a writer waits
// under or holds.
type Index struct {
	table table

	mu        sync.Mutex                  // serializes Attach and Detach
	endpoints atomic.Pointer[[]*endpoint] // by EndpointID; nil entries are free
}

// New returns an empty index.
func New() *Index {
	x := &Index{}
	x.table.sets.init()
	x.endpoints.Store(&[]*endpoint{})
	return x
}

// Attach makes e known with no blocks, forgetting whatever an earlier endpoint
// of that ID had. model is the base model that namespaces its blocks: the same
// text for every endpoint that serves it, and Namespace.Model at look-up.
func (x *Index) Attach(e EndpointID, model string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := *x.endpoints.Load()
	eps := make([]*endpoint, max(len(old), int(e)+1))
	copy(eps, old)
	if eps[e] != nil {
		x.detach(eps[e])
	}
	eps[e] = newEndpoint(e, model)
	x.endpoints.Store(&eps)
}

// Detach forgets e and everything it held. Events that arrive for it later are
// refused, also after the ID is attached again when they come through a Feed
// of the old one.
func (x *Index) Detach(e EndpointID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	ep := x.endpoint(e)
	if ep == nil {
		return
	}
	old := *x.endpoints.Load()
	eps := make([]*endpoint, len(old))
	copy(eps, old)
	eps[e] = nil
	x.endpoints.Store(&eps)
	x.detach(ep)
}

func (x *Index) detach(ep *endpoint) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.detached = true
	x.clearLocked(ep)
}

// Clear forgets all blocks of e in every tier; e stays attached.
func (x *Index) Clear(e EndpointID) {
	if ep := x.endpoint(e); ep != nil {
		x.clear(ep)
	}
}

func (x *Index) clear(ep *endpoint) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	x.clearLocked(ep)
}

// Apply takes in what e reported, in order. It returns ErrDetached when e is
// not attached; nothing inside a batch is an error, what cannot be used is
// counted in EndpointStats. The batch is not kept.
func (x *Index) Apply(e EndpointID, b EventBatch) error {
	ep := x.endpoint(e)
	if ep == nil {
		return ErrDetached
	}
	return x.apply(ep, &b)
}

// BlockSize returns the tokens per block as e's GPU events report it, 0 before
// the first stored block. Attach sets it back to 0, Clear does not.
func (x *Index) BlockSize(e EndpointID) int {
	ep := x.endpoint(e)
	if ep == nil {
		return 0
	}
	return int(ep.blockSize.Load())
}

func (x *Index) endpoint(e EndpointID) *endpoint {
	eps := *x.endpoints.Load()
	if int(e) >= len(eps) {
		return nil
	}
	return eps[e]
}

// stackWords is the bitmap size, for 1024 endpoints, up to which Match works
// on the stack.
const stackWords = 16

// matchScratch serves fleets beyond stackWords.
var matchScratch = sync.Pool{New: func() any { return new([]uint64) }}

// Match sets depth[e], for every e < len(depth), to the number of leading
// hashes that e holds: on its GPU, then, from where the GPU prefix ends, in its
// CPU tier, which is the order in which engines look. It stops at the first
// block nobody holds, and allocates nothing.
func (x *Index) Match(hashes []BlockHash, depth []int) {
	clear(depth)
	if len(hashes) == 0 || len(depth) == 0 {
		return
	}
	var stack [2 * stackWords]uint64
	words := (len(depth) + 63) / 64
	if words <= stackWords {
		x.match(hashes, depth, stack[:words], stack[stackWords:stackWords+words])
		return
	}
	scratch := matchScratch.Get().(*[]uint64) //nolint:errcheck,forcetypeassert // the pool holds nothing else
	if len(*scratch) < 2*words {
		*scratch = make([]uint64, 2*words)
	}
	clear(*scratch)
	x.match(hashes, depth, (*scratch)[:words], (*scratch)[words:2*words])
	matchScratch.Put(scratch)
}

// match keeps the endpoints that hold everything so far, apart by whether the
// GPU alone does (gpu) or the CPU tier has taken over (cpu).
func (x *Index) match(hashes []BlockHash, depth []int, gpu, cpu []uint64) {
	for i := range gpu {
		gpu[i] = ^uint64(0)
	}
	if r := len(depth) % 64; r != 0 {
		gpu[len(gpu)-1] = 1<<r - 1
	}
	sets := &x.table.sets
	sets.reading.RLock()
	defer sets.reading.RUnlock()
	var last setID
	for i, h := range hashes {
		id := x.table.find(h)
		if id == 0 {
			finish(depth, gpu, cpu, i)
			return
		}
		if id == last {
			continue // whoever is left is in this set
		}
		last = id
		if !narrow(depth, gpu, cpu, sets.get(id), i) {
			return
		}
	}
	finish(depth, gpu, cpu, len(hashes))
}

// narrow keeps the endpoints that set continues, and gives the others depth d.
// It returns false when none is left.
func narrow(depth []int, gpu, cpu []uint64, set *holderSet, d int) bool {
	left := uint64(0)
	for w := range gpu {
		before := gpu[w] | cpu[w]
		if before == 0 {
			continue
		}
		var onGPU, onCPU uint64
		if w < len(set.tiers[TierGPU]) {
			onGPU = set.tiers[TierGPU][w]
		}
		if w < len(set.tiers[TierCPU]) {
			onCPU = set.tiers[TierCPU][w]
		}
		cpu[w] = (cpu[w] | gpu[w]&^onGPU) & onCPU
		gpu[w] &= onGPU
		after := gpu[w] | cpu[w]
		for gone := before &^ after; gone != 0; gone &= gone - 1 {
			depth[w*64+bits.TrailingZeros64(gone)] = d
		}
		left |= after
	}
	return left != 0
}

// finish gives depth d to the endpoints that are left.
func finish(depth []int, gpu, cpu []uint64, d int) {
	for w := range gpu {
		for left := gpu[w] | cpu[w]; left != 0; left &= left - 1 {
			depth[w*64+bits.TrailingZeros64(left)] = d
		}
	}
}
