package kvindex

import (
	"slices"
	"strconv"
)

// waitKey is the parent that a run of blocks waits for.
type waitKey struct {
	group  int
	parent uint64
}

// span is a run of blocks with all that resolves them, once the parent is.
type span struct {
	group     *group
	hashes    []uint64
	parent    uint64
	tokens    []uint32
	blockSize int
	extras    []BlockExtras
	adapter   string
	exact     bool // the engine says what its hashes take in besides tokens
	done      bool // resolved or dropped
}

func (x *Index) apply(ep *endpoint, b *EventBatch) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.detached {
		return ErrDetached
	}
	ep.stats.Batches++
	ep.stats.LastTimestamp = b.Timestamp
	ep.stats.UnknownEvents += uint64(b.Unknown)
	for i, ev := range b.Events {
		switch ev := ev.(type) {
		case BlockStored:
			ep.stats.Stored++
			x.stored(ep, &ev, b.Events[i+1:])
		case BlockRemoved:
			ep.stats.Removed++
			x.removed(ep, &ev)
		case AllBlocksCleared:
			ep.stats.Cleared++
			x.clearedGPU(ep)
		}
	}
	return nil
}

func (x *Index) stored(ep *endpoint, ev *BlockStored, following []Event) {
	g := x.groupOf(ep, ev.Group, ev.SpecKind)
	if g == nil {
		ep.stats.OtherGroups++
		return
	}
	tier := tierOf(ev.Medium)
	switch {
	case len(ev.Tokens) == 0 && ev.Medium == "":
		ep.stats.Sparse++ // a placeholder that does not name its tier
	case len(ev.Tokens) == 0:
		x.storedAgain(ep, g, ev.Hashes, tier)
	case ev.BlockSize <= 0 || len(ev.Tokens)/ev.BlockSize != len(ev.Hashes) || len(ev.Tokens)%ev.BlockSize != 0:
		// Null blocks are left out of the hashes while the tokens cover the
		// whole span (vLLM, sliding windows): which is which is not known.
		ep.stats.Sparse++
	case tier != TierGPU && !ev.HasExtras:
		// Offload tiers do not say what else the hash takes in; the GPU's
		// event of the same hash does.
		x.storedAgain(ep, g, ev.Hashes, tier)
	default:
		x.storedSpan(ep, g, ev, tier, following)
	}
}

// storedAgain adds a tier to blocks that are known by their hash, or will be.
func (x *Index) storedAgain(ep *endpoint, g *group, hashes []uint64, tier Tier) {
	for _, hash := range hashes {
		old := g.blocks.get(hash)
		if old.in(tier) {
			continue // such an event announces a tier, not a copy
		}
		b := old
		b.add(tier)
		x.setBounded(ep, g, hash, old, b)
	}
}

// setBounded is set for a block that may be unresolved.
func (x *Index) setBounded(ep *endpoint, g *group, hash uint64, old, b block) {
	if !b.resolved() && !old.exists() && ep.stats.Unresolved >= maxUnresolved {
		ep.stats.Dropped++
		return
	}
	x.set(ep, g, hash, old, b)
}

func (x *Index) storedSpan(ep *endpoint, g *group, ev *BlockStored, tier Tier, following []Event) {
	if len(ev.Hashes) == 0 {
		return
	}
	if tier == TierGPU {
		ep.learnBlockSize(ev.BlockSize)
		if !ep.reportsHits && reportsHit(g, ev, following) {
			ep.reportsHits = true
			x.dropMaybes(ep)
		}
	}
	sp := span{
		group: g, hashes: ev.Hashes, parent: ev.Parent, tokens: ev.Tokens, blockSize: ev.BlockSize,
		extras: ev.Extras, adapter: ev.LoraName, exact: ev.HasExtras,
	}
	if sp.adapter == "" && ev.LoraID != 0 {
		// Before 0.14.1 the adapter has a number and no name. Keep it apart
		// from every namespace that a request can name.
		sp.adapter = "\x00lora_id " + strconv.FormatInt(ev.LoraID, 10)
	}
	adapter, ok := ep.intern(sp.adapter)
	if !ok {
		ep.stats.Dropped += uint64(len(sp.hashes))
		return
	}
	from := block{adapter: adapter}
	if ev.HasParent {
		parent := g.blocks.get(ev.Parent)
		if !parent.resolved() {
			for _, hash := range sp.hashes {
				old := g.blocks.get(hash)
				x.setBounded(ep, g, hash, old, ep.withCopy(old, tier, true))
			}
			ep.wait(&sp)
			return
		}
		from.own, from.root = parent.own, parent.root
	} else {
		salt := sp.takeSalt()
		from.own = Namespace{Model: ep.model, Adapter: sp.adapter, Salt: salt}.Root(sp.blockSize)
		from.root = foldHash(sp.hashes[0])
	}
	x.resolve(ep, &sp, from, func(b block) block { return ep.withCopy(b, tier, ev.HasParent) })
	if len(ep.waiting) > 0 {
		x.resolveWaiting(ep, &sp, from)
	}
}

