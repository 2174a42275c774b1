package kvindex

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// Bounds on what one endpoint can make the index keep beyond the blocks it
// really has. Reaching one costs credit, never correctness, and is counted.
const (
	maxGroups        = 32      // KV cache groups; hybrid models have a handful
	maxAdapters      = 1 << 14 // adapter names
	maxUnresolved    = 1 << 16 // blocks whose own hash is not known
	maxWaiting       = 1 << 10 // runs of blocks whose parent is not known
	maxWaitingTokens = 1 << 20 // tokens in them
)

// endpoint is what one endpoint has told. Fields below mu are guarded by it.
type endpoint struct {
	id        EndpointID
	model     string
	blockSize atomic.Int64

	mu       sync.Mutex
	detached bool
	sized    bool // blockSize is of the current blocks, not of those before a clear
	groups   []*group
	proving  uint32            // bits of the groups that prove a prefix
	adapters map[string]uint16 // interned names; 0 is the base model

	// masks says, by own hash and tier, which groups have a copy. It is nil
	// while at most one group proves: then the blocks themselves say it.
	masks map[BlockHash]*[numTiers]uint32

	waiting       map[waitKey][]*span // by the parent they wait for
	waitingQueue  []*span             // oldest first; resolved ones stay until they are popped
	waitingTokens int

	// reportsHits is set once the engine was seen to repeat, by request, the
	// blocks that a prompt hit (vLLM's kv_cache_report_mode "full").
	reportsHits bool

	keys  []BlockHash // scratch
	stats EndpointStats
}

func newEndpoint(e EndpointID, model string) *endpoint {
	return &endpoint{id: e, model: model, adapters: map[string]uint16{"": 0}, waiting: make(map[waitKey][]*span)}
}

// group is one KV cache group of an endpoint: layers that cache alike.
type group struct {
	index  int
	proves bool
	bit    uint32 // in endpoint.proving; 0 unless it proves
	blocks blockMap
}

// block is what is known of one engine hash in one group.
type block struct {
	own     BlockHash // meaningful when resolved
	root    uint32    // of the engine hash of the prompt's first block: tells chains apart
	adapter uint16    // endpoint.adapters
	gpu     uint8     // copies on the GPU, counted up to 255
	flags   uint8
}

const (
	flagResolved uint8 = 1 << iota
	flagCPU
	flagOther

	// The rest counts the GPU copies that may have been no copies but reports
	// of a hit, up to 31.
	oneMaybe
	maybeMask = ^(oneMaybe - 1)
)

func (b block) resolved() bool { return b.flags&flagResolved != 0 }
func (b block) maybe() uint8   { return b.flags / oneMaybe }

func (b *block) setMaybe(n uint8) { b.flags = b.flags&^maybeMask | n*oneMaybe }

func (b block) in(t Tier) bool {
	switch t {
	case TierGPU:
		return b.gpu > 0
	case TierCPU:
		return b.flags&flagCPU != 0
	default:
		return b.flags&flagOther != 0
	}
}

func (b block) exists() bool { return b.gpu > 0 || b.flags&(flagCPU|flagOther) != 0 }

func (b *block) add(t Tier) {
	switch t {
	case TierGPU:
		if b.gpu < math.MaxUint8 {
			b.gpu++
		}
	case TierCPU:
		b.flags |= flagCPU
	default:
		b.flags |= flagOther
	}
}

func (b *block) remove(t Tier) {
	switch t {
	case TierGPU:
		b.gpu--
		b.setMaybe(min(b.maybe(), b.gpu))
	case TierCPU:
		b.flags &^= flagCPU
	default:
		b.flags &^= flagOther
	}
}