// learnBlockSize keeps the first size after a clean slate; further groups may
// have others.
func (ep *endpoint) learnBlockSize(tokens int) {
	if !ep.sized {
		ep.sized = true
		ep.blockSize.Store(int64(tokens))
	}
}

// withCopy returns b with one more copy. A run from the first token on of
// blocks that are there already is either computed again, each a further copy,
// or the report of a hit, which is none (kv_cache_report_mode). It counts as a
// copy that may be none until the engine is seen to report hits.
func (ep *endpoint) withCopy(b block, tier Tier, hasParent bool) block {
	if tier != TierGPU || b.gpu == 0 || hasParent {
		b.add(tier)
		return b
	}
	if !ep.reportsHits && b.maybe() < maybeMask/oneMaybe {
		b.setMaybe(b.maybe() + 1)
		b.add(tier)
	}
	return b
}

// reportsHit says whether ev is the report of a hit: all its blocks are there,
// and the next event of the step stores what the same prompt adds to them. A
// prompt that is computed again in full stores its blocks in one run.
func reportsHit(g *group, ev *BlockStored, following []Event) bool {
	if ev.HasParent || len(ev.Hashes) == 0 || len(following) == 0 {
		return false
	}
	next, ok := following[0].(BlockStored)
	if !ok || !next.HasParent || next.Parent != ev.Hashes[len(ev.Hashes)-1] || next.Group != ev.Group || tierOf(next.Medium) != TierGPU {
		return false
	}
	for _, hash := range ev.Hashes {
		if !g.blocks.get(hash).in(TierGPU) {
			return false
		}
	}
	return true
}

// dropMaybes takes back the copies that may have been reports.
func (x *Index) dropMaybes(ep *endpoint) {
	for _, g := range ep.groups {
		for hash, old := range g.blocks.all() {
			if old.maybe() > 0 {
				b := old
				b.gpu -= b.maybe()
				b.setMaybe(0)
				x.set(ep, g, hash, old, b)
			}
		}
	}
}

// takeSalt returns the cache salt of a run that starts at the first token, and
// takes it out of the extra keys. The salt is the last key of the first block;
// a lone key there is the salt, and where others stand beside it all are kept:
// they belong to media, whose blocks no request of ours asks for.
func (sp *span) takeSalt() string {
	if len(sp.extras) == 0 || sp.extras[0].Block != 0 {
		return ""
	}
	keys := sp.withoutAdapter(sp.extras[0].Keys)
	if len(keys) != 1 || keys[0].Opaque {
		return ""
	}
	sp.extras = sp.extras[1:]
	return keys[0].Text
}

// withoutAdapter leaves out the adapter's name, which leads the keys of every
// block and is part of the namespace.
func (sp *span) withoutAdapter(keys []ExtraKey) []ExtraKey {
	if sp.adapter != "" && len(keys) > 0 && !keys[0].Opaque && keys[0].Text == sp.adapter {
		return keys[1:]
	}
	return keys
}

// appendKeys appends the own hashes of the run's blocks.
func (sp *span) appendKeys(dst []BlockHash, parent BlockHash) []BlockHash {
	done := 0 // blocks
	extend := func(upTo int) {
		dst = AppendHashes(dst, parent, sp.tokens[done*sp.blockSize:upTo*sp.blockSize], sp.blockSize)
		if upTo > done {
			parent = dst[len(dst)-1]
		}
		done = upTo
	}
	for _, extra := range sp.extras {
		if extra.Block < done || extra.Block >= len(sp.hashes) {
			continue
		}
		keys := sp.withoutAdapter(extra.Keys)
		if len(keys) == 0 {
			continue
		}
		extend(extra.Block)
		parent = mixExtras(parent, keys)
		extend(extra.Block + 1)
	}
	extend(len(sp.hashes))
	return dst
}

// resolve gives the blocks of sp their own hashes, which it leaves in ep.keys.
// from has the own hash of the block before, the root and the adapter;
// announce adds the copy that sp announces, if it does.
func (x *Index) resolve(ep *endpoint, sp *span, from block, announce func(block) block) {
	g := sp.group
	ep.keys = sp.appendKeys(ep.keys[:0], from.own)
	for i, hash := range sp.hashes {
		own, old := ep.keys[i], g.blocks.get(hash)
		if (!old.resolved() || old.own != own) && x.has(ep, g, own) {
			x.supersede(ep, sp, own, from)
			old = g.blocks.get(hash)
		}
		b := announce(old)
		if !b.exists() {
			continue // removed while it waited
		}
		if !b.resolved() || b.own != own {
			b.own, b.root, b.adapter = own, from.root, from.adapter
			b.flags |= flagResolved
		}
		x.set(ep, g, hash, old, b)
	}
}

// resolveWaiting resolves the runs that waited for a block of sp, which has
// just been resolved, those that waited for them, and so on.
func (x *Index) resolveWaiting(ep *endpoint, sp *span, from block) {
	type known struct {
		hash uint64
		own  BlockHash
	}
	var work []known
	add := func(sp *span) {
		for i, hash := range sp.hashes {
			work = append(work, known{hash, ep.keys[i]})
		}
	}
	for add(sp); len(work) > 0; {
		parent := work[len(work)-1]
		work = work[:len(work)-1]
		for _, child := range ep.takeWaiting(sp.group, parent.hash) {
			from.own = parent.own
			x.resolve(ep, child, from, func(b block) block { return b })
			add(child)
			*child = span{done: true} // the queue may keep it for a while
		}
	}
}

// supersede makes room for a newer engine hash of own. An adapter that was
// loaded again from elsewhere keeps its name and changes its hashes: then
// nothing that it had stored before can be hit. Otherwise the engine did not
// say what else went into the hash; what was chained to the older one goes
// with it.
func (x *Index) supersede(ep *endpoint, sp *span, own BlockHash, from block) {
	g := sp.group
	stale := func(b block) bool { return b.adapter == from.adapter && b.root != from.root }
	if from.adapter == 0 || !sp.exact {
		roots := make(map[uint32]bool)
		for _, b := range g.blocks.all() {
			if b.resolved() && b.own == own && b.root != from.root {
				roots[b.root] = true
			}
		}
		stale = func(b block) bool { return roots[b.root] }
	}
	for _, other := range ep.groups {
		for hash, old := range other.blocks.all() {
			if !old.resolved() {
				continue
			}
			if stale(old) || other == g && old.own == own {
				b := old
				b.flags &^= flagResolved
				b.own = 0
				x.set(ep, other, hash, old, b)
				ep.stats.Superseded++
			}
		}
	}
}

// wait keeps a run until its parent is known.
func (ep *endpoint) wait(sp *span) {
	kept := new(span)
	*kept = *sp
	kept.hashes, kept.tokens, kept.extras = slices.Clone(sp.hashes), slices.Clone(sp.tokens), slices.Clone(sp.extras)
	key := waitKey{kept.group.index, kept.parent}
	ep.waiting[key] = append(ep.waiting[key], kept)
	ep.waitingQueue = append(ep.waitingQueue, kept)
	ep.waitingTokens += len(kept.tokens)
	ep.stats.Waiting++
	for len(ep.waitingQueue) > maxWaiting || ep.waitingTokens > maxWaitingTokens {
		oldest := ep.waitingQueue[0]
		ep.waitingQueue[0] = nil
		ep.waitingQueue = ep.waitingQueue[1:]
		if oldest.done {
			continue
		}
		for _, sp := range ep.takeWaiting(oldest.group, oldest.parent) {
			*sp = span{done: true}
			ep.stats.UnknownParents++
		}
	}
}

// takeWaiting returns the runs that waited for parent; they wait no longer.
func (ep *endpoint) takeWaiting(g *group, parent uint64) []*span {
	key := waitKey{g.index, parent}
	spans := ep.waiting[key]
	if spans == nil {
		return nil
	}
	delete(ep.waiting, key)
	for _, sp := range spans {
		sp.done = true
		ep.waitingTokens -= len(sp.tokens)
		ep.stats.Waiting--
	}
	return spans
}

func (ep *endpoint) dropWaiting() {
	ep.stats.UnknownParents += uint64(ep.stats.Waiting)
	clear(ep.waiting)
	ep.waitingQueue, ep.waitingTokens, ep.stats.Waiting = nil, 0, 0
}

func (ep *endpoint) intern(adapter string) (id uint16, ok bool) {
	if id, ok = ep.adapters[adapter]; ok {
		return id, true
	}
	if len(ep.adapters) == maxAdapters {
		return 0, false
	}
	id = uint16(len(ep.adapters))
	ep.adapters[adapter] = id
	return id, true
}

func (x *Index) removed(ep *endpoint, ev *BlockRemoved) {
	i := slices.IndexFunc(ep.groups, func(g *group) bool { return g.index == ev.Group })
	if i >= 0 && !ep.groups[i].proves {
		ep.stats.OtherGroups++
		return
	}
	tier := tierOf(ev.Medium)
	for _, hash := range ev.Hashes {
		var old block
		if i >= 0 {
			old = ep.groups[i].blocks.get(hash)
		}
		if !old.in(tier) {
			ep.stats.UnknownRemovals++
			continue
		}
		b := old
		b.remove(tier)
		x.set(ep, ep.groups[i], hash, old, b)
	}
}

func (x *Index) clearedGPU(ep *endpoint) {
	for _, g := range ep.groups {
		for hash, old := range g.blocks.all() {
			if !old.in(TierGPU) {
				continue
			}
			b := old
			b.gpu = 0
			b.setMaybe(0)
			x.set(ep, g, hash, old, b)
		}
	}
	ep.dropWaiting()
}

// foldHash shortens the engine hash of a prompt's first block to what tells
// the chains of one endpoint apart.
func foldHash(h uint64) uint32 { return uint32(h>>32) ^ uint32(h) }