// groupOf returns the group an event belongs to when its blocks prove a
// prefix, and nil otherwise.
func (x *Index) groupOf(ep *endpoint, index int, specKind string) *group {
	i := slices.IndexFunc(ep.groups, func(g *group) bool { return g.index == index })
	if i < 0 {
		if len(ep.groups) == maxGroups {
			return nil
		}
		g := &group{index: index, proves: provesPrefix(specKind)}
		if g.proves {
			g.bit = 1 << len(ep.groups)
			x.addProving(ep, g)
		}
		ep.groups = append(ep.groups, g)
		i = len(ep.groups) - 1
	}
	g := ep.groups[i]
	if specKind != "" && g.proves != provesPrefix(specKind) {
		// An event without the kind came first and was taken for full
		// attention, or the reverse. Start again from what is known now.
		x.clearLocked(ep)
		ep.groups = nil
		ep.proving, ep.masks = 0, nil
		return x.groupOf(ep, index, specKind)
	}
	if !g.proves {
		return nil
	}
	return g
}

// addProving takes g into what a prefix must be proven by. Blocks that the
// other groups have are no longer held until g has them too.
func (x *Index) addProving(ep *endpoint, g *group) {
	before := ep.proving
	ep.proving |= g.bit
	if before == 0 {
		return
	}
	if ep.masks == nil {
		ep.masks = make(map[BlockHash]*[numTiers]uint32)
		for _, other := range ep.groups {
			for _, b := range other.blocks.all() {
				if !b.resolved() {
					continue
				}
				mask := new([numTiers]uint32)
				for t := range numTiers {
					if b.in(t) {
						mask[t] = other.bit
					}
				}
				ep.masks[b.own] = mask
			}
		}
	}
	for own, mask := range ep.masks {
		for t := range numTiers {
			if mask[t] == before {
				x.table.hold(own, ep.id, t, false)
			}
		}
	}
}

// setHeld records that g has, or no longer has, a block with this own hash.
func (x *Index) setHeld(ep *endpoint, g *group, own BlockHash, t Tier, held bool) {
	if ep.masks == nil {
		x.table.hold(own, ep.id, t, held)
		return
	}
	mask := ep.masks[own]
	if mask == nil {
		mask = new([numTiers]uint32)
		ep.masks[own] = mask
	}
	before := mask[t]
	if held {
		mask[t] |= g.bit
	} else {
		mask[t] &^= g.bit
	}
	if was, is := before == ep.proving, mask[t] == ep.proving; was != is {
		x.table.hold(own, ep.id, t, is)
	}
	if *mask == ([numTiers]uint32{}) {
		delete(ep.masks, own)
	}
}

// has says whether some block of g is resolved to own.
func (x *Index) has(ep *endpoint, g *group, own BlockHash) bool {
	if ep.masks == nil {
		return x.table.holds(own, ep.id)
	}
	if mask := ep.masks[own]; mask != nil {
		for t := range numTiers {
			if mask[t]&g.bit != 0 {
				return true
			}
		}
	}
	return false
}

// set replaces what is known of hash and keeps everything that follows from
// it: holders, counts, and that a block without copies is forgotten.
func (x *Index) set(ep *endpoint, g *group, hash uint64, old, b block) {
	moved := old.resolved() && b.resolved() && old.own != b.own
	for t := range numTiers {
		was, is := old.in(t), b.in(t)
		if was != is {
			if is {
				ep.stats.Blocks[t]++
			} else {
				ep.stats.Blocks[t]--
			}
		}
		wasHeld, isHeld := was && old.resolved(), is && b.resolved()
		if wasHeld && (!isHeld || moved) {
			x.setHeld(ep, g, old.own, t, false)
		}
		if isHeld && (!wasHeld || moved) {
			x.setHeld(ep, g, b.own, t, true)
		}
	}
	if old.exists() && !old.resolved() {
		ep.stats.Unresolved--
	}
	if !b.exists() {
		if old.exists() {
			g.blocks.remove(hash)
		}
		return
	}
	if !b.resolved() {
		ep.stats.Unresolved++
	}
	if b != old {
		g.blocks.put(hash, b)
	}
}

// clearLocked forgets all blocks of ep; ep.mu is held.
func (x *Index) clearLocked(ep *endpoint) {
	for _, g := range ep.groups {
		for hash, b := range g.blocks.all() {
			x.set(ep, g, hash, b, block{})
		}
		if g.proves {
			g.blocks = blockMap{} // give the memory back
		}
	}
	ep.dropWaiting()
	ep.reportsHits, ep.sized = false, false
}
